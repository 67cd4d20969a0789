"""Pairs of documents that may be near-duplicates, out of the buckets where they met. Pure.

Documents are ranked: the longest first, of equals the one with the smallest hash. Of a pair the
higher one may stay for the lower.

A bucket of up to ROOM documents gives every pair whose sketches do not show that it is surely below
the threshold. All pairs of a bucket of a million documents would be 500 billion, so a larger one
has anchors. Its documents come by rank. Each is compared with the anchors, and makes pairs with the
NEAREST most similar ones of those that it may be similar to. A document that seems similar to fewer
than ENOUGH becomes an anchor itself, and there are ROOM of them at most. (More than one, since an
anchor may be removed for a document that the others are not similar to.) Documents that seem
similar to no anchor and find no room are compared again, by the same rule, with those alone that
agree with them in eight other hashes too; after DEPTH times of that they count as uncompared. Their
other buckets compare them all the same. So time and memory are linear in the members, and the
outcome depends on nothing but the set of them.

Legend: B buckets, M members, P pairs.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numba import types

from pipelines.corpus.near_duplicates.flags import Bands
from pipelines.corpus.near_duplicates.minhash import SKETCH_HASHES
from pipelines.corpus.near_duplicates.rows import PAIR
from pipelines.host.compiled import entry, inner

ROOM = 64
NEAREST = 8
ENOUGH = 4
DEPTH = 2
_SURE = 3  # standard deviations
_PAIRS_AT_ONCE = 1 << 18


def find_pairs(
    members: np.ndarray, bands: Bands, threshold: Fraction
) -> Iterator[tuple[np.ndarray, int]]:
    """Finds candidates for `verify`.

    Args:
      members: MEMBER rows of whole buckets, in any order.
      bands: of the signatures.
      threshold: the similarity from which two are near.

    Yields:
      PAIR rows, a part at a time; a pair that met in several buckets comes several times. And the
      number of members that were not compared as they should be.
    """
    members = _rank(members)
    limits = _mismatches(bands, threshold)
    for depth in range(1 + DEPTH):
        left_out = np.zeros(len(members), bool)
        yield from ((pairs, 0) for pairs in _pair(members, limits, left_out))
        members = members.take(np.flatnonzero(left_out))
        if not len(members):
            break
        if depth < DEPTH:
            members["key"] = _finer_keys(members, bands, depth)
            members = members.take(np.argsort(members["key"], kind="stable"))
    yield np.zeros(0, PAIR), len(members)


def _rank(members: np.ndarray) -> np.ndarray:
    """The members who meet another, by bucket, then by rank."""
    order = np.argsort(members["key"])
    is_alone = _differs(members["key"][order])
    is_alone[:-1] &= is_alone[1:].copy()
    order = order[~is_alone]
    keys, lengths, places = (members[name][order] for name in ("key", "length", "place"))
    return members.take(order[np.lexsort((places, ~lengths, keys))])


def _differs(values: np.ndarray) -> np.ndarray:
    """Whether each value differs from the one before: [4, 4, 7] -> [True, False, True]."""
    found = np.ones(len(values), bool)
    found[1:] = values[1:] != values[:-1]
    return found


def _mismatches(bands: Bands, threshold: Fraction) -> tuple[int, int]:
    """The most hashes in which two sketches differ that may be, and that seem, similar."""
    hashes = min(bands.hashes, SKETCH_HASHES)
    chance = 3 / 4 * float(1 - threshold)  # of a hash to differ in its two bits
    spread = (hashes * chance * (1 - chance)) ** 0.5
    return int(hashes * chance + _SURE * max(spread, 1)), int(hashes * chance)


def _pair(
    members: np.ndarray, limits: tuple[int, int], left_out: np.ndarray
) -> Iterator[np.ndarray]:
    """The pairs of ranked members, a part at a time; marks those who find no room."""
    starts = np.append(np.flatnonzero(_differs(members["key"])), len(members))
    sketches, places = np.ascontiguousarray(members["sketch"]), members["place"]
    anchors, state = np.empty(ROOM, np.int64), np.zeros(3, np.int64)
    found = np.empty((min(_PAIRS_AT_ONCE, ROOM * (len(members) + 1)), 2), np.int64)
    sizes = (*limits, NEAREST, ENOUGH)
    while state[0] < len(starts) - 1:
        count = pair_members(starts, sketches, *sizes, anchors, state, found, left_out)
        pairs = np.empty(count, PAIR)
        pairs["higher"], pairs["lower"] = places[found[:count]].T
        yield pairs


def _finer_keys(members: np.ndarray, bands: Bands, depth: int) -> np.ndarray:
    """Keys of buckets that are parts of those before: by eight hashes after the band's own."""
    keys, eights = members["key"], min(bands.hashes, SKETCH_HASHES) // 8
    band = (keys & np.uint64(0xFF)).astype(np.int64)
    which = (-(-(band + 1) * bands.rows // 8) + depth) % max(eights, 1)
    sketches = np.ascontiguousarray(members["sketch"]).astype("<u8")
    bits = sketches.view("<u2")[np.arange(len(members)), which]
    mixed = (keys ^ bits.astype(np.uint64) << np.uint64(8)) * np.uint64(0xD6E8FEB86659FD93)
    return mixed & ~np.uint64(0xFF) | keys & np.uint64(0xFF)


# ---- compiled ----

_1, _2, _4, _56 = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
_LOW_BITS = np.uint64(0x5555555555555555)
_PAIRS_OF_BITS = np.uint64(0x3333333333333333)
_FOURS = np.uint64(0x0F0F0F0F0F0F0F0F)
_BYTES = np.uint64(0x0101010101010101)


@inner
def _count_mismatches(sketches, one, other):
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
_SIZES, _STATE = (types.int64,) * 4, (types.int64[::1],) * 2
_OUT = types.int64[:, ::1], types.boolean[::1]


@entry(types.int64(_STARTS, _SKETCHES, *_SIZES, *_STATE, *_OUT))
def pair_members(starts, sketches, farthest, near, most, enough, anchors, state, pairs, left_out):
    """Pairs the members of each bucket until there is no room for more pairs.

    Args:
      starts: int64[B + 1], where buckets begin.
      sketches: uint64[M, words], by rank in each bucket.
      farthest: the most mismatches of a pair.
      near: the most mismatches with an anchor that a member seems similar to.
      most: pairs of a member of a larger bucket with anchors.
      enough: a member of a larger bucket that is similar to fewer anchors becomes one.
      anchors: int64[room], of the bucket that is under way; a bucket of no more members gives all
        its pairs.
      state: int64[3], zeros at first: the bucket and the member that come next, and the bucket's
        anchors so far.
      pairs: int64[P, 2], becomes numbers of members, the higher rank first; P is at least room.
      left_out: bool[M], becomes true for members of a larger bucket that are similar to none, and
        found no room.

    Returns:
      How many pairs there are.
    """
    room, count = anchors.size, 0
    nearest = np.empty((room, 2), np.int64)
    bucket, member, used = state
    while bucket < starts.size - 1:
        stop = starts[bucket + 1]
        is_small = stop - starts[bucket] <= room
        due = nearest[: room if is_small else most]
        while member < stop:
            if count + room > pairs.shape[0]:
                state[:] = bucket, member, used
                return count
            found = alike = 0
            for anchor in anchors[:used]:
                differ = _count_mismatches(sketches, anchor, member)
                alike += differ <= near
                if differ <= farthest:
                    found = _insert(due, found, anchor, differ)
            for number in range(found):
                pairs[count, 0], pairs[count, 1] = due[number, 0], member
                count += 1
            if used < room and (is_small or alike < enough):
                anchors[used] = member
                used += 1
            elif alike == 0:
                left_out[member] = True
            member += 1
        bucket, used = bucket + 1, 0
    state[:] = bucket, member, used
    return count
