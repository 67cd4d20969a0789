"""Published layouts of tokenizer files, and errors of broken ones."""

import json
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.stress.fuzz_encoding import draw_texts, small_tokenizer
from tests.tools.places import DATA
from tests.tools.tokenizer_factory import ROBERTA_SPECIALS, config_of, data_of, trained_tokenizer
from tests.tools.tokenizer_families import FAMILIES
from textmill.pipelines.encoding.reference import failures_as_data_errors
from textmill.pipelines.encoding.tokenizer_files import (
    _make_bpe,
    merged_tokens,
    read_tokenizer_files,
)
from textmill.schemas.errors import DataError, UsageError

_TRAINED = trained_tokenizer().to_str()
_PUBLISHED = DATA / "tokenizers"
_TEXT = "Hello <mask> world</s> it's  <|endoftext|> 中文\n"


def _write_vocab_and_merges(directory: Path, specials: tuple[str, ...]) -> Tokenizer:
    """GPT-2's layout, of the small tokenizer without its specials but those."""
    tokenizer = trained_tokenizer()
    model = config_of(tokenizer)["model"]
    kept = [token for token in model["vocab"] if token not in ROBERTA_SPECIALS]
    vocab = {token: i for i, token in enumerate([*specials, *kept])}
    (directory / "vocab.json").write_text(json.dumps(vocab))
    lines = ["#version: 0.2", *(" ".join(merge) for merge in model["merges"]), ""]
    (directory / "merges.txt").write_text("\n".join(lines))
    return tokenizer


def test_layouts_of_roberta_and_gpt2(tmp_path):
    trained = _write_vocab_and_merges(tmp_path, ROBERTA_SPECIALS)
    files = read_tokenizer_files(str(tmp_path))
    assert files.named == {}
    read = files.parse()[0]
    assert read.encode(_TEXT).ids == trained.encode(_TEXT).ids
    assert read.decode(read.encode(_TEXT).ids) == trained.decode(trained.encode(_TEXT).ids)
    added = {i: str(t.content) for i, t in read.get_added_tokens_decoder().items()}
    assert added == dict(enumerate(ROBERTA_SPECIALS))
    _write_vocab_and_merges(tmp_path, ("<|endoftext|>",))
    read = read_tokenizer_files(str(tmp_path)).parse()[0]
    assert read.encode("a<|endoftext|>").tokens == ["a", "<|endoftext|>"]
    assert read.get_added_tokens_decoder().keys() == {0}


@given(st.randoms(use_true_random=True))
@settings(max_examples=settings().max_examples // 3)
def test_a_bpe_is_as_tokenizers_reads_it(draw):
    """With merges that occur twice, options of the model, and added tokens of any kind."""
    configs = map(config_of, map(small_tokenizer, draw.sample([*FAMILIES], len(FAMILIES))))
    config = next(config for config in configs if config["model"]["type"] == "BPE")
    model, flags = config["model"], ("single_word", "lstrip", "rstrip", "normalized", "special")
    model["merges"] += draw.sample(model["merges"], 9)
    model |= {name: draw.random() < 0.3 for name in ("ignore_merges", "fuse_unk")}
    model["unk_token"] = draw.choice([None, "a", draw.choice(list(model["vocab"]))])
    for content in draw.sample(["<a>", "a b", " x", "\n", "é", "the", "中", *model["vocab"]], 5):
        token = {flag: draw.random() < 0.4 for flag in flags}
        config["added_tokens"].append({"id": draw.randrange(5000), "content": content} | token)
    read, made = Tokenizer.from_buffer(data_of(config)), _make_bpe(config)
    assert made is not None and made.to_str() == read.to_str()
    texts = [*islice(draw_texts(read, draw.randrange(99)), 100)]
    for text, other in zip(read.encode_batch(texts), made.encode_batch(texts), strict=True):
        assert (text.ids, text.offsets, text.type_ids) == (other.ids, other.offsets, other.type_ids)


def test_opt_layout(tmp_path):
    """No mask; a bos before each text, if it is configured; specials by name."""
    _write_vocab_and_merges(tmp_path, ("<s>", "<pad>", "</s>", "<unk>"))
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "</s>", "eos_token": "</s>"}')
    tokenizer = read_tokenizer_files(str(tmp_path)).parse()[0]
    assert tokenizer.encode("a").tokens == ["a"]
    (tmp_path / "tokenizer_config.json").write_text('{"add_bos_token": true}')
    files = read_tokenizer_files(str(tmp_path))
    assert files.parse()[0].encode("a<unk>").tokens == ["</s>", "a", "<unk>"]
    assert files.named == {"bos": "</s>", "eos": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    tokenizer = read_tokenizer_files(str(tmp_path)).parse()[0]
    assert "".join(tokenizer.encode("a").tokens) == "Ġa"


@pytest.mark.skipif(not _PUBLISHED.exists(), reason="the published tokenizers are not available")
@pytest.mark.parametrize(("name", "kind"), [("roberta-base", "Roberta"), ("gpt2", "GPT2")])
def test_published_files_are_read_as_transformers_reads_them(name, kind):
    import transformers

    directory = _PUBLISHED / name
    theirs = getattr(transformers, f"{kind}Tokenizer").from_pretrained(str(directory))
    ours = read_tokenizer_files(str(directory)).parse()[0]
    # No space before <mask>: as published it takes that along, but not in transformers 5.
    for text in (_TEXT.replace(" <", "<"), "", " x", "don't  STOP 12½", "<s> a<pad>", "e\u0301 🙂"):
        ids = theirs(text)["input_ids"]
        assert ours.encode(text).ids == ids
        assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids)


def test_roles_beside_tokenizer_json(tmp_path):
    trained_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        '{"cls_token": "<s>", "pad_token": {"content": "<pad>", "lstrip": false}, "unk_token": ""}'
    )
    (tmp_path / "special_tokens_map.json").write_text(
        '{"bos_token": "<unk>", "sep_token": "</s>", "mask_token": null}'
    )
    expected = {"bos": "<unk>", "eos": "</s>", "pad": "<pad>"}
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        assert read_tokenizer_files(str(path)).named == expected
    (tmp_path / "tokenizer.json").rename(tmp_path / "mine.json")
    assert read_tokenizer_files(str(tmp_path / "mine.json")).named == {}


@pytest.mark.parametrize(
    ("files", "error", "said"),
    [
        ({}, UsageError, "it holds nothing"),
        ({"spiece.model": "x"}, UsageError, "it holds spiece.model"),
        ({"vocab.json": "{}"}, UsageError, "neither tokenizer.json nor vocab.json with merges"),
        ({"tokenizer.json": "{"}, DataError, "is not a tokenizer: not JSON"),
        ({"tokenizer.json": ""}, DataError, "is not a tokenizer: not JSON"),
        ({"tokenizer.json": "[1]"}, DataError, r"it is \[1\], not of type dict"),
        (
            {"tokenizer.json": '{"model": {"type": "BPE", "vocab": {}, "merges": [["a", "b"]]}}'},
            DataError,
            "tokenizer.json (is not|cannot be used as) a tokenizer",
        ),
        ({"tokenizer.json": "[" * 100_000}, DataError, "tokenizer.json is not a tokenizer"),
        ({"vocab.json": "[", "merges.txt": ""}, DataError, "vocab.json is not JSON"),
        ({"vocab.json": "[]", "merges.txt": ""}, DataError, "holds a JSON list"),
        ({"vocab.json": '{"a": "x"}', "merges.txt": ""}, DataError, "the id of 'a' is 'x'"),
        ({"vocab.json": '{"a": 0, "b": 0}', "merges.txt": ""}, DataError, "have the same id, 0"),
        (
            {"vocab.json": '{"a": 16000000}', "merges.txt": ""},
            DataError,
            "is 16,000,000, not from 0 to",
        ),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a b"}, DataError, "vocab.json is not a tok"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a b c"}, DataError, "t, line 1: 'a b c' is"),
        ({"tokenizer.json": b"\xff\xfe"}, DataError, "not a tokenizer"),
        (
            {"tokenizer.json": _TRAINED, "special_tokens_map.json": "{"},
            DataError,
            "special_tokens_map.json is not JSON",
        ),
        (
            {"tokenizer.json": _TRAINED, "tokenizer_config.json": r'{"chat_template": "\ud800"}'},
            DataError,
            "tokenizer_config.json is not JSON: .*surrogates not allo",
        ),
    ],
)
def test_broken_files_get_one_paragraph(tmp_path, files, error, said):
    with pytest.raises(UsageError, match="no such file"):
        read_tokenizer_files(str(tmp_path / "none"))
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(error, match=said) as raised:
        read_tokenizer_files(str(tmp_path)).parse()
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_merged_tokens():
    some = {"ab", "cd", "b", "<s>"}
    assert merged_tokens({"model": {"merges": [["a", "b"], "c d", "x d"]}}, some) == {"ab", "cd"}
    prefixed = {"merges": [["a", "##b"]], "continuing_subword_prefix": "##"}
    assert merged_tokens({"model": prefixed}, some) == {"ab"}
    assert merged_tokens({"model": {"type": "WordPiece"}}, some) == set()


def test_only_failures_become_data_errors():
    class PanicException(BaseException):
        """As pyo3 raises it."""

    with pytest.raises(DataError, match="^reading: it broke; mend it$"):
        with failures_as_data_errors("reading", "mend it"):
            raise PanicException("it broke\nat line 7")
    with pytest.raises(KeyboardInterrupt):
        with failures_as_data_errors("reading", "mend it"):
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["chat_template.jinja", "additional_chat_templates/tools.jinja"])
def test_a_template_is_no_link_to_another_place(tmp_path, name):
    """It is published with its dataset. Links within huggingface_hub's cache are its files."""
    hub = tmp_path / "models--a--b"
    folder = hub / "snapshots" / "0123"
    path = folder / name
    path.parent.mkdir(parents=True)
    trained_tokenizer().save(str(folder / "tokenizer.json"))
    (tmp_path / "secret").write_text("a password")
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(DataError, match=f"{name} is a link to {tmp_path}/secret, outside") as said:
        read_tokenizer_files(str(folder))
    assert "password" not in str(said.value)
    for place in (hub / "blobs" / "4567", folder / "beside"):
        place.parent.mkdir(exist_ok=True)
        place.write_text("{{ messages }}")
        path.unlink()
        path.symlink_to(place)
        found = read_tokenizer_files(str(folder)).chat_templates
        assert list(found.values()) == ["{{ messages }}"]
