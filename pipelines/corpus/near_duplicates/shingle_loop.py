"""Hashes shingles and takes their minima, compiled by numba. Called by `shingles`, `minhash`.

Legend: U units (words or characters), D documents, S shingles, H hashes of a signature.
"""

import numpy as np
from numba import types

from pipelines.host.compiled import entry

_BASE = np.uint64(0x8CB92BA72F3D8DD7)
_MIX = np.uint64(0xC2B2AE3D27D4EB4F)
_32 = np.uint64(32)
_29 = np.uint64(29)
_HASHES = types.Array(types.uint64, 1, "C", readonly=True)
_INTS = types.Array(types.int64, 1, "C", readonly=True)


@entry(types.void(_HASHES, _INTS, types.int64, types.uint64[::1], _INTS))
def hash_runs(units, offsets, size, values, value_offsets):
    """Hashes each run of units.

    A run's hash is a polynomial of its units' hashes, of which the next one follows by taking away
    the first unit and adding one, and is mixed in the end.

    Args:
      units: uint64[U], hashes.
      offsets: int64[D + 1], by document.
      size: units of a run.
      values: uint64[S], becomes the hashes of each document's runs; of all of it, if it is shorter.
      value_offsets: int64[D + 1], where each document's begin.
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
        for place in range(first, stop):
            mixed = mixed * _BASE + units[place] - units[place - size] * leaves
            last = (mixed ^ mixed >> _29) * _MIX
            values[out + 1 + place - first] = last ^ last >> _32


@entry(types.int64(types.uint64[::1], _INTS, types.int64, types.int64[::1]))
def sort_distinct(values, offsets, most, lengths):
    """Sorts each document's values in place, and moves the distinct ones to the front of all.

    Args:
      values: uint64[S].
      offsets: int64[D + 1].
      most: of the smallest of a document that are kept.
      lengths: int64[D], becomes how many are kept of each.

    Returns:
      How many are kept of all.
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


@entry(
    types.void(
        _HASHES,
        _INTS,
        types.Array(types.uint32, 1, "C", readonly=True),
        types.Array(types.uint32, 1, "C", readonly=True),
        types.uint32[:, ::1],
    )
)
def take_minima(values, offsets, factors, addends, minima):
    """The smallest of each hash function's values, of each document.

    Args:
      values: uint64[S], hashes of shingles.
      offsets: int64[D + 1], by document.
      factors: uint32[H], odd.
      addends: uint32[H].
      minima: uint32[D, H], filled with its greatest value; becomes the signatures.
    """
    for document in range(offsets.size - 1):
        for place in range(offsets[document], offsets[document + 1]):
            value = np.uint32(values[place] >> _32)
            for number in range(factors.size):
                found = np.uint32(value * factors[number] + addends[number])
                minima[document, number] = min(minima[document, number], found)
