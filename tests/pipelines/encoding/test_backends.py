"""The fast backend against the reference: shapes it takes, shapes it must not, and hard text."""

import json
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from gigatoken import pretokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, pre_tokenizers

from tests.stress.fuzz_encoding import different, draw_texts
from tests.tools.tokenizer_factory import changed, config_of, data_of, strings, trained_tokenizer
from textmill.pipelines.encoding import backends, reference
from textmill.pipelines.encoding.backends import FastBackend, disputed_characters, why_not_gigatoken
from textmill.pipelines.encoding.character_sets import property_set
from textmill.pipelines.encoding.patterns import byte_characters
from textmill.pipelines.encoding.reference import ReferenceBackend, encode_each
from textmill.schemas.errors import DataError


def _disputed() -> list[int]:
    return np.flatnonzero(disputed_characters()).tolist()


def _config() -> dict:
    return config_of(trained_tokenizer())


def _backend(data: bytes) -> tuple[FastBackend, Tokenizer]:
    """Both, of the canonical form, as `LoadedTokenizer` has it."""
    tokenizer = Tokenizer.from_buffer(data)
    canonical = tokenizer.to_str().encode()
    return FastBackend(canonical, ReferenceBackend(tokenizer)), tokenizer


def _different(data: bytes, texts: list[str]) -> list[str]:
    """Texts that the fast backend encodes otherwise."""
    return different(*_backend(data), texts)


_VOCABULARY = _config()["model"]["vocab"]


def _hard_texts(number: int) -> list[str]:
    return list(islice(draw_texts(trained_tokenizer(), 0), number))


@pytest.mark.parametrize("add_prefix_space", [False, True])
@pytest.mark.parametrize("strips", [{}, {"lstrip": True}, {"rstrip": True, "lstrip": True}])
@pytest.mark.parametrize("normalized", [False, True])
def test_equal_on_hard_text_for_every_shape_it_takes(add_prefix_space, strips, normalized):
    config = changed(_config(), "pre_tokenizer", "add_prefix_space", value=add_prefix_space)
    for token in config["added_tokens"]:
        token |= strips | {"normalized": normalized}
    assert why_not_gigatoken(config) is None
    assert _different(data_of(config), _hard_texts(3000)) == []


def test_equal_around_every_kind_of_code_point_and_in_very_long_words():
    code_points = {*range(0x700), *range(0, 0x110000, 61), *_disputed()[::7]}
    texts = [
        text
        for c in map(chr, sorted(code_points - set(range(0xD800, 0xE000))))
        for text in (c, f"a{c}b", f"1{c} {c}", f"'{c}'s{c}\n{c}", f" {c}\n", f"{c}<mask>{c}</s>")
    ]
    texts += [unit * (600_000 // len(unit)) for unit in ("a", "ab中", " ", "'s")]
    assert _different(data_of(_config()), texts) == []


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
    if why_not_gigatoken(json.loads(canonical)) is not None:
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
        (("model", "type"), "WordPiece", "WordPiece"),
        (("model", "dropout"), 0.1, "dropout"),
        (("model", "byte_fallback"), True, "byte_fallback"),
        (("model", "continuing_subword_prefix"), "##", "continuing_subword_prefix"),
        (("model", "end_of_word_suffix"), "</w>", "end_of_word_suffix"),
        (("normalizer",), {"type": "NFC"}, "normalizer"),
        (("pre_tokenizer",), None, "GPT-2"),
        (("pre_tokenizer",), {"type": "Whitespace"}, "GPT-2"),
        (("pre_tokenizer", "use_regex"), False, "GPT-2"),
        (("added_tokens", 0), _added("<s>", single_word=True), "single word"),
        (("added_tokens", 0), _added("a b"), "white space"),
        (("added_tokens", 0), _added("<<", normalized=True), "normalized"),
        (("model", "vocab"), {"a": 0}, "single bytes"),
        # Written out, and in the byte alphabet, where Ġ is a space: both are the bytes of "a中".
        (("model", "vocab"), _VOCABULARY | {"a\u4e2d": 900, "a" + "ä¸Ń": 901}, "twice"),
        (("model", "vocab", "unused"), 17, "twice"),
    ],
)
def test_shapes_not_proven_equal_are_refused(path, value, reason):
    config = _config()
    assert why_not_gigatoken(config) is None
    assert reason in str(why_not_gigatoken(changed(config, *path, value=value)))


def test_small_batches_and_a_full_cache_change_nothing(monkeypatch):
    texts = [*_hard_texts(300), "a\U000323b0b"]
    monkeypatch.setattr(backends, "_FAST_BATCH_BYTES", 100)
    monkeypatch.setattr(reference, "_BATCH_BYTES", 100)
    fast, tokenizer = _backend(data_of(_config()))
    cache = fast._backend
    fast.encode(strings("a"))
    assert fast._backend is cache
    monkeypatch.setattr(backends, "_FAST_CACHE_BYTES", -(1 << 60))
    assert different(fast, tokenizer, texts) == []
    assert fast._backend is not cache
    ragged = ReferenceBackend(tokenizer).encode(strings(*texts))
    assert ragged.values.tolist() == sum(encode_each(tokenizer, texts), [])


def test_a_runaway_pattern_ends_in_an_error():
    tokenizer = trained_tokenizer()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    with pytest.raises(DataError, match="pattern"):
        ReferenceBackend(tokenizer).encode(pa.array(["a" * 40 + "!"], pa.large_string()))


# ---- the characters that gigatoken classes differently ----


def test_the_stored_characters_are_those_that_the_installed_libraries_class_differently():
    """By where gigatoken splits `a?1?!?`: ? is the character, which joins what is of its class."""
    points = np.setdiff1d(np.arange(0x110000, dtype="<u4"), np.arange(0xD800, 0xE000))
    probes = np.tile(np.frombuffer("a?1?!?\n".encode("utf-32-le"), "<u4"), (len(points), 1))
    probes[:, [1, 3, 5]] = points[:, None]
    text = np.frombuffer(probes.tobytes().decode("utf-32-le").encode(), np.uint8)
    starts = np.zeros(len(text) + 1, bool)
    starts[np.cumsum([len(piece) for piece in pretokenizer(text.tobytes())])] = True
    begins = starts[:-1][(text & 0xC0) != 0x80].reshape(len(points), 7)
    by_gigatoken = np.select([*~begins[:, [1, 3, 5]].T], [0, 1, 3], 2)
    by_reference = np.select(
        [property_set(atom) for atom in (r"\p{L}", r"\p{N}", r"\s")], [0, 1, 2], 3
    )
    differ = points[by_reference[points] != by_gigatoken]
    assert len(differ) == 4657 and differ.min() > 0x7F
    assert differ.tolist() == _disputed()


def test_versions_that_were_not_compared_are_not_used(monkeypatch):
    assert why_not_gigatoken(_config()) is None
    monkeypatch.setitem(backends.COMPARED, "tokenizers", "0.0.1")
    assert "other versions" in str(why_not_gigatoken(_config()))


def test_text_of_another_kind_is_refused():
    fast, _ = _backend(data_of(_config()))
    with pytest.raises(TypeError, match="StringArray"):
        fast.encode(pa.array(["a"]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 nulls"):
        fast.encode(pa.array(["a", None], pa.large_string()))
