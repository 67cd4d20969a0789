from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus.near_duplicates import buckets
from pipelines.corpus.near_duplicates.buckets import band_keys, has_shingles, signatures, sketches
from pipelines.corpus.near_duplicates.flags import Bands, NearFlags, Rule, Shingle, s_curve
from pipelines.corpus.near_duplicates.shingles import shingle_hashes
from pipelines.rows.text_bytes import utf8_bytes
from schemas.errors import UsageError
from tests.tools.filter_factory import column

TEXTS = st.lists(st.text(st.sampled_from("ab é.!"), max_size=40), max_size=6)
SHINGLES = st.sampled_from(["word:1", "word:3", "char:5"]).map(Shingle.parse)
SMALL = Bands(3, 5)


def plain_signatures(texts, shingle, hashes):
    """All values of all hash functions, one document at a time."""
    factors, addends = buckets._functions(hashes)
    found = np.full((len(texts), hashes), 2**32 - 1, np.uint32)
    for number, text in enumerate(texts):
        runs = shingle_hashes(*utf8_bytes(column([text])), shingle).values >> np.uint64(32)
        values = runs[:, None] * factors.astype(np.uint64) + addends.astype(np.uint64)
        found[number] = (values % 2**32).min(axis=0, initial=2**32 - 1)
    return found


@given(TEXTS, SHINGLES)
def test_signatures_are_the_minima(texts, shingle):
    np.testing.assert_array_equal(
        signatures(column(texts), shingle, SMALL), plain_signatures(texts, shingle, SMALL.hashes)
    )


def test_slices_do_not_show(monkeypatch):
    texts = column([f"a b {number} c d e f g" for number in range(50)] + ["", "a"])
    whole = signatures(texts, Shingle("word", 3), SMALL)
    monkeypatch.setattr(buckets, "AT_ONCE", 40)
    np.testing.assert_array_equal(signatures(texts, Shingle("word", 3), SMALL), whole)


def test_documents_without_a_word_have_no_shingles():
    texts = column(["", " ?!\n", "\u0301", "a", "1"])
    signature = signatures(texts, Shingle("word", 5), Bands(14, 8))
    assert has_shingles(signature).tolist() == [False, False, False, True, True]


def test_hash_functions_of_fewer_are_the_first_of_more():
    for few, more in zip(buckets._functions(112), buckets._functions(286), strict=True):
        np.testing.assert_array_equal(few, more[:112])
        assert len(set(more.tolist())) == 286
    assert (buckets._functions(286)[0] % 2 == 1).all()


def test_minima_are_equal_as_often_as_shingles():
    """400 pairs of 300 shingles at a similarity of 0.6: 44,800 hashes, standard deviation 0.0023.

    The share that a document's 112 hashes find spreads as 112 independent ones would, by 0.0463.
    """
    generator = np.random.default_rng(3)
    pairs = generator.integers(0, 2**63, (400, 375))
    one, other = pairs[:, :300], np.hstack([pairs[:, :225], pairs[:, 300:]])  # 225 of 375
    texts = [" ".join(map(str, row)) for row in np.concatenate([one, other])]
    found = signatures(column(texts), Shingle("word", 1), Bands(14, 8))
    shares = (found[:400] == found[400:]).mean(axis=1)
    assert shares.mean() == pytest.approx(0.6, abs=0.01)
    assert shares.std() == pytest.approx(0.0463, rel=0.15)


@given(st.integers(0, 2**32), st.sampled_from([Bands(14, 8), Bands(20, 13), Bands(3, 1)]))
def test_keys_are_equal_where_a_whole_band_is(seed, bands):
    generator = np.random.default_rng(seed)
    one = generator.integers(0, 2**32, (1, bands.hashes), np.uint32)
    other = one.copy()
    changed = generator.integers(0, bands.hashes, 3)
    other[0, changed] += 1
    keys = band_keys(np.concatenate([one, other]), bands)
    differs = np.isin(np.arange(bands.bands), changed // bands.rows)
    np.testing.assert_array_equal(keys[0] != keys[1], differs)
    np.testing.assert_array_equal(keys & np.uint64(0xFF), [np.arange(bands.bands)] * 2)
    assert len(np.unique(keys[0])) == bands.bands


@pytest.mark.parametrize("hashes", [1, 31, 112, 128, 260])
def test_sketches_hold_two_bits_of_each_hash(hashes):
    generator = np.random.default_rng(hashes)
    signature = generator.integers(0, 2**32, (5, hashes), np.uint32)
    found = sketches(signature)
    assert found.shape == (5, 4)
    for number, values in enumerate(signature.tolist()):
        bits = sum((value * 0x9E3779B1 % 2**32 >> 30) << 2 * i for i, value in enumerate(values))
        bits %= 2**256
        assert [bits >> 64 * word & (2**64 - 1) for word in range(4)] == found[number].tolist()


def test_s_curve_by_hand():
    curve = s_curve(Bands(14, 8), np.array([0.0, 0.5, 0.8, 1.0]))
    assert curve.round(4).tolist() == [0.0, 0.0533, 0.9235, 1.0]
    assert s_curve(Bands(2, 1), np.array([0.5])).tolist() == [0.75]


@pytest.mark.parametrize("flag", ["14", "14x", "0x8", "14*8", "257x1", "64x64", "-1x8"])
def test_flags_that_are_no_bands(flag):
    with pytest.raises(UsageError, match="give bands x hashes per band"):
        Bands.parse(flag)


def test_bands():
    assert Bands.parse("26x11") == Bands(26, 11)
    assert Bands.parse("26x11").hashes == 286


def test_flags_of_near_duplicates():
    flags = NearFlags("jaccard:0.75", bands="20x13")
    assert flags.rule() == Rule(Fraction(3, 4), Shingle("word", 5), Bands(20, 13))
    assert flags.parameters() == {
        "near_duplicates": "jaccard:0.75",
        "shingle": "word:5",
        "bands": "20x13",
    }
    rule = flags.rule()
    assert rule and "0.9: 99.7 %" in rule.facts()["pairs found"]
    assert NearFlags().rule() is None and NearFlags().parameters() == {}
    with pytest.raises(UsageError, match="--bands=16x7 needs --near_duplicates, such as"):
        NearFlags(bands="16x7")
    with pytest.raises(UsageError, match="--near_duplicates= is not a threshold"):
        NearFlags("")
