"""WordPiece and Unigram by our loops against `tokenizers`, with vocabularies drawn at random."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from tests.stress.fuzz_encoding import backend_of, different, small_tokenizer
from tests.tools.tokenizer_factory import changed, config_of, data_of, strings
from textmill.pipelines.encoding.tokenizer_types import make_backend
from textmill.pipelines.encoding.word_merges import Merges
from textmill.pipelines.encoding.word_pieces import Pieces
from textmill.pipelines.encoding.word_table import EncodingPlan
from textmill.schemas.errors import DataError

_LETTERS = "aabbcABCéÉåİßœДйΣς1½ª"
_CHARACTERS = [*_LETTERS * 3, *".,-'\"`“”…«°´¨ \u00a0\u0301中<>_", "``", "''", "<unk>", "##a", "@@"]
_PREFIXES = ("##", "@@", "", "a")
_DRAWS = st.randoms(use_true_random=True)
_UNREACHABLE = {"qxq": 2000, "Ã©ä¸Ń": 2001}  # as byte-level BPE spells "qxq" and "é中"
_WORD_PIECE, _UNIGRAM = ("BERT uncased", "BERT cased"), ("T5, XLM-R", "T5 by Metaspace", "ALBERT")


def _bare(config: dict) -> Tokenizer:
    """Without added tokens."""
    return Tokenizer.from_buffer(data_of(config | {"added_tokens": [], "post_processor": None}))


def _draw_texts(draw: random.Random) -> list[str]:
    words = ["".join(draw.choices(_CHARACTERS, k=draw.randrange(1, 14))) for _ in range(400)]
    spaces = (" ", "", "  ", "\n", "\t", "\r", "\r\n", "\n\n \t ")
    return [
        "".join(w + draw.choice(spaces) for w in words[start : start + 8])
        for start in range(0, 400, 8)
    ]


def _tokens(draw: random.Random, letters: str) -> list[str]:
    """Tokens of up to four letters, and most letters alone."""
    parts = {"".join(draw.choices(letters, k=draw.randrange(1, 5))) for _ in range(200)}
    return sorted(parts | set(draw.sample(letters, 3 * len(letters) // 4)))


def _word_piece(draw: random.Random, options: Mapping[str, Any]) -> Tokenizer:
    config = config_of(small_tokenizer(draw.choice(_WORD_PIECE)))
    prefix = draw.choice(_PREFIXES)
    letters = _LETTERS.lower() + _LETTERS + ".,-'\"`“”"
    tokens = ["[UNK]", *_tokens(draw, letters), *(prefix + t for t in _tokens(draw, letters))]
    ids = draw.sample(range(5000), len(set(tokens)))
    config["model"] |= {
        "vocab": dict(zip(dict.fromkeys(tokens), ids, strict=True)),
        "continuing_subword_prefix": prefix,
        "max_input_chars_per_word": draw.choice([0, 1, 3, 5, 100]),
    }
    config["normalizer"] |= options
    return _bare(config)


def _unigram(draw: random.Random) -> Tokenizer:
    """Scores are often alike, so that many ways to part a word are as good."""
    config = config_of(small_tokenizer(draw.choice(_UNIGRAM)))
    tokens = ["<unk>", *_tokens(draw, _LETTERS.lower() + _LETTERS + "▁.,-'\"“”<>unk")]
    tokens += [f"▁{token}" for token in draw.sample(tokens, 60)]
    scores = draw.choice([[-1.0, -2.0, -3.0], [-0.1, -0.2, -0.3, -7.7], [0.0, 5.0], [11.0, 30.0]])
    tokens += draw.choice([[], [f"<0x{byte:02X}>" for byte in range(256)]])
    config["model"] |= {
        "vocab": [(token, draw.choice(scores)) for token in tokens],  # some of them twice
        "unk_id": 0,
        "byte_fallback": draw.random() < 0.3,
    }
    return _bare(config)


def _sentencepiece_bpe(draw: random.Random) -> Tokenizer:
    """Merges in any order, of characters, of bytes, and of what these became."""
    config = config_of(small_tokenizer("Llama 2"))
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    parts = [*draw.sample(sorted(set("▁" + _LETTERS.lower() + _LETTERS)), 20), "▁"]
    merges = []
    for _ in range(300):
        left, right = draw.choice(parts), draw.choice([*parts, *bytes_[0xC3:0xC5]])
        if "▁" not in right.lstrip("▁" if set(left) == {"▁"} else ""):
            merges.append([left, right])
            parts.append(left + right)
    merges = [list(pair) for pair in dict.fromkeys(map(tuple, merges))]
    tokens = dict.fromkeys(["<unk>", "<s>", "</s>", *bytes_, *parts])
    ids = draw.sample(range(5000), len(tokens))
    config["model"] |= {"vocab": dict(zip(tokens, ids, strict=True)), "merges": merges}
    return _bare(config)


@given(_DRAWS)
@settings(max_examples=settings().max_examples // 3)
def test_sentencepiece_bpe_with_any_merges(draw):
    tokenizer = _sentencepiece_bpe(draw)
    backend = backend_of(tokenizer)
    assert isinstance(backend.plan.model, Merges)
    assert different(backend, tokenizer, _draw_texts(draw)) == []


def test_whole_words_that_merges_do_not_give():
    """With `ignore_merges`: no merges lead to "qxq" and "é中", which are one id each."""
    config = config_of(small_tokenizer("Llama 3"))
    config = changed(config, "model", "vocab", value=config["model"]["vocab"] | _UNREACHABLE)
    tokenizer = _bare(config)
    texts = ["qxq1é中 1qxq qxqq", "qxqé中", "qxq"]
    assert tokenizer.encode(texts[0]).ids[0] == 2000
    assert different(backend_of(tokenizer), tokenizer, texts) == []


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strip_accents": True},
        {"strip_accents": False},
        {"lowercase": False, "strip_accents": True},
        {"handle_chinese_chars": False},
        {"clean_text": False},
    ],
    ids=str,
)
@given(draw=_DRAWS)
@settings(max_examples=settings().max_examples // 10)
def test_word_piece_with_any_vocabulary_and_settings(options, draw):
    tokenizer = _word_piece(draw, options)
    backend = backend_of(tokenizer)
    assert isinstance(backend.plan.model, Pieces)
    assert different(backend, tokenizer, _draw_texts(draw)) == []


@given(_DRAWS)
@settings(max_examples=settings().max_examples // 3)
def test_unigram_with_any_vocabulary_and_scores(draw):
    tokenizer = _unigram(draw)
    backend = backend_of(tokenizer)
    assert isinstance(backend.plan.model, Pieces)
    assert different(backend, tokenizer, _draw_texts(draw)) == []


@pytest.mark.parametrize("name", [*_WORD_PIECE, *_UNIGRAM])
def test_usual_words_are_not_asked_for(name, monkeypatch):
    asked: list[str] = []
    encode = EncodingPlan.encode_words

    def count(plan, words):
        asked.extend(words)
        return encode(plan, words)

    tokenizer = small_tokenizer(name)
    backend = backend_of(tokenizer)
    monkeypatch.setattr(EncodingPlan, "encode_words", count)
    assert different(backend, tokenizer, ["Hello, wørlds! (“Привет”, Ærø) 12½%"]) == []
    lines = ["def f(a):\n\n\treturn a_1\r\n  # b\n", " \n", "\r\n"]
    assert different(backend, tokenizer, lines) == []
    if name != "T5 by Metaspace":  # each white character but the last becomes a piece
        assert [word for word in asked if word.strip()] == []
    asked.clear()
    assert different(backend, tokenizer, ["e\u0301 हिन्दी"]) == []
    assert " ".join(word.strip() for word in asked) == "e\u0301 हिन्दी"


def test_no_id_is_lost_where_ids_have_gaps():
    # The token that ends each of several words given to `tokenizers` gets the next id: here 2.
    config = config_of(small_tokenizer("BERT uncased"))
    config["model"] |= {"vocab": {"a": 5, "[UNK]": 2}}
    ids = backend_of(_bare(config)).encode(strings("a 中 a"))
    assert ids.values.tolist() == [5, 2, 5]


def test_the_unknown_token_written_twice_becomes_bytes():
    config = config_of(small_tokenizer("T5, XLM-R"))
    tokens = ["<unk>", "▁a", "▁", "a", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = [(token, -1.0) for token in tokens]
    config["model"] |= {"vocab": vocabulary, "unk_id": 0, "byte_fallback": True}
    tokenizer = _bare(config)
    assert different(backend_of(tokenizer), tokenizer, ["a<unk>", "a<unk><unk>a", "a中"]) == []


def test_a_word_without_a_token_fails_as_in_tokenizers():
    model = config_of(Tokenizer(models.WordPiece({"a": 0, "##b": 1}, unk_token="[UNK]")))["model"]
    tokenizer = _bare(config_of(small_tokenizer("BERT cased")) | {"model": model})
    assert different(backend_of(tokenizer), tokenizer, ["a ab abb"]) == []
    with pytest.raises(DataError):
        backend_of(tokenizer).encode(strings("a c"))


def test_models_with_other_options_are_asked():
    for name in ("BERT cased", "T5, XLM-R"):
        tokenizer = small_tokenizer(name)
        config = changed(config_of(tokenizer), "model", "dropout", value=0.1)
        backend = make_backend(config, tokenizer)
        assert not isinstance(backend, str) and backend.plan.model is None
    tokenizer = small_tokenizer("T5, XLM-R")
    backend = make_backend(changed(config_of(tokenizer), "model", "unk_id", value=None), tokenizer)
    assert not isinstance(backend, str) and backend.plan.model is None


@pytest.mark.parametrize("content", ["b", "a very long one"])
def test_a_letter_that_becomes_another_is_asked_for(content):
    config = config_of(small_tokenizer("T5, XLM-R"))
    config["normalizer"] = {"type": "Replace", "pattern": {"String": "a"}, "content": content}
    tokenizer = Tokenizer.from_buffer(data_of(config))
    assert different(backend_of(tokenizer), tokenizer, ["a hat, a bat"]) == []


@pytest.mark.parametrize("pattern", ["\n", "a\n", "\n\n", "\r\n", "\ta"])
def test_line_ends_that_are_replaced_end_no_word(pattern):
    config = config_of(small_tokenizer("T5, XLM-R"))
    replace = {"type": "Replace", "pattern": {"String": pattern}, "content": "bab"}
    config["normalizer"] = {"type": "Sequence", "normalizers": [replace, config["normalizer"]]}
    tokenizer = Tokenizer.from_buffer(data_of(config))
    texts = ["a\nb a\n\nb\r\na\tb\ta\r\n\r\nb\n \n\tb"]
    assert different(backend_of(tokenizer), tokenizer, texts) == []


@pytest.mark.parametrize("first", [{"type": "Lowercase"}, {"type": "NFKD"}])
def test_no_character_is_known_where_replaced_ones_may_be_made(first):
    tokenizer = small_tokenizer("ALBERT")
    config = config_of(tokenizer)
    config["normalizer"]["normalizers"].insert(0, first)
    tokenizer = Tokenizer.from_buffer(data_of(config))
    backend = backend_of(tokenizer)
    assert backend.plan.model is None
    assert different(backend, tokenizer, ["a `` b '' c"]) == []
