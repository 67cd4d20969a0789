"""Hashes words and characters, compiled by numba. Called by `word_hashes.py`.

Legend: N bytes, D documents, W words, C characters, R runs of words.
"""

import numpy as np
from numba import types

from pipelines.host.compiled import entry, inner
from pipelines.rows.code_points import code_point

MARK = np.uint32(1 << 31)  # continues a word, but begins none
_SEED = np.uint64(0x9E3779B97F4A7C15)
_STEP = np.uint64(0xD6E8FEB86659FD93)
_LAST = np.uint64(0xC2B2AE3D27D4EB4F)
_32 = np.uint64(32)
_29 = np.uint64(29)
_SPACE = np.uint64(0x20)


@inner
def _finish(mixed):
    mixed = (mixed ^ mixed >> _29) * _LAST
    return mixed ^ mixed >> _32


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INTS = types.Array(types.int64, 1, "C", readonly=True)
_TABLE = types.Array(types.uint32, 1, "C", readonly=True)
_OUT = types.int64[::1]


@entry(types.int64(_BYTES, _INTS, _TABLE, types.uint64[::1], _OUT, _OUT, _OUT))
def hash_text(data, bounds, table, hashes, starts, stops, offsets):
    """Finds and hashes words.

    Args:
      data: uint8[N], UTF-8.
      bounds: int64[D + 1], where documents begin.
      table: uint32[code points], of `character_table`.
      hashes: uint64[W], becomes the hash of each word; has room for (N + D + 1) // 2.
      starts: int64[W], becomes its first byte.
      stops: int64[W], becomes the byte after its last one.
      offsets: int64[D + 1], becomes the first word of each document.

    Returns:
      How many words there are.
    """
    found, offsets[0] = 0, 0
    for document in range(bounds.size - 1):
        place, stop = bounds[document], bounds[document + 1]
        inside, mixed = False, _SEED
        while place < stop:
            code, size = np.int64(data[place]), 1
            if code >= 0x80:
                code, size = code_point(data, place)
            folded = table[code]
            if folded != 0 and (inside or folded < MARK):
                if not inside:
                    inside, mixed = True, _SEED
                    starts[found] = place
                mixed = (mixed ^ np.uint64(folded)) * _STEP
                mixed ^= mixed >> _32
            elif inside:
                inside = False
                hashes[found] = _finish(mixed)
                stops[found] = place
                found += 1
            place += size
        if inside:
            hashes[found] = _finish(mixed)
            stops[found] = stop
            found += 1
        offsets[document + 1] = found
    return found


@entry(types.int64(_BYTES, _INTS, _TABLE, types.uint64[::1], _OUT))
def hash_characters(data, bounds, table, hashes, offsets):
    """Hashes the characters of words, and a space for what lies between two.

    Args:
      data: uint8[N], UTF-8.
      bounds: int64[D + 1], where documents begin.
      table: uint32[code points], of `character_table`.
      hashes: uint64[C], becomes the hash of each; has room for N.
      offsets: int64[D + 1], becomes the first of each document.

    Returns:
      How many there are.
    """
    found, offsets[0] = 0, 0
    space = _finish(_SPACE * _STEP)
    for document in range(bounds.size - 1):
        place, stop = bounds[document], bounds[document + 1]
        inside = False
        while place < stop:
            code, size = np.int64(data[place]), 1
            if code >= 0x80:
                code, size = code_point(data, place)
            folded = table[code]
            if folded == 0 or (not inside and folded >= MARK):
                inside = False
            else:
                if not inside and found > offsets[document]:
                    hashes[found] = space
                    found += 1
                inside = True
                hashes[found] = _finish(np.uint64(folded) * _STEP)
                found += 1
            place += size
        offsets[document + 1] = found
    return found


@inner
def _is_same_word(data, start, stop, others, place, end, table):
    while start < stop and place < end:
        code, size = np.int64(data[start]), 1
        if code >= 0x80:
            code, size = code_point(data, start)
        other, other_size = np.int64(others[place]), 1
        if other >= 0x80:
            other, other_size = code_point(others, place)
        if table[code] != table[other]:
            return False
        start += size
        place += other_size
    return start == stop and place == end


@entry(types.boolean[::1](_BYTES, _INTS, _INTS, _INTS, _BYTES, _INTS, _INTS, _INTS, _INTS, _TABLE))
def are_same_words(
    data, starts, stops, first_R, others, other_starts, other_stops, other_R, length_R, table
):
    """Whether runs of words are spelt alike, folded as their hashes are: for R pairs of runs.

    Args:
      data: uint8[N], UTF-8.
      starts: int64[W], the first byte of each word.
      stops: int64[W], the byte after its last one.
      first_R: int64, the first word of each run.
      others: uint8, UTF-8, in which the other runs are.
      other_starts: as `starts`, of these.
      other_stops: as `stops`.
      other_R: as `first_R`.
      length_R: int64, words of both runs.
      table: uint32[code points], of `character_table`.
    """
    same_R = np.ones(first_R.size, np.bool_)
    for run in range(first_R.size):
        for step in range(length_R[run]):
            a, b = first_R[run] + step, other_R[run] + step
            if not _is_same_word(
                data, starts[a], stops[a], others, other_starts[b], other_stops[b], table
            ):
                same_R[run] = False
                break
    return same_R
