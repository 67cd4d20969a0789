"""Sets of shingles (runs of words or characters) of documents, and their similarity. Pure.

The similarity of two documents is Jaccard's: the share of shingles in both sets among those in
either. The frequency of a shingle does not count. A document shorter than a shingle is one shingle;
a document without words has none, and is similar to none.

Legend: U units (words or characters), D documents, S shingles, P pairs.
"""

from fractions import Fraction

import numpy as np
import pyarrow as pa
from numba import types

from textmill.pipelines.corpus.near_duplicates.flags import Shingle
from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.rows.text_bytes import slices, utf8_bytes
from textmill.pipelines.rows.word_hashes import hash_some_characters, hash_some_words
from textmill.pipelines.runtime.compiled import entry

LARGEST_SET = 1 << 16  # a larger set is sampled: its smallest hashes, 512 KB
AT_ONCE = 1 << 18  # bytes of text hashed together, so that the shingles fit the CPU's cache


def shingle_sets(text: pa.LargeStringArray, shingle: Shingle) -> Ragged:
    """Hashes of the shingles of each document.

    Returns:
      uint64 values, sorted and distinct within a document, at most LARGEST_SET of each; int64
      [n + 1] offsets.
    """
    parts = [Ragged(np.zeros(0, np.uint64), np.zeros(1, np.int64))]
    for some in slices(text, AT_ONCE):
        runs = shingle_hashes(*utf8_bytes(some), shingle)
        lengths = np.empty(len(some), np.int64)
        used = sort_distinct(runs.values, runs.offsets, LARGEST_SET, lengths)
        parts.append(Ragged.of(runs.values[:used].copy(), lengths))
    return Ragged.joined(parts)


def shingle_hashes(data: np.ndarray, bounds: np.ndarray, shingle: Shingle) -> Ragged:
    """Hashes of all shingles, in order.

    Args:
      data: uint8 [bytes], as from `utf8_bytes`.
      bounds: int64 [n + 1], where documents begin in `data`.
      shingle: unit and size of shingles.

    Returns:
      uint64 values; int64 [n + 1] offsets.
    """
    if shingle.unit == "word":
        units, offsets, _, _ = hash_some_words(data, bounds)
    else:
        units, offsets = hash_some_characters(data, bounds)
    lengths = np.diff(offsets)
    runs = Ragged.of(units, np.where(lengths > 0, np.maximum(lengths - shingle.size + 1, 1), 0))
    values = np.empty(runs.offsets[-1], np.uint64)
    hash_runs(units, offsets, shingle.size, values, runs.offsets)
    return Ragged(values, runs.offsets)


def verify(
    sets: Ragged, firsts: np.ndarray, others: Ragged, seconds: np.ndarray, threshold: Fraction
) -> np.ndarray:
    """float64 [p]: similarities of pairs of sets; 0 if the exact one is below the threshold.

    A set with LARGEST_SET hashes is a sample of a larger one; two sets are then compared up to the
    last hash of the sample. The similarity of these 65,536 hashes or more differs from the exact
    one by 0.002 (one standard deviation, at 0.8).

    Args:
      sets: sets from `shingle_sets`.
      firsts: int64 [p], the number in `sets` of each pair.
      others: sets from `shingle_sets`.
      seconds: int64 [p], the number in `others` of each pair.
      threshold: minimum similarity of near-duplicates.
    """
    common, union = np.empty((2, len(firsts)), np.int64)
    pairs = np.ascontiguousarray(firsts), np.ascontiguousarray(seconds)
    ratio = threshold.numerator, threshold.denominator
    count_common((*sets,), (*others,), *pairs, LARGEST_SET, ratio, common, union)
    is_near = (common * ratio[1] >= union * ratio[0]) & (union > 0)
    return np.where(is_near, common / np.maximum(union, 1), 0)


# ---- compiled ----

_BASE = np.uint64(0x8CB92BA72F3D8DD7)
_MIX = np.uint64(0xC2B2AE3D27D4EB4F)
_32 = np.uint64(32)
_29 = np.uint64(29)
_HASHES = types.Array(types.uint64, 1, "C", readonly=True)
_INTS = types.Array(types.int64, 1, "C", readonly=True)


@entry(types.void(_HASHES, _INTS, types.int64, types.uint64[::1], _INTS))
def hash_runs(units, offsets, size, values, value_offsets):
    """Hashes each run of units by a rolling polynomial, which is mixed in the end.

    Args:
      units: uint64[U], hashes of units.
      offsets: int64[D + 1], where the units of each document begin.
      size: number of units in a run.
      values: uint64[S], out: hashes of runs; a shorter document is one run.
      value_offsets: int64[D + 1], where the runs of each document begin.
    """
    leaves = np.uint64(1)
    for _ in range(size):
        leaves *= _BASE
    for document in range(offsets.size - 1):
        start, stop = offsets[document], offsets[document + 1]
        out, mixed = value_offsets[document], np.uint64(0)
        first = min(start + size, stop)
        for place in range(start, first):
            mixed = mixed * _BASE + units[place]
        if stop > start:
            last = (mixed ^ mixed >> _29) * _MIX
            values[out] = last ^ last >> _32
        for place in range(first, stop):  # unsigned indices need no test for being negative
            next_unit, leaving = units[np.uint64(place)], units[np.uint64(place - size)]
            mixed = mixed * _BASE + (next_unit - leaving * leaves)
            last = (mixed ^ mixed >> _29) * _MIX
            values[np.uint64(out + 1 + place - first)] = last ^ last >> _32


@entry(types.int64(types.uint64[::1], _INTS, types.int64, types.int64[::1]))
def sort_distinct(values, offsets, most, lengths):
    """Sorts each document's values, and compacts the distinct ones at the front of the array.

    Args:
      values: uint64[S], changed in place.
      offsets: int64[D + 1], where the values of each document begin.
      most: maximum number of values kept for a document, the smallest.
      lengths: int64[D], out: number of values kept for each document.

    Returns:
      Number of values kept in total.
    """
    used = 0
    for document in range(offsets.size - 1):
        start, stop, begin = offsets[document], offsets[document + 1], used
        values[start:stop].sort()
        for place in range(start, stop):
            if used - begin == most:
                break
            if place == start or values[place] != values[used - 1]:
                values[used] = values[place]
                used += 1
        lengths[document] = used - begin
    return used


_SETS, _OUT = types.Tuple((_HASHES, _INTS)), types.int64[::1]
_RATIO = types.UniTuple(types.int64, 2)


@entry(types.void(_SETS, _SETS, _INTS, _INTS, types.int64, _RATIO, _OUT, _OUT))
def count_common(sets, others, firsts, seconds, largest, ratio, common, union):
    """Merges the sets of each pair, and stops when the pair cannot reach the threshold.

    Args:
      sets: uint64[S], sorted and distinct within a document, and int64[D + 1] offsets.
      others: sets of other documents, like `sets`.
      firsts: int64[P], documents of `sets`.
      seconds: int64[P], documents of `others`.
      largest: size of a set that is a sample of a larger one.
      ratio: numerator and denominator of the threshold.
      common: int64[P], out: number of shingles in both; 0 if the merge stopped early.
      union: int64[P], out: number of shingles in either.
    """
    (values, offsets), (other_values, other_offsets) = sets, others
    for pair in range(firsts.size):
        i, i_stop = offsets[firsts[pair]], offsets[firsts[pair] + 1]
        j, j_stop = other_offsets[seconds[pair]], other_offsets[seconds[pair] + 1]
        is_part, is_other_part = i_stop - i == largest, j_stop - j == largest
        both = either = 0
        # a + b shingles have at least t (a + b) / (1 + t) in common if the similarity is t.
        total = i_stop - i + j_stop - j
        most = total - 2 * (-(-total * ratio[0] // (ratio[0] + ratio[1])))
        if is_part or is_other_part:
            most = total
        while i < i_stop and j < j_stop and either - both <= most:
            one, other = values[i], other_values[j]
            i += one <= other
            j += other <= one
            both += one == other
            either += 1
        if either - both > most:
            both = 0
        elif not (is_part and i == i_stop or is_other_part and j == j_stop):
            either += i_stop - i + j_stop - j
        common[pair], union[pair] = both, either
