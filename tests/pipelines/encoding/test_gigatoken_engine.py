"""gigatoken against the reference: shapes it takes, shapes it must not, and hard text."""

import json
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.stress.fuzz_encoding import different, draw_texts, small_tokenizer
from tests.tools.guards import different_points, ranges_of
from tests.tools.tokenizer_factory import changed, config_of, data_of, strings, trained_tokenizer
from tests.tools.tokenizer_families import FAMILIES
from textmill.pipelines.encoding import gigatoken_engine, reference
from textmill.pipelines.encoding.gigatoken_engine import (
    GUARDED,
    SCHEMES,
    Gigatoken,
    guarded_characters,
    why_not_gigatoken,
)
from textmill.pipelines.encoding.patterns import byte_characters
from textmill.pipelines.encoding.reference import GIGATOKEN, ReferenceBackend, encode_each
from textmill.pipelines.encoding.tokenizer_types import make_backend, make_plan
from textmill.pipelines.encoding.word_table import PieceBackend

# The families that it takes, by scheme.
TAKEN = {
    "GPT-2": "gpt2",
    "cl100k (Phi-4, OLMo 2)": "llama3",
    "Llama 3": "llama3",
    "Qwen 2": "qwen2",
    "Qwen 3.5": "qwen35",
    "o200k (gpt-oss)": "o200k",
    "DeepSeek V3": "deepseek",
    "ModernBERT": "gpt2",
    "a space first": "llama3",
}


def _guarded() -> list[int]:
    return np.flatnonzero(guarded_characters()).tolist()


def _config() -> dict:
    return config_of(trained_tokenizer())


def _backend(data: bytes) -> tuple[PieceBackend, Tokenizer]:
    tokenizer = Tokenizer.from_buffer(data)
    backend = make_backend(config_of(tokenizer), tokenizer)
    assert isinstance(backend, PieceBackend) and backend.name == GIGATOKEN
    return backend, tokenizer


def _different(data: bytes, texts: list[str]) -> list[str]:
    """Texts that gigatoken encodes otherwise."""
    return different(*_backend(data), texts)


def _why_not(config: dict) -> str | None:
    tokenizer = trained_tokenizer()
    return why_not_gigatoken(config, make_plan(config, tokenizer))


_VOCABULARY = _config()["model"]["vocab"]


def _hard_texts(number: int) -> list[str]:
    return list(islice(draw_texts(trained_tokenizer(), 0), number))


def test_the_families_it_takes():
    taken = {}
    for name in FAMILIES:
        plan = make_plan(config_of(small_tokenizer(name)), small_tokenizer(name))
        taken[name] = gigatoken_engine.scheme_of(plan.patterns)
    assert {name: scheme for name, scheme in taken.items() if scheme} == TAKEN
    assert {*TAKEN.values()} == {*SCHEMES}


_DIGITS = {"type": "Digits", "individual_digits": True}
_LAST = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True, "trim_offsets": True}


@pytest.mark.parametrize("add_prefix_space", [False, True])
@pytest.mark.parametrize("strips", [{}, {"lstrip": True}, {"rstrip": True, "lstrip": True}])
@pytest.mark.parametrize("normalized", [False, True])
def test_equal_on_hard_text_for_every_shape_it_takes(add_prefix_space, strips, normalized):
    config = changed(_config(), "pre_tokenizer", "add_prefix_space", value=add_prefix_space)
    for token in config["added_tokens"]:
        token |= strips | {"normalized": normalized}
    assert _different(data_of(config), _hard_texts(3000)) == []


@pytest.mark.parametrize("name", {scheme: name for name, scheme in TAKEN.items()}.values())
def test_equal_around_every_kind_of_code_point_and_in_very_long_words(name):
    code_points = {*range(0x700), *range(0, 0x110000, 61), *_guarded()[::7]}
    texts = [
        text
        for c in map(chr, sorted(code_points - set(range(0xD800, 0xE000))))
        for text in (c, f"a{c}b", f"1{c} {c}", f"'{c}'s{c}\n{c}", f" {c}\n", f"{c}<mask>{c}</s>")
    ]
    texts += [unit * (100_000 // len(unit)) for unit in ("a", "ab中", " ", "'s", "1", "\r\n")]
    assert _different(small_tokenizer(name).to_str().encode(), texts) == []


@given(st.data())
def test_equal_for_any_small_vocabulary(data):
    """Merges and ids in any order, unreachable tokens, tokens made twice, odd specials."""
    letters = data.draw(
        st.sampled_from(["ab", " ab1", "'sdmtlve ", "é中a ", " \n\t\u3000", "!?. a"])
    )
    characters = byte_characters()
    units = sorted({characters[byte] for byte in letters.encode()})
    tokens, merges = list(characters), []
    for _ in range(data.draw(st.integers(0, 60))):
        left = data.draw(st.sampled_from(units))
        right = data.draw(st.sampled_from(units))
        merges.append([left, right])
        if left + right not in tokens:
            tokens.append(left + right)
            units.append(left + right)
    spelt = st.lists(st.sampled_from(units), min_size=2, max_size=5).map("".join)
    unreachable = data.draw(st.lists(spelt, max_size=5))
    tokens += sorted(set(unreachable) - set(tokens))
    ids = data.draw(st.permutations(range(len(tokens))))
    visible = "".join(letters.split()) + "<>"
    specials = data.draw(st.sets(st.text(st.sampled_from(visible), min_size=1, max_size=4)))
    vocab = dict(zip(tokens, ids, strict=True))
    config = changed(_config(), "model", "vocab", value=vocab)
    config["model"] |= {"merges": merges, "ignore_merges": data.draw(st.booleans())}
    config["pre_tokenizer"]["add_prefix_space"] = data.draw(st.booleans())
    drawn_flags = ("lstrip", "rstrip", "special")
    config["added_tokens"] = [
        _added(content, **{flag: data.draw(st.booleans()) for flag in drawn_flags})
        | {"id": vocab.get(content, len(vocab) + number)}
        for number, content in enumerate(sorted(specials))
    ]
    config["post_processor"] = None
    canonical = Tokenizer.from_buffer(data_of(config)).to_str()
    if _why_not(json.loads(canonical)) is not None:
        return
    pieces = [*letters, *specials, " ", "x", *(letters[i % len(letters)] * i for i in (9, 64, 80))]
    texts = st.lists(st.lists(st.sampled_from(pieces)).map("".join), min_size=20, max_size=40)
    assert _different(canonical.encode(), [*data.draw(texts), "".join(pieces * 3)]) == []


def _added(content: str, **flags) -> dict:
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": 500, "content": content} | plain | flags


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("pre_tokenizer",), {"type": "Sequence", "pretokenizers": [_DIGITS, _LAST]}, "split"),
        # Written out, and in the byte alphabet, where Ġ is a space: both are the bytes of "a中".
        (("model", "vocab"), _VOCABULARY | {"a\u4e2d": 900, "a" + "ä¸Ń": 901}, "as bytes"),
        (
            ("model",),
            _config()["model"] | {"ignore_merges": True, "vocab": _VOCABULARY | {"a中": 900}},
            "as bytes",
        ),
    ],
)
def test_shapes_not_proven_equal_are_refused(path, value, reason):
    config = _config()
    assert _why_not(config) is None
    assert reason in str(_why_not(changed(config, *path, value=value)))


def test_small_batches_and_a_full_cache_change_nothing(monkeypatch):
    texts = [*_hard_texts(300), "a\U000323b0b"]
    monkeypatch.setattr(Gigatoken, "batch_bytes", 100)
    monkeypatch.setattr(reference, "_BATCH_BYTES", 100)
    backend, tokenizer = _backend(data_of(_config()))
    backend.encode(strings("a"))
    [encoder] = backend._encoders
    assert isinstance(encoder, Gigatoken)
    cache = encoder._backend
    backend.encode(strings("a"))
    assert encoder._backend is cache
    monkeypatch.setattr(gigatoken_engine, "_CACHE_BYTES", -(1 << 60))
    assert different(backend, tokenizer, texts) == []
    assert encoder._backend is not cache
    ragged = ReferenceBackend(tokenizer).encode(strings(*texts))
    assert ragged.values.tolist() == sum(encode_each(tokenizer, texts), [])


# ---- the characters that gigatoken treats differently ----


def test_guarded_characters_are_those_that_a_scheme_splits_otherwise():
    """In and around the guarded ranges, and each 211th code point. DeepSeek's scheme has most."""
    edges = {int(edge, 16) for part in GUARDED.split() for edge in part.split("-")}
    near = {point + step for point in edges for step in (-1, 0, 1)}
    tried = sorted((near | {*range(0x80, 0x110000, 211)}) - {*range(0xD800, 0xE000)})
    assert different_points("deepseek", tried) == sorted({*tried} & {*_guarded()})
    for scheme in {*SCHEMES} - {"deepseek"}:
        assert {*different_points(scheme, tried[::7])} <= {*_guarded()}


@pytest.mark.slow
def test_the_guarded_ranges_are_those_of_the_installed_libraries():
    assert ranges_of({point for s in SCHEMES for point in different_points(s)}) == GUARDED


def test_versions_that_were_not_compared_are_not_used(monkeypatch):
    assert _why_not(_config()) is None
    monkeypatch.setitem(gigatoken_engine.COMPARED, "tokenizers", "0.0.1")
    assert "other versions" in str(_why_not(_config()))


def test_text_of_another_kind_is_refused():
    backend, _ = _backend(data_of(_config()))
    with pytest.raises(TypeError, match="StringArray"):
        backend.encode(pa.array(["a"]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 nulls"):
        backend.encode(pa.array(["a", None], pa.large_string()))
