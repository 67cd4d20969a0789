"""Tokenizers of untrusted sources: what would hang, abort or mislead is refused, and why."""

import pytest
from tokenizers import Tokenizer, models

import schemas.tokenizer_json
from pipelines.encoding.tokenizer import LoadedTokenizer, load_tokenizer
from schemas.errors import DataError
from schemas.tokenizer_json import (
    may_backtrack,
    read_tokenizer_json,
    resolve_ids,
    token_ids,
    try_tokenizer,
)
from tests.tools.shard_factory import tokenizer_json
from tests.tools.tokenizer_factory import (
    TEXT,
    added,
    changed,
    config_of,
    data_of,
    replace,
    split,
    template,
    trained_tokenizer,
)
from tests.tools.tokenizer_families import FAMILIES, train_family
from trainers.models.set_tokenizer import open_tokenizer

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONFIG = config_of(trained_tokenizer())
_PIECES = config_of(Tokenizer(models.Unigram([("<unk>", 0.0), ("ing", -1.0)], unk_id=0)))
_WORDS = config_of(Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")))
_SIZE = len(_CONFIG["model"]["vocab"])
_DOUBLING = replace({"String": "a"}, "aa")
_BYTES = dict(_CONFIG["pre_tokenizer"])


def _ids(tokenizer_json: bytes) -> dict[str, int]:
    return token_ids(read_tokenizer_json(tokenizer_json, "tokenizer.json"))


def _sequence(part: str, steps: list[dict], name: str) -> dict:
    return changed(_CONFIG, part, value={"type": "Sequence", name: steps})


def _with_ids(ids: dict[str, float]) -> dict:
    return changed(_CONFIG, "model", "vocab", value=_CONFIG["model"]["vocab"] | ids)


def _with_token(content: str) -> dict:
    return changed(_CONFIG, "added_tokens", value=[added(_SIZE, content)])


_far = template([("<s>", 0)], [])
_far["special_tokens"]["<s>"]["ids"] = [2_000_000_000]
_twice = template([("<s>", 0)], [])
_twice["single"].append({"Sequence": {"id": "A", "type_id": 0}})
_typed = template([("<s>", 0)], [])
_typed["pair"][0]["SpecialToken"]["type_id"] = 256
_lacking = template([("<s>", 0)], [])
_lacking["single"][0]["SpecialToken"]["id"] = "<t>"
REFUSED = {
    "an id of a template": (changed(_CONFIG, "post_processor", value=_far), "adds id 2000000000"),
    "an id of RoBERTa's": (
        changed(_CONFIG, "post_processor", "cls", value=["<s>", 999]),
        "adds id 999 as '<s>'",
    ),
    "a text twice": (changed(_CONFIG, "post_processor", value=_twice), "uses a text twice"),
    "a token type": (changed(_CONFIG, "post_processor", value=_typed), "256 for a type_id"),
    "a long added token": (_with_token("x" * 1_000_000), "1,000,000 characters of an added token"),
    "much added text": (
        changed(
            _CONFIG, "added_tokens", value=[added(_SIZE + i, f"{i:<4096}") for i in range(257)]
        ),
        "1,052,672 characters of all its added tokens",
    ),
    "doubling": (
        _sequence("normalizer", [_DOUBLING] * 40, "normalizers"),
        "256 characters from one",
    ),
    "doubling by regex": (
        _sequence("normalizer", [replace({"Regex": "a*"}, "b")] * 8, "normalizers"),
        "256 characters from one, after the steps of its normalizer",
    ),
    "by decomposition": (  # U+FDFA becomes 18 characters, three of them spaces
        _sequence(
            "normalizer", [replace({"String": " "}, "\ufdfa"), {"type": "NFKD"}] * 2, "normalizers"
        ),
        "324 characters from one, after the steps of its normalizer",
    ),
    "bytes of bytes": (
        _sequence("pre_tokenizer", [_BYTES] * 40, "pretokenizers"),
        "256 characters from one, after the steps of its pre_tokenizer",
    ),
    "bytes of bytes, normalized": (
        _sequence("normalizer", [{"type": "ByteLevel"}] * 12, "normalizers"),
        "256 characters from one, after the steps of its normalizer",
    ),
    "doubling in decoding": (
        _sequence("decoder", [_DOUBLING] * 40, "decoders"),
        "256 characters from one, after the steps of its decoder",
    ),
    "spaces between all in decoding": (
        _sequence("decoder", [{"type": "BPEDecoder", "suffix": ""}] * 40, "decoders"),
        "256 characters from one, after the steps of its decoder",
    ),
    "many steps": (
        _sequence("normalizer", [{"type": "NFC"}] * 300, "normalizers"),
        "257 steps of its normalizer",
    ),
    "an id far away": (_with_ids({"a": (1 << 24) - 2}), "one of its ids is 16,777,214"),
    "a gap": (_with_ids({"a": 70_000}), "ids without a token below its largest, 70,000"),
    "a negative id": (_with_ids({"a": -1}), "one of its ids is -1"),
    "an id for two": (_with_ids({"unused": 17}), "'unused' have the same id, 17"),
    "an id for two, renumbered": (  # added tokens are numbered from the vocabulary's size on
        _with_ids({"unused": _SIZE + 1}) | {"added_tokens": [added(900, "<x>"), added(901, "<y>")]},
        "have the same id, 449",
    ),
    "no whole number": (_with_ids({"a": 1.5}), "the id of 'a' is 1.5, not an integer"),
    "a long suffix": (
        changed(_CONFIG, "model", "end_of_word_suffix", value="w" * 1_000_000),
        "1,000,000 characters of its end_of_word_suffix",
    ),
    "a long pattern": (
        changed(_CONFIG, "pre_tokenizer", value=split("a" * 9000)),
        "9,000 characters of Regex",
    ),
    "a runaway pattern": (
        changed(_CONFIG, "pre_tokenizer", value=split("(a+)+$")),
        r"its pattern '\(a\+\)\+\$' fails: Onig: Regex search error: retry-limit",
    ),
    "long words": (
        changed(_WORDS, "model", "max_input_chars_per_word", value=10**9),
        "1,000,000,000 for its max_input_chars_per_word",
    ),
    "a piece twice": (
        changed(_PIECES, "model", "vocab", 0, value=["ing", -1.0]),
        "its vocabulary has 'ing' twice",
    ),
    "a token that the template lacks": (  # a panic in `tokenizers`
        changed(_CONFIG, "post_processor", value=_lacking),
        "its post-processor failed: no entry found for key",
    ),
    "chunks of no length": (
        changed(_CONFIG, "pre_tokenizer", value={"type": "FixedLength", "length": 0}),
        "the tokenizer failed on one of 4 documents",
    ),
    "a list for an object": (changed(_CONFIG, "normalizer", value=[_DOUBLING]), "not of type dict"),
}


@pytest.mark.timeout(90)  # the worst took more than 90 s, or all memory
@pytest.mark.parametrize("name", REFUSED)
def test_what_would_hang_abort_or_mislead_is_refused(name):
    config, said = REFUSED[name]
    with pytest.raises(DataError, match=said) as raised:
        LoadedTokenizer(data_of(config))
    assert str(raised.value).isprintable() and len(str(raised.value)) < 700


@pytest.mark.parametrize(
    "name", ["a runaway pattern", "a long added token", "an id for two, renumbered"]
)
def test_trainers_refuse_them_too(name):
    config, said = REFUSED[name]
    with pytest.raises(DataError, match=said):
        open_tokenizer(data_of(config))


def test_trainers_read_ids_in_words():
    assert _ids(tokenizer_json(50))["w6"] == 6
    for broken in (b"{", b"[]", b'{"model": []}', b'{"model": {"vocab": 3}}', b"\xff"):
        with pytest.raises(DataError, match=r"tokenizer\.json .* a tokenizer"):
            _ids(broken)
    padded = train_family("BERT uncased", TEXT, 300)
    padded.enable_padding(length=16)
    padded.enable_truncation(8)
    assert len(open_tokenizer(padded.to_str().encode()).encode("a").ids) == 3


def test_a_decoder_that_fails():
    strip = {"type": "Strip", "content": "a", "start": 0, "stop": 3}
    loaded = LoadedTokenizer(data_of(changed(_CONFIG, "decoder", value=strip)))
    with pytest.raises(DataError, match="its decoder failed: index out of bounds"):
        loaded.decode([_CONFIG["model"]["vocab"]["a"]])


def test_sizes_of_files_come_first(tmp_path):
    sparse = tmp_path / "tokenizer.json"
    with sparse.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(DataError, match="3,221,225,472 bytes"):
        load_tokenizer(sparse)


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"cl100k (Phi-4, OLMo 2)"}))
def test_every_family_is_accepted_without_a_trial(family, monkeypatch):
    """Except cl100k, whose pattern may backtrack."""
    monkeypatch.setattr(schemas.tokenizer_json, "LimitedProcess", None)  # none starts a process
    config = config_of(train_family(family, TEXT, 400))
    loaded = LoadedTokenizer(data_of(config))
    assert resolve_ids(read_tokenizer_json(loaded.json, "it"), "it") == {**_ids(data_of(config))}
    try_tokenizer(config, family)


def test_growth_of_what_is_published():
    """ALBERT's steps: NFKD makes U+FDFA 18 characters, and Replace and Metaspace add to them."""
    config = config_of(train_family("ALBERT", TEXT, 400))
    assert LoadedTokenizer(data_of(config)).vocab_size == 91
    config["normalizer"]["normalizers"] *= 2
    with pytest.raises(DataError, match="characters from one, after the steps of its normalizer"):
        read_tokenizer_json(data_of(config), "tokenizer.json")


def test_which_patterns_are_tried():
    plain = [CL100K, " {2,}", r" ?[^(\s|[.,!?…。,、।۔،])]+", r"[!()*+{}\[\]]+", r"(?<=\d)(?=\p{L})"]
    assert not any(map(may_backtrack, plain))
    sound = [r"(?=(\d{3})+(?!\d))", r"(?:\p{L}\p{M}*)+", r"(?:\p{L}|\p{M})+", r"(.)\1"]
    assert all(map(may_backtrack, sound))
    steps = [split(pattern) for pattern in sound]
    try_tokenizer(_sequence("pre_tokenizer", steps, "pretokenizers"), "here")
    for pattern in ("(a|a)*b", "((((a?)*)*)*)*b", "(x+x+)+y", "["):
        with pytest.raises(DataError, match="^here: its pattern .* fails: "):
            broken = [*steps, split(pattern)]
            try_tokenizer(_sequence("pre_tokenizer", broken, "pretokenizers"), "here")


def test_added_tokens_are_measured_as_normalized():
    tokens = [added(_SIZE + i, f"{i:j<4000}", normalized=True) for i in range(9)]
    config = _CONFIG | {"added_tokens": tokens, "normalizer": replace({"String": "j"}, "k" * 60)}
    said = "2,160,000 characters of all its added tokens, as normalized"
    with pytest.raises(DataError, match=said):
        read_tokenizer_json(data_of(config), "tokenizer.json")
    config["added_tokens"] = tokens[:4]
    read_tokenizer_json(data_of(config), "tokenizer.json")
