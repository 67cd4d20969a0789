"""Tokenizers of untrusted sources: what would hang, abort or mislead is refused, and why."""

import pytest
from tokenizers import Tokenizer, models

import textmill.schemas.tokenizers.tokenizer_json
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
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer, load_tokenizer
from textmill.schemas.errors import DataError
from textmill.schemas.tokenizers.tokenizer_json import (
    may_backtrack,
    read_tokenizer_json,
    resolve_ids,
    token_ids,
    try_tokenizer,
)
from textmill.trainers.models.set_tokenizer import open_tokenizer

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONFIG = config_of(trained_tokenizer())
_PIECES = config_of(Tokenizer(models.Unigram([("<unk>", 0.0), ("ing", -1.0)], unk_id=0)))
_WORDS = config_of(Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")))
_SIZE = len(_CONFIG["model"]["vocab"])
_DOUBLING = replace({"String": "a"}, "aa")


def _ids(tokenizer_json: bytes) -> dict[str, int]:
    return token_ids(read_tokenizer_json(tokenizer_json, "tokenizer.json"))


_LISTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}


def _sequence(part: str, *steps: dict, times: int = 1) -> dict:
    return changed(_CONFIG, part, value={"type": "Sequence", _LISTS[part]: [*steps] * times})


def _with_ids(**ids: float) -> dict:
    return changed(_CONFIG, "model", "vocab", value=_CONFIG["model"]["vocab"] | ids)


def _with_tokens(*contents: str) -> dict:
    tokens = [added(_SIZE + number, content) for number, content in enumerate(contents)]
    return changed(_CONFIG, "added_tokens", value=tokens)


def _with_template(*path: str | int, value: object) -> dict:
    """With `<s>` before the text, and a value at a place of it."""
    processor = changed(template([("<s>", 0)], []), *path, value=value)
    return changed(_CONFIG, "post_processor", value=processor)


_A = {"Sequence": {"id": "A", "type_id": 0}}
_LACKING = _with_template("single", 0, "SpecialToken", "id", value="<t>")
_EMPTY_CHUNKS = changed(_CONFIG, "pre_tokenizer", value={"type": "FixedLength", "length": 0})
_RENUMBERED = [added(900, "<x>"), added(901, "<y>")]  # from the vocabulary's size on
# A part, how often its steps are repeated, what one character becomes, and the steps.
GROWING: dict[str, tuple] = {
    "doubling": ("normalizer", 40, 256, _DOUBLING),
    "doubling by regex": ("normalizer", 8, 256, replace({"Regex": "a*"}, "b")),
    # U+FDFA becomes 18 characters, three of them spaces.
    "by decomposition": (
        "normalizer",
        2,
        324,
        replace({"String": " "}, "\ufdfa"),
        {"type": "NFKD"},
    ),
    "bytes of bytes": ("pre_tokenizer", 40, 256, dict(_CONFIG["pre_tokenizer"])),
    "bytes of bytes, normalized": ("normalizer", 12, 256, {"type": "ByteLevel"}),
    "doubling in decoding": ("decoder", 40, 256, _DOUBLING),
    "spaces between all": ("decoder", 40, 256, {"type": "BPEDecoder", "suffix": ""}),
}
REFUSED = {
    name: (
        _sequence(part, *steps, times=times),
        f"{grown} characters from one, after the steps of its {part}",
    )
    for name, (part, times, grown, *steps) in GROWING.items()
} | {
    "an id of a template": (
        _with_template("special_tokens", "<s>", "ids", value=[2_000_000_000]),
        "adds id 2000000000",
    ),
    "an id of RoBERTa's": (
        changed(_CONFIG, "post_processor", "cls", value=["<s>", 999]),
        "adds id 999 as '<s>'",
    ),
    "a text twice": (_with_template("single", value=[_A, _A]), "uses a text twice"),
    "a token type": (
        _with_template("pair", 0, "SpecialToken", "type_id", value=256),
        "256 for a type_id",
    ),
    "a long added token": (_with_tokens("x" * 1_000_000), "1,000,000 characters of an added token"),
    "much added text": (
        _with_tokens(*(f"{i:<4096}" for i in range(257))),
        "1,052,672 characters of all its added tokens",
    ),
    "many steps": (
        _sequence("normalizer", {"type": "NFC"}, times=300),
        "257 steps of its normalizer",
    ),
    "an id far away": (_with_ids(a=(1 << 24) - 2), "one of its ids is 16,777,214"),
    "a gap": (_with_ids(a=70_000), "ids without a token below its largest, 70,000"),
    "a negative id": (_with_ids(a=-1), "one of its ids is -1"),
    "an id for two": (_with_ids(unused=17), "'unused' have the same id, 17"),
    "an id for two, renumbered": (
        _with_ids(unused=_SIZE + 1) | {"added_tokens": _RENUMBERED},
        "have the same id, 449",
    ),
    "no whole number": (_with_ids(a=1.5), "the id of 'a' is 1.5, not an integer"),
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
    "a list for an object": (changed(_CONFIG, "normalizer", value=[_DOUBLING]), "not of type dict"),
    # A panic in `tokenizers`
    "a token that the template lacks": (_LACKING, "its post-processor failed: no entry found for"),
    "chunks of no length": (_EMPTY_CHUNKS, "the tokenizer failed on one of 4 documents"),
}


@pytest.mark.timeout(90)  # the worst took more than 90 s, or all memory
@pytest.mark.parametrize("name", REFUSED)
def test_what_would_hang_abort_or_mislead_is_refused(name):
    config, said = REFUSED[name]
    with pytest.raises(DataError, match=said) as raised:
        LoadedTokenizer(data_of(config))
    assert str(raised.value).isprintable() and len(str(raised.value)) < 700
    if config not in (_LACKING, _EMPTY_CHUNKS):  # they fail as text is encoded
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
    monkeypatch.setattr(
        textmill.schemas.tokenizers.tokenizer_json, "LimitedProcess", None
    )  # none starts a process
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
    try_tokenizer(_sequence("pre_tokenizer", *steps), "here")
    for pattern in ("(a|a)*b", "((((a?)*)*)*)*b", "(x+x+)+y", "["):
        with pytest.raises(DataError, match="^here: its pattern .* fails: "):
            try_tokenizer(_sequence("pre_tokenizer", *steps, split(pattern)), "here")


def test_added_tokens_are_measured_as_normalized():
    tokens = [added(_SIZE + i, f"{i:j<4000}", normalized=True) for i in range(9)]
    config = _CONFIG | {"added_tokens": tokens, "normalizer": replace({"String": "j"}, "k" * 60)}
    said = "2,160,000 characters of all its added tokens, as normalized"
    with pytest.raises(DataError, match=said):
        read_tokenizer_json(data_of(config), "tokenizer.json")
    config["added_tokens"] = tokens[:4]
    read_tokenizer_json(data_of(config), "tokenizer.json")
