"""Pairs the members of buckets, compiled by numba. Called by `buckets.py`, which says the rule.

Legend: B buckets, M members, P pairs.
"""

import numpy as np
from numba import types

from pipelines.host.compiled import entry, inner

_1, _2, _4, _56 = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
_LOW_BITS = np.uint64(0x5555555555555555)
_PAIRS_OF_BITS = np.uint64(0x3333333333333333)
_FOURS = np.uint64(0x0F0F0F0F0F0F0F0F)
_BYTES = np.uint64(0x0101010101010101)
_ROOM = 1 << 12  # pairs, at first


@inner
def _mismatches(sketches, one, other):
    """How many hashes' two bits differ."""
    count = np.uint64(0)
    for word in range(sketches.shape[1]):
        bits = sketches[one, word] ^ sketches[other, word]
        bits = (bits | bits >> _1) & _LOW_BITS
        bits = (bits & _PAIRS_OF_BITS) + (bits >> _2 & _PAIRS_OF_BITS)
        bits = (bits + (bits >> _4)) & _FOURS
        count += bits * _BYTES >> _56
    return np.int64(count)


@inner
def _with_room(pairs, count, more):
    if count + more <= pairs.shape[0]:
        return pairs
    larger = np.empty((2 * (count + more), 2), np.int64)
    larger[:count] = pairs[:count]
    return larger


@inner
def _insert(nearest, used, anchor, mismatches):
    """Puts an anchor among the nearest, fewest mismatches first; of equals the earlier one."""
    most = nearest.shape[0]
    if used == most and nearest[used - 1, 1] <= mismatches:
        return used
    used = min(used + 1, most)
    place = used - 1
    while place > 0 and nearest[place - 1, 1] > mismatches:
        nearest[place] = nearest[place - 1]
        place -= 1
    nearest[place, 0], nearest[place, 1] = anchor, mismatches
    return used


_SKETCHES = types.Array(types.uint64, 2, "C", readonly=True)
_STARTS = types.Array(types.int64, 1, "C", readonly=True)
_FLAGS = types.Array(types.boolean, 1, "C", readonly=True)
_INT = types.int64


@entry(
    types.int64[:, ::1](
        _STARTS, _SKETCHES, _FLAGS, _INT, _INT, _INT, _INT, _INT, types.boolean[::1]
    )
)
def pair_members(starts, sketches, is_given, farthest, near, room, most, enough, left_out):
    """Pairs the members of each bucket.

    Args:
      starts: int64[B + 1], where buckets begin.
      sketches: uint64[M, words], by rank in each bucket.
      is_given: bool[M], whether it is never removed: two of those make no pair.
      farthest: mismatches of a pair, at most.
      near: mismatches with an anchor that a member seems to be like, at most.
      room: anchors of a bucket; one of no more members gives all its pairs.
      most: pairs of a member of a larger one with anchors.
      enough: anchors that a member of a larger one is like, if it becomes none itself.
      left_out: bool[M], becomes true for members of a larger one that are like none, and found no
        room.

    Returns:
      int64[P, 2], numbers of members, the higher rank first.
    """
    pairs, count = np.empty((_ROOM, 2), np.int64), 0
    anchors, nearest = np.empty(room, np.int64), np.empty((room, 2), np.int64)
    for bucket in range(starts.size - 1):
        start, stop, used = starts[bucket], starts[bucket + 1], 0
        is_small = stop - start <= room
        due = nearest[: room if is_small else most]
        for member in range(start, stop):
            found = alike = 0
            for anchor in anchors[:used]:
                differ = _mismatches(sketches, anchor, member)
                alike += differ <= near
                if differ <= farthest and not (is_given[anchor] and is_given[member]):
                    found = _insert(due, found, anchor, differ)
            pairs = _with_room(pairs, count, found)
            for number in range(found):
                pairs[count, 0], pairs[count, 1] = due[number, 0], member
                count += 1
            if used < room and (is_small or alike < enough):
                anchors[used] = member
                used += 1
            elif alike == 0:
                left_out[member] = True
    return pairs[:count]
