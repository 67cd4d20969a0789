"""Pairs of documents that may be nearly equal, out of the buckets where they met. Pure.

Documents are ranked: those of a split that nothing is taken from first, then those of other
held-out splits, then the longest, then the smallest digest. Of a pair the higher one may stay for
the lower.

A bucket of up to ROOM documents gives every pair whose sketches do not say that it is surely below
the threshold. All pairs of a bucket of a million documents would be 500 billion, so a larger one
has anchors. Its documents come by rank. Each is compared with the anchors, and makes pairs with the
NEAREST most similar ones of those that it may be like. Whoever seems to be like fewer than ENOUGH
becomes an anchor itself, and there are ROOM of them at most. (More than one, since an anchor may be
removed for a document that the others are not like.) Who seems to be like none and finds no room is
compared again, by the same rule, with those alone that agree with it in eight other hashes too;
after DEPTH times of that it counts as uncompared. In its other buckets it is compared all the same.
So time and memory are linear in the members, and what is found depends on nothing but the set of
them.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from pipelines.corpus.near_duplicates.bucket_loop import pair_members
from pipelines.corpus.near_duplicates.minhash import SKETCH_HASHES
from pipelines.corpus.near_duplicates.rule import Bands

ROOM = 64
NEAREST = 8
ENOUGH = 4
DEPTH = 2
_SURE = 3  # standard deviations
GIVEN = 2  # the level of documents that are never removed


class Members(NamedTuple):
    """Members of whole buckets, in any order; a document is in many.

    Attributes:
      keys: uint64 [m], of `band_keys`: the bucket.
      digests: uint8 [m, 16], the document.
      lengths: int64 [m], of its text.
      levels: uint8 [m]: 0, or 1 in a held-out split, or GIVEN where none may be removed.
      sketches: uint64 [m, 4], of `sketches`.
      places: int64 [m], where it can be read; of a document's copies the smallest counts.
    """

    keys: np.ndarray
    digests: np.ndarray
    lengths: np.ndarray
    levels: np.ndarray
    sketches: np.ndarray
    places: np.ndarray


class Pairs(NamedTuple):
    """Pairs to be verified. One that met in several buckets is there several times.

    Attributes:
      higher: int64 [p], the member of higher rank.
      lower: int64 [p], the other.
      uncompared: how many members were left without a comparison that they were due.
    """

    higher: np.ndarray
    lower: np.ndarray
    uncompared: int


def find_pairs(members: Members, bands: Bands, threshold: Fraction) -> Pairs:
    """Finds candidates for `verify`: members of buckets -> numbers of two members each."""
    order = _rank(members)
    limits = _mismatches(bands, threshold)
    keys = members.keys[order]
    highers, lowers = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for depth in range(1 + DEPTH):
        left_out = np.zeros(len(order), bool)
        pairs = _pair(members, order, keys, limits, left_out)
        highers.append(pairs[0])
        lowers.append(pairs[1])
        order, keys = order[left_out], keys[left_out]
        if not len(order) or depth == DEPTH:
            break
        keys = _finer_keys(members, order, keys, bands, depth)
        by_key = np.argsort(keys, kind="stable")
        order, keys = order[by_key], keys[by_key]
    return Pairs(np.concatenate(highers), np.concatenate(lowers), len(order))


def _rank(members: Members) -> np.ndarray:
    """Those who meet another, once each: by bucket, then by rank."""
    order = np.argsort(members.keys)
    keys = members.keys[order]
    is_first = _differs(keys)
    is_alone = is_first.copy()
    is_alone[:-1] &= is_first[1:]
    order = order[~is_alone]
    digests = np.ascontiguousarray(members.digests[order]).view(">u8").astype(np.uint64)
    high, low, level = digests[:, 0], digests[:, 1], -members.levels[order].astype(np.int8)
    keys, length = members.keys[order], -members.lengths[order]
    by = np.lexsort((members.places[order], level, low, high, length, keys))
    by = by[_differs(keys[by]) | _differs(high[by]) | _differs(low[by])]
    return order[by[np.lexsort((level[by], keys[by]))]]


def _differs(values: np.ndarray) -> np.ndarray:
    """Whether each is another one than that before: [4, 4, 7] -> [True, False, True]."""
    found = np.ones(len(values), bool)
    found[1:] = values[1:] != values[:-1]
    return found


def _mismatches(bands: Bands, threshold: Fraction) -> tuple[int, int]:
    """How many hashes of two sketches differ: at most, if they may be alike; if they seem to be."""
    hashes = min(bands.hashes, SKETCH_HASHES)
    chance = 3 / 4 * float(1 - threshold)  # of a hash to differ in its two bits
    spread = (hashes * chance * (1 - chance)) ** 0.5
    return int(hashes * chance + _SURE * max(spread, 1)), int(hashes * chance)


def _pair(
    members: Members,
    order: np.ndarray,
    keys: np.ndarray,
    limits: tuple[int, int],
    left_out: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of buckets whose members lie together by rank; marks who finds no room."""
    starts = np.append(np.flatnonzero(_differs(keys)), len(keys))
    sketches, is_given = members.sketches[order], members.levels[order] == GIVEN
    pairs = pair_members(starts, sketches, is_given, *limits, ROOM, NEAREST, ENOUGH, left_out)
    return order[pairs[:, 0]], order[pairs[:, 1]]


def _finer_keys(
    members: Members, order: np.ndarray, keys: np.ndarray, bands: Bands, depth: int
) -> np.ndarray:
    """Keys of buckets that are parts of the ones before: by eight hashes after the band's own."""
    eights = min(bands.hashes, SKETCH_HASHES) // 8
    band = (keys & np.uint64(0xFF)).astype(np.int64)
    which = (-(-(band + 1) * bands.rows // 8) + depth) % max(eights, 1)
    bits = members.sketches[order].astype("<u8").view("<u2")[np.arange(len(order)), which]
    mixed = (keys ^ bits.astype(np.uint64) << np.uint64(8)) * np.uint64(0xD6E8FEB86659FD93)
    return mixed & ~np.uint64(0xFF) | keys & np.uint64(0xFF)
