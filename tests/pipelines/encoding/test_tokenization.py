"""Meaning of ids for each kind of tokenizer; both backends are one to the caller."""

import json
import logging
import pickle
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from tests.tools.python_process import run_python
from tests.tools.tokenizer_factory import changed, config_of, data_of, strings, trained_tokenizer
from textmill.pipelines.encoding import tokenizer as tokenizer_module
from textmill.pipelines.encoding.gigatoken_engine import Gigatoken
from textmill.pipelines.encoding.patterns import byte_characters, spelt_bytes
from textmill.pipelines.encoding.tokenizer import GOLDEN_TEXTS, LoadedTokenizer, load_tokenizer
from textmill.pipelines.rows.ragged import Ragged
from textmill.schemas.errors import DataError

_ROLES = {"bos": 0, "pad": 1, "eos": 2, "unk": 3, "mask": 4}


def _loaded() -> LoadedTokenizer:
    return LoadedTokenizer(trained_tokenizer().to_str().encode())


def _of(tokenizer: Tokenizer) -> LoadedTokenizer:
    return LoadedTokenizer(tokenizer.to_str().encode())


def _word_piece() -> Tokenizer:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##able", "able", ","]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(tokens[:5])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def _unigram() -> Tokenizer:
    pieces = [("<unk>", 0.0), ("▁the", -2.0), ("▁", -3.0), ("a", -4.0), ("</s>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    return tokenizer


def test_the_bytes_of_byte_level_tokens():
    assert spelt_bytes([]) == []
    assert spelt_bytes(byte_characters()) == [bytes([byte]) for byte in range(256)]
    # Characters outside the alphabet: a newline, 漢, and the first one after it.
    tokens = ["", "Ġé", "漢", "Ġ漢", "\n", "", "Ńa", "\u0144", "ĀĀ", ""]
    spelt = [b"", b" \xe9", "漢".encode(), "Ġ漢".encode(), b"\n", b"", b"\xada", "ń".encode()]
    assert spelt_bytes(tokens) == [*spelt, b"\0\0", b""]


def test_byte_level():
    tokenizer = _loaded()
    assert tokenizer.load_backend() == "gigatoken"
    assert tokenizer.special_ids == _ROLES
    assert tokenizer.all_special_ids == (0, 1, 2, 3, 4)
    assert (tokenizer.prefix_ids, tokenizer.suffix_ids) == ((0,), (2,))
    assert tokenizer.vocab_size == trained_tokenizer().get_vocab_size()
    assert tokenizer.golden[0][0] == GOLDEN_TEXTS[0]
    for text, ids in tokenizer.golden:
        assert tokenizer.decode(ids) == text
        assert b"".join(tokenizer.token_bytes[i] for i in ids) == text.encode()
    ids = tokenizer.encode(strings("the fox, who's\n\tin<mask> a")).values
    starts = {tokenizer.token_bytes[i]: bool(tokenizer.is_word_start[i]) for i in ids}
    assert starts == {token: token[:1].isspace() for token in starts}
    assert {b"<mask>", b",", b"'s"} < starts.keys() and True in starts.values()
    spaces = sum(token[:1].isspace() for token in tokenizer.token_bytes)
    assert tokenizer.is_word_start.dtype == bool and tokenizer.is_word_start.sum() == spaces


def test_a_normalizer_that_no_fast_backend_has():
    config = changed(config_of(trained_tokenizer()), "normalizer", value={"type": "Nmt"})
    assert LoadedTokenizer(data_of(config)).load_backend() == (
        "tokenizers, since its normalizer is Nmt"
    )


def test_word_piece():
    tokenizer = _of(_word_piece())
    assert tokenizer.load_backend() == "word table"
    assert tokenizer.special_ids == {"bos": 2, "eos": 3, "pad": 0, "mask": 4, "unk": 1}
    assert (tokenizer.prefix_ids, tokenizer.suffix_ids) == ((2,), (3,))
    ragged = tokenizer.encode(strings("Unable, able", "", "[MASK] un"))
    assert ragged.values.tolist() == [5, 6, 8, 7, 4, 5]
    assert ragged.offsets.tolist() == [0, 4, 4, 6]
    assert tokenizer.is_word_start.tolist() == [False] * 5 + [True, False, True, True]
    assert tokenizer.token_bytes[6] == b"##able"
    assert tokenizer.decode([5, 6, 4]) == "unable [MASK]"


def test_unigram():
    tokenizer = _of(_unigram())
    assert tokenizer.special_ids == {"eos": 4, "unk": 0}
    assert (tokenizer.prefix_ids, tokenizer.suffix_ids) == ((), ())
    assert tokenizer.encode(strings("the aa")).values.tolist() == [1, 2, 3, 3]
    assert tokenizer.is_word_start.tolist() == [False, True, True, False, False]


def test_word_level_tokens_are_words():
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    loaded = _of(tokenizer)
    # [UNK] is a role though the file does not say that it is special; no token has id 2.
    assert loaded.special_ids == {"unk": 0} and loaded.all_special_ids == (0,)
    assert loaded.is_word_start.tolist() == [False, True, False, True]
    assert loaded.token_bytes == (b"[UNK]", b"a", b"", b"b")
    assert loaded.encode(strings("a b c")).values.tolist() == [1, 3, 0]


def test_a_token_that_merges_spell_has_no_role():
    """`<s>` learnt from HTML is text; the same string added to the vocabulary is a special."""
    config = config_of(trained_tokenizer())
    config["added_tokens"] = []
    config["post_processor"] = None
    model = config["model"]
    model["vocab"] |= {"<s": 900}
    model["merges"] += [["<", "s"], ["<s", ">"]]
    tokenizer = LoadedTokenizer(data_of(config))
    assert "bos" not in tokenizer.special_ids
    assert tokenizer.special_ids == {"eos": 2, "pad": 1, "mask": 4, "unk": 3}


def test_json_is_canonical_without_truncation_and_padding():
    tokenizer, whole = trained_tokenizer(), _loaded()
    pretty = LoadedTokenizer(json.dumps(config_of(tokenizer), indent=4).encode())
    assert pretty.json == whole.json and LoadedTokenizer(pretty.json).sha256 == whole.sha256
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8)
    cut = _of(tokenizer)
    assert cut.sha256 == whole.sha256 and cut.golden == whole.golden
    assert len(cut.encode(strings("one two three four five")).values) > 4


def test_pickling_keeps_roles_and_ids():
    data = trained_tokenizer().to_str().encode()
    tokenizer = LoadedTokenizer(data, {"bos": "<unk>"})
    text = strings("pickled 中", "\U000323b0")
    before = tokenizer.encode(text)
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.sha256 == tokenizer.sha256 and copy.special_ids["bos"] == 3
    after = copy.encode(text)
    assert np.array_equal(before.values, after.values)


def test_named_roles_go_before_common_names(tmp_path):
    trained_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "special_tokens_map.json").write_text('{"pad_token": "</s>"}')
    assert load_tokenizer(tmp_path).special_ids == _ROLES | {"pad": 2}
    (tmp_path / "special_tokens_map.json").write_text('{"pad_token": "[NONE]"}')
    with pytest.raises(DataError, match="the pad token '\\[NONE\\]'"):
        load_tokenizer(tmp_path)


def test_tokenizers_that_cannot_be_used_are_refused():
    config = config_of(trained_tokenizer())
    with pytest.raises(DataError, match="dropout"):
        LoadedTokenizer(data_of(changed(config, "model", "dropout", value=0.1)))
    far = changed(config, "model", "vocab", "a", value=4_000_000_000)
    with pytest.raises(DataError, match="4,000,000,000"):
        LoadedTokenizer(data_of(far))
    with pytest.raises(DataError, match="vocabulary is empty"):
        _of(Tokenizer(models.BPE()))
    twice = trained_tokenizer()
    twice.post_processor = processors.TemplateProcessing(
        single="<s> $A </s> $A", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    with pytest.raises(DataError, match="uses a text twice"):
        _of(twice)


class PanicException(BaseException):
    """As pyo3 raises it."""


def panic(backend, data, offsets):
    raise PanicException("index out of bounds")


def encode_wrongly(backend, data, offsets, encode=Gigatoken.encode_unguarded):
    ids, id_offsets = encode(backend, data, offsets)
    return Ragged(np.where(ids == 17, 18, ids), id_offsets)


@pytest.mark.parametrize(
    ("encode", "why"),
    [
        (encode_wrongly, "encodes"),
        (panic, "cannot be loaded: index out of bounds"),
        (None, "cannot be loaded: import of gigatoken halted"),
    ],
)
def test_a_fast_backend_that_fails_at_load_is_not_used(monkeypatch, caplog, encode, why):
    if encode:
        monkeypatch.setattr(Gigatoken, "encode_unguarded", encode)
    else:
        monkeypatch.setitem(sys.modules, "gigatoken", None)
    monkeypatch.setattr(logging.getLogger(), "level", logging.CRITICAL)  # as while Beam runs
    tokenizer = _loaded()
    assert tokenizer.load_backend().startswith("tokenizers, since it ")
    assert f"The fast backend is not used for tokenizer.json: it {why}" in caplog.text
    text = "what 17 is: " + trained_tokenizer().decode([17])
    expected = trained_tokenizer().encode(text, add_special_tokens=False).ids
    assert tokenizer.encode(strings(text)).values.tolist() == expected


def test_a_fast_backend_loads_when_it_pays(monkeypatch):
    loaded = []
    choose = tokenizer_module.choose_backend
    monkeypatch.setattr(tokenizer_module, "FAST_PAYS_BYTES", 100)
    monkeypatch.setattr(
        tokenizer_module, "choose_backend", lambda *a: (loaded.append(1), choose(*a))[1]
    )
    tokenizer = _loaded()
    assert tokenizer.load_backend(99) == "tokenizers, the fastest for input of this size"
    expected = trained_tokenizer().encode("what is small", add_special_tokens=False).ids
    for due in ([], [], [], [], [1], [1]):  # 13 bytes, and 8 for where they begin, are 21
        assert tokenizer.encode(strings("what is small")).values.tolist() == expected
        assert loaded == due
    assert _loaded().load_backend(100) == "gigatoken" and loaded == [1, 1]


def test_importing_is_cheap():
    code = (
        "import sys, pipelines.encoding.tokenizer; "
        "print({'awkward', 'gigatoken', 'numba', 'apache_beam'} & set(sys.modules))"
    )
    done = run_python("-c", code, check=True)
    assert done.stdout == "set()\n"
