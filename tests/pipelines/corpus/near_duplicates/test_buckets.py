import time
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.filter_factory import column
from textmill.pipelines.corpus.near_duplicates import buckets
from textmill.pipelines.corpus.near_duplicates.buckets import (
    ROOM,
    band_keys,
    find_pairs,
    has_shingles,
    signatures,
    sketches,
)
from textmill.pipelines.corpus.near_duplicates.flags import (
    Bands,
    Jaccard,
    NearDuplicateRule,
    NearFlags,
    Shingle,
)
from textmill.pipelines.corpus.near_duplicates.rows import MEMBER
from textmill.pipelines.corpus.near_duplicates.shingles import shingle_hashes
from textmill.pipelines.rows.text_bytes import utf8_bytes
from textmill.schemas.errors import UsageError

BANDS = Bands(14, 8)
THRESHOLD = Fraction(4, 5)


def members(keys, documents, *, lengths=None, signature=None):
    """One a key; a document is a number, its place too."""
    rows = np.zeros(len(documents), MEMBER)
    rows["key"] = np.asarray(keys, np.uint64) << np.uint64(8)
    rows["place"] = documents
    rows["length"] = 10 if lengths is None else lengths
    none = np.zeros((len(rows), 112), np.uint32)
    rows["sketch"] = sketches(none if signature is None else signature)
    return rows


def find(given):
    """PAIR rows, and how many members are uncompared."""
    parts = list(find_pairs(given, BANDS, THRESHOLD))
    return np.concatenate([pairs for pairs, _ in parts]), sum(number for _, number in parts)


def pairs_of(given):
    """[(higher, lower)]."""
    pairs, _ = find(given)
    return sorted(zip(pairs["higher"].tolist(), pairs["lower"].tolist(), strict=True))


MEMBERS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=30, unique=True
)  # bucket, document


@given(MEMBERS, st.sampled_from([ROOM, 1 << 18]), st.randoms())
def test_small_buckets_give_all_pairs_by_rank(rows, at_once, random):
    lengths = [7, 7, 9, 9, 1, 2, 3, 9, 7, 1]
    rank = sorted(range(10), key=lambda i: (-lengths[i], i))

    def make(some):
        keys, documents = zip(*some, strict=True) if some else ((), ())
        return members(keys, documents, lengths=[lengths[i] for i in documents])

    due = sorted(
        (one, other)
        for key, one in rows
        for same, other in rows
        if key == same and rank.index(one) < rank.index(other)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "_PAIRS_AT_ONCE", at_once)
        assert pairs_of(make(rows)) == due
        random.shuffle(rows)
        assert pairs_of(make(rows)) == due


def test_what_is_surely_unlike_makes_no_pair():
    """At 0.8, of 112 hashes 16.8 are due to differ in two bits; 28.1 are three deviations more."""
    generator = np.random.default_rng(2)
    signature = generator.integers(0, 2**32, (1, 112), np.uint32).repeat(3, axis=0)
    far, near = signature.copy(), signature.copy()
    far[:, :29] ^= np.uint32(1 << 31)  # an odd factor keeps the highest bit's change
    near[:, :28] ^= np.uint32(1 << 31)
    rows = np.stack([signature[0], near[0], far[0]])
    assert pairs_of(members([1, 1, 1], [0, 1, 2], signature=rows)) == [(0, 1), (1, 2)]


def hot(count, alike, seed=0):
    """A bucket of documents whose hashes are equal to a common signature's with a probability."""
    generator = np.random.default_rng(seed)
    common = generator.integers(0, 2**32, 112, np.uint32)
    own = generator.integers(0, 2**32, (count, 112), np.uint32)
    signature = np.where(generator.random((count, 112)) < alike, common, own)
    return members(np.full(count, 7), np.arange(count), signature=signature)


def seconds_of(given):
    """Time of the processor that the pairs of members take."""
    began = time.process_time()
    find(given)
    return time.process_time() - began


def test_a_hot_bucket_of_near_duplicates_takes_linear_time_and_memory():
    """Each member is compared with anchors; a square would take 16 times as long here."""
    find(hot(100, 0.95))  # compiles
    took, most = [], []
    for count in (50_000, 200_000):
        given = hot(count, 0.95)
        found, uncompared = find(given)
        assert len(np.unique(found["lower"])) == count - 1
        assert uncompared == 0
        assert buckets.ENOUGH * (count - 10) < len(found) <= buckets.NEAREST * count
        took.append(min(seconds_of(given) for _ in range(3)))
        tracemalloc.start()
        find(given)
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] < min(5 * most[0], 200_000 * 600)
    assert took[1] < 10 * took[0]


def test_a_hot_bucket_of_unlike_documents():
    """20,000 that only share a band: few can be compared, and those without room are counted."""
    found, uncompared = find(hot(20_000, 0.8))
    assert uncompared > 1_000
    np.testing.assert_array_equal(found, find(hot(20_000, 0.8))[0])


def test_tombstones_meet_those_who_agree_in_more():
    """In a bucket of 3,000 unlike documents two equal ones, of the lowest rank, meet all the same.

    64 anchors make no room for them; eight hashes further they are among themselves.
    """
    given = hot(3_000, 0.0)
    given["sketch"][2_998] = given["sketch"][2_999]
    assert (2_998, 2_999) in pairs_of(given)


@pytest.mark.parametrize("count", [ROOM, ROOM + 1, 300])
def test_order_of_members_does_not_matter(count):
    given = hot(count, 0.8)
    due, order = pairs_of(given), np.random.default_rng(1).permutation(count)
    assert pairs_of(given[order]) == due
    assert find(given[order])[1] == find(given)[1]


def test_members_of_a_large_bucket_pair_with_the_nearest_anchors(monkeypatch):
    monkeypatch.setattr(buckets, "DEPTH", 0)
    given = hot(500, 0.8)
    found, _ = find(given)
    assert np.bincount(found["lower"]).max() == buckets.NEAREST
    # Sketches as bits: 2 of each hash.
    bits = np.unpackbits(np.ascontiguousarray(given["sketch"]).view(np.uint8), axis=1).reshape(
        500, -1, 2
    )
    last = found["higher"][found["lower"] == 499]
    differ = (bits[last] != bits[499]).any(axis=2).sum(axis=1)
    every = (bits[:499] != bits[499]).any(axis=2).sum(axis=1)
    assert (np.diff(differ) >= 0).all()
    assert differ[0] <= np.sort(every)[40]


TEXTS = st.lists(st.text(st.sampled_from("ab é.!\u0301"), max_size=40), max_size=6)
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


@given(TEXTS, SHINGLES, st.sampled_from([20, buckets.AT_ONCE]))
def test_signatures_are_the_minima(texts, shingle, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "AT_ONCE", at_once)
        found = signatures(column(texts), shingle, SMALL)
    np.testing.assert_array_equal(found, plain_signatures(texts, shingle, SMALL.hashes))
    assert has_shingles(found).tolist() == [any(map(str.isalnum, text)) for text in texts]


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


def test_flags_of_near_duplicates():
    flags = NearFlags(Jaccard(0.75), bands=Bands(20, 13))
    assert flags.rule == NearDuplicateRule(Fraction(3, 4), Shingle("word", 5), Bands(20, 13))
    assert flags.parameters() == {
        "near_duplicates": "jaccard:0.75",
        "shingle": "word:5",
        "bands": "20x13",
    }
    rule = flags.rule
    assert rule and "0.9: 99.7 %" in rule.facts()["pairs found"]
    exact = NearFlags(Jaccard(1.0)).rule
    assert exact and exact.threshold == 1
    assert NearFlags().rule is None and NearFlags().parameters() == {}
    with pytest.raises(UsageError, match="--bands=16x7: it needs near_duplicates, such as"):
        NearFlags(bands=Bands(16, 7))
    with pytest.raises(UsageError, match="--near_duplicates=: give jaccard:S"):
        NearFlags("")  # pyright: ignore
