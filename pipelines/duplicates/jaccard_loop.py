"""Counts what two sorted sets have in common, compiled by numba. Called by `jaccard.py`.

Legend: D documents, P pairs.
"""

from numba import types

from pipelines.host.compiled import entry

_HASHES = types.Array(types.uint64, 1, "C", readonly=True)
_INTS = types.Array(types.int64, 1, "C", readonly=True)


@entry(types.void(_HASHES, _INTS, _INTS, _INTS, types.int64, types.int64[::1], types.int64[::1]))
def count_common(values, offsets, firsts, seconds, largest, common, union):
    """Merges the sets of each pair.

    Args:
      values: uint64[shingles], sorted and distinct within a document.
      offsets: int64[D + 1].
      firsts: int64[P], documents.
      seconds: int64[P], documents.
      largest: the size of a set that is a part of a larger one.
      common: int64[P], becomes how many shingles are in both.
      union: int64[P], becomes how many are in one or the other.
    """
    for pair in range(firsts.size):
        i, i_stop = offsets[firsts[pair]], offsets[firsts[pair] + 1]
        j, j_stop = offsets[seconds[pair]], offsets[seconds[pair] + 1]
        is_part, is_other_part = i_stop - i == largest, j_stop - j == largest
        both = either = 0
        while i < i_stop and j < j_stop:
            one, other = values[i], values[j]
            i += one <= other
            j += other <= one
            both += one == other
            either += 1
        if not (is_part and i == i_stop or is_other_part and j == j_stop):
            either += i_stop - i + j_stop - j
        common[pair], union[pair] = both, either
