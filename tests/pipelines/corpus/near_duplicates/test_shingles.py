import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.filter_factory import column
from tests.tools.near_duplicates import plain_set, plain_similarity
from textmill.pipelines.corpus.near_duplicates import shingles
from textmill.pipelines.corpus.near_duplicates.flags import Bands, Jaccard, Shingle
from textmill.pipelines.corpus.near_duplicates.shingles import shingle_sets, verify
from textmill.pipelines.rows.ragged import Ragged
from textmill.schemas.errors import FieldError, UsageError

# Few words, so that shingles repeat within a document and between two.
WORDS = st.sampled_from(["a", "B", "é", "𐐀", "c.", "--", "\u0301", "你好"])
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=8)
SHINGLES = st.sampled_from(["word:1", "word:2", "word:5", "char:1", "char:3", "char:24"])


@given(TEXTS, SHINGLES, st.sampled_from([1, 2, 5, 8, 10]), st.sampled_from([20, shingles.AT_ONCE]))
def test_sets_are_as_alike_as_sets_of_tuples(texts, shingle, tenths, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shingles, "AT_ONCE", at_once)
        sets = shingle_sets(column(texts), Shingle.parse(shingle))
    assert sets.lengths.tolist() == [len(plain_set(text, shingle)) for text in texts]
    for start, stop in zip(sets.offsets, sets.offsets[1:], strict=False):
        own = sets.values[start:stop]
        assert (own[:-1] < own[1:]).all()
    for part in sets:
        part.setflags(write=False)  # as those of Arrow are
    firsts, seconds = np.divmod(np.arange(len(texts) ** 2), max(len(texts), 1))
    threshold = Fraction(tenths, 10)
    verified = verify(sets, firsts, sets, seconds, threshold)
    due = [plain_similarity(one, other, shingle) for one in texts for other in texts]
    near = [similarity >= threshold for similarity in due]
    assert (verified > 0).tolist() == near
    assert verified.tolist() == [
        float(similarity) if is_near else 0 for similarity, is_near in zip(due, near, strict=True)
    ]


def test_a_long_document_has_its_smallest_hashes(monkeypatch):
    text = " ".join(f"w{number}" for number in range(500))
    whole = shingle_sets(column([text]), Shingle("word", 5)).values
    monkeypatch.setattr(shingles, "LARGEST_SET", 100)
    values, offsets = shingle_sets(column([text, text]), Shingle("word", 5))
    assert offsets.tolist() == [0, 100, 200]
    np.testing.assert_array_equal(values, [*whole[:100], *whole[:100]])


def test_parts_of_long_documents_are_compared_as_far_as_both_reach(monkeypatch):
    """By hand: [1 2 3 4] and [2 3 4 5] of more than four, [2 3 9] whole; 9 is not compared."""
    monkeypatch.setattr(shingles, "LARGEST_SET", 4)
    sets = Ragged.of(np.array([1, 2, 3, 4, 2, 3, 9, 2, 3, 4, 5], np.uint64), [4, 3, 4])
    pairs = np.array([0, 1, 0, 1, 2]), sets, np.array([1, 0, 2, 2, 1])
    assert verify(sets, *pairs, Fraction(1, 2)).tolist() == [0.5, 0.5, 0.75, 0.5, 0.5]
    assert verify(sets, *pairs, Fraction(3, 4)).tolist() == [0, 0, 0.75, 0, 0]


def test_a_sample_of_long_documents_tells_their_similarity():
    """50,000 shingles that are all in a set of 100,000: 0.5, from 65,536 hashes."""
    generator = np.random.default_rng(1)
    large = np.unique(generator.integers(0, 2**64, 100_000, np.uint64))
    small = np.sort(generator.choice(large, 50_000, replace=False))
    sets = Ragged.of(np.concatenate([large[:65_536], small]), [65_536, len(small)])
    found = verify(sets, np.array([0]), sets, np.array([1]), Fraction(2, 5))[0]
    assert found == pytest.approx(0.5, abs=0.006)
    assert found != 0.5


def test_the_threshold_is_not_rounded():
    """7/10 is at 0.7, and 6999/10000 below; as floats, some products of 0.7 are not exact."""
    values = np.concatenate([np.arange(10_000), np.arange(7_000), np.arange(6_999)])
    sets = Ragged.of(values.astype(np.uint64), [10_000, 7_000, 6_999])
    firsts, seconds = np.array([0, 0]), np.array([1, 2])
    verified = verify(sets, firsts, sets, seconds, Jaccard(0.7).fraction)
    assert (verified > 0).tolist() == [True, False]


REFUSED = {
    "{}: give word:5": (
        Shingle.parse,
        ["word", "word:0", "word:1000", "char:-1", "line:5", "word:5 "],
    ),
    "give jaccard:S": (
        Jaccard.parse,
        ["0.8", "jaccard:0", "jaccard:0.0", "jaccard:1.1", "jaccard:.8"],
    ),
    "give bands x hashes per band": (
        Bands.parse,
        ["14", "14x", "0x8", "14*8", "257x1", "64x64", "-1x8"],
    ),
}
CASES = [(said, parse, flag) for said, (parse, flags) in REFUSED.items() for flag in flags]


@pytest.mark.parametrize(("said", "parse", "flag"), CASES)
def test_texts_that_are_refused(said, parse, flag):
    with pytest.raises(UsageError, match=re.escape(said.format(flag))):
        parse(flag)


@pytest.mark.parametrize(
    "kind, values",
    [
        (Jaccard, [(0.8,), (1,), (0.0001,)]),
        (Shingle, [("word", 5), ("char", 999)]),
        (Bands, [(14, 8), (256, 4)]),
    ],
)
def test_values_have_texts_and_refuse_impossible_numbers(kind, values):
    assert [kind.parse(str(kind(*value))) for value in values] == [kind(*v) for v in values]
    wrongs: Any = ((-1,), (0.12345,), ("0.8",)) if kind is Jaccard else (("word", 0), (0, 8))
    for wrong in wrongs:
        with pytest.raises(FieldError, match="give"):
            kind(*wrong)
