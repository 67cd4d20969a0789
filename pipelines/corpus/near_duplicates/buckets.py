"""Proposes pairs of documents for verification as near-duplicates: MinHash and buckets. Pure.

A signature holds the minima of many hash functions over a document's shingles. The probability that
two documents share a minimum is their Jaccard similarity. Signatures are cut into bands: documents
that share all minima of a band meet in a bucket; few but similar ones do (Broder, "On the
resemblance and containment of documents", 1997; Indyk and Motwani, "Approximate nearest neighbors",
1998).

Documents are ranked by length, longest first, then by hash, smallest first. The higher document of
a pair may be kept, and the lower one removed for it. Documents of older corpora rank above all
others, and no two of them are paired.

A bucket of up to ROOM documents proposes every pair that sketches do not rule out. In a larger one,
documents come by rank. Each is paired with the NEAREST most similar anchors, and becomes an anchor,
up to ROOM, if it seems similar to fewer than ENOUGH; one is too few, since an anchor may be removed
itself. Documents similar to none when ROOM is full are retried in sub-buckets that agree in eight
more hashes, DEPTH times, and then count as `uncompared`. Time and memory are linear in the number
of members, and the result depends only on the set of them.

Legend: H hashes of a signature, B its bands, or buckets, D documents, S shingles, M members, P
pairs.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pyarrow as pa
import xxhash
from numba import types

from textmill.pipelines.corpus.near_duplicates.flags import Bands, Shingle
from textmill.pipelines.corpus.near_duplicates.rows import PAIR, differs, is_older
from textmill.pipelines.corpus.near_duplicates.shingles import AT_ONCE, shingle_hashes
from textmill.pipelines.rows.text_bytes import slices, utf8_bytes
from textmill.pipelines.runtime.compiled import entry, inner

ROOM = 64
NEAREST = 8
ENOUGH = 4
DEPTH = 2
SKETCH_HASHES = 128  # maximum number of hashes in a sketch
_NONE = np.uint32(0xFFFFFFFF)  # all of the signature of a document without shingles
_SURE = 3  # standard deviations
_PAIRS_AT_ONCE = 1 << 18


def signatures(text: pa.LargeStringArray, shingle: Shingle, bands: Bands) -> np.ndarray:
    """Signatures of documents: uint32 [n, H]."""
    factors, addends = _functions(bands.hashes)
    minima = np.full((len(text), bands.hashes), _NONE)
    first = 0
    for some in slices(text, AT_ONCE):
        runs = shingle_hashes(*utf8_bytes(some), shingle)
        take_minima(runs.values, runs.offsets, factors, addends, minima[first : first + len(some)])
        first += len(some)
    return minima


def has_shingles(signature: np.ndarray) -> np.ndarray:
    """Bool [n]: false for documents without words, which are similar to none."""
    return (signature != _NONE).any(axis=1)


def _functions(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Odd factors and addends of hash functions: uint32 [count] each."""
    numbers = [xxhash.xxh3_64_intdigest(i.to_bytes(8, "little")) for i in range(count)]
    halves = np.array(numbers, "<u8").view("<u4").reshape(-1, 2)
    return np.ascontiguousarray(halves[:, 0] | 1), np.ascontiguousarray(halves[:, 1])


def band_keys(signature: np.ndarray, bands: Bands) -> np.ndarray:
    """Keys of buckets: uint64 [n, B], a hash of each band, whose lowest byte is its number."""
    keys = np.zeros((len(signature), bands.bands), np.uint64)
    for row in range(bands.rows):
        keys = (keys ^ signature[:, row :: bands.rows]) * np.uint64(0xD6E8FEB86659FD93)
        keys ^= keys >> np.uint64(32)
    return keys & ~np.uint64(0xFF) | np.arange(bands.bands, dtype=np.uint64)


def sketches(signature: np.ndarray) -> np.ndarray:
    """Two bits of each of the first SKETCH_HASHES hashes: uint64 [n, 4].

    The share of hashes in which two documents agree is their similarity, plus a quarter of the
    rest by chance. This rules out pairs that are surely not similar (b-bit minwise hashing: Li and
    König, 2010).
    """
    bits = np.zeros((len(signature), SKETCH_HASHES), np.uint8)
    some = signature[:, : bits.shape[1]]
    bits[:, : some.shape[1]] = some * np.uint32(0x9E3779B1) >> np.uint32(30)
    fours = bits.reshape(len(bits), SKETCH_HASHES // 4, 4) << np.array([0, 2, 4, 6], np.uint8)
    joined = np.bitwise_or.reduce(fours, axis=2, dtype=np.uint8)
    return np.ascontiguousarray(joined).view("<u8").astype(np.uint64)


def find_pairs(
    members: np.ndarray, bands: Bands, threshold: Fraction
) -> Iterator[tuple[np.ndarray, int]]:
    """Finds candidate pairs for `verify` among the MEMBER rows of whole buckets, in any order.

    Yields:
      PAIR rows in parts, a pair once for each bucket where it met; and the number of uncompared
      members.
    """
    members = _rank(members)
    limits = _mismatches(bands, threshold)
    for depth in range(1 + DEPTH):
        is_unpaired = np.zeros(len(members), bool)
        yield from ((pairs, 0) for pairs in _pair(members, limits, is_unpaired))
        members = members.take(np.flatnonzero(is_unpaired))
        if not len(members):
            break
        if depth < DEPTH:
            members["key"] = _finer_keys(members, bands, depth)
            members = members.take(np.argsort(members["key"], kind="stable"))
    yield np.zeros(0, PAIR), int(np.count_nonzero(~is_older(members["place"])))


def _rank(members: np.ndarray) -> np.ndarray:
    """Sorts members by bucket and rank, without those that are alone in a bucket.

    Buckets of only older documents are skipped, too.
    """
    order = np.argsort(members["key"])
    is_alone = differs(members["key"][order])
    starts = np.flatnonzero(is_alone)
    is_alone[:-1] &= is_alone[1:].copy()
    is_new = ~is_older(members["place"][order])
    if not is_new.all():
        sizes = np.diff(np.append(starts, len(order)))
        is_alone |= np.repeat(~np.logical_or.reduceat(is_new, starts), sizes)
    order = order[~is_alone]
    keys, lengths, places = (members[name][order] for name in ("key", "length", "place"))
    ranks = np.where(is_older(places), 0, 1 << 32) | (~lengths).astype(np.int64)
    return members.take(order[np.lexsort((places, ranks, keys))])


def _mismatches(bands: Bands, threshold: Fraction) -> tuple[int, int]:
    """Maximum number of mismatches of sketches that may be similar, and that seem similar."""
    hashes = min(bands.hashes, SKETCH_HASHES)
    chance = 3 / 4 * float(1 - threshold)  # probability that the two bits of a hash differ
    spread = (hashes * chance * (1 - chance)) ** 0.5
    return int(hashes * chance + _SURE * max(spread, 1)), int(hashes * chance)


def _pair(
    members: np.ndarray, limits: tuple[int, int], is_unpaired: np.ndarray
) -> Iterator[np.ndarray]:
    """Yields pairs of ranked members in parts; sets `is_unpaired` for those to retry."""
    starts = np.append(np.flatnonzero(differs(members["key"])), len(members))
    sketches, places = np.ascontiguousarray(members["sketch"]), members["place"]
    is_old = is_older(places)
    anchors, state = np.empty(ROOM, np.int64), np.zeros(3, np.int64)
    numbers = np.empty((min(_PAIRS_AT_ONCE, ROOM * (len(members) + 1)), 2), np.int64)
    sizes = (*limits, NEAREST, ENOUGH)
    while state[0] < len(starts) - 1:
        count = pair_members(starts, sketches, is_old, *sizes, anchors, state, numbers, is_unpaired)
        pairs = np.empty(count, PAIR)
        pairs["higher"], pairs["lower"] = places[numbers[:count]].T
        yield pairs


def _finer_keys(members: np.ndarray, bands: Bands, depth: int) -> np.ndarray:
    """Keys of sub-buckets, by the eight hashes that follow those of the band."""
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
_32 = np.uint64(32)
_HASHES = types.Array(types.uint64, 1, "C", readonly=True)
_INTS = types.Array(types.int64, 1, "C", readonly=True)
_FACTORS = types.Array(types.uint32, 1, "C", readonly=True)


@entry(types.void(_HASHES, _INTS, _FACTORS, _FACTORS, types.uint32[:, ::1]))
def take_minima(values, offsets, factors, addends, minima):
    """Computes signatures: the minimum of each hash function over each document's shingles.

    Args:
      values: uint64[S], hashes of shingles.
      offsets: int64[D + 1], where the shingles of each document begin.
      factors: uint32[H], odd.
      addends: uint32[H].
      minima: uint32[D, H], filled with the largest value; out: the signatures.
    """
    size = np.uint64(factors.size)
    for document in range(offsets.size - 1):
        row, last = np.uint64(document), offsets[document + 1] - 1
        # Four shingles at once, so that a minimum is loaded and stored once for four; the last one
        # may come several times. Unsigned indices let LLVM use vector instructions.
        for place in range(offsets[document], last + 1, 4):
            one = np.uint32(values[np.uint64(place)] >> _32)
            two = np.uint32(values[np.uint64(min(place + 1, last))] >> _32)
            three = np.uint32(values[np.uint64(min(place + 2, last))] >> _32)
            four = np.uint32(values[np.uint64(min(place + 3, last))] >> _32)
            for number in range(size):
                factor, addend = factors[number], addends[number]
                least = min(np.uint32(one * factor + addend), np.uint32(two * factor + addend))
                other = min(np.uint32(three * factor + addend), np.uint32(four * factor + addend))
                minima[row, number] = min(minima[row, number], min(least, other))


@inner
def _count_mismatches(sketches, one, other):
    """Number of hashes whose two bits differ."""
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
    """Inserts an anchor into the nearest, sorted by mismatches; ties go to the earlier anchor."""
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
_SIZES, _STATE = (types.int64,) * 4, (types.int64[::1],) * 2
_OUT = types.int64[:, ::1], types.boolean[::1]


@entry(types.int64(_STARTS, _SKETCHES, _FLAGS, *_SIZES, *_STATE, *_OUT))
def pair_members(
    starts, sketches, is_old, farthest, near, most, enough, anchors, state, pairs, is_unpaired
):
    """Pairs the members of each bucket until `pairs` is full.

    Args:
      starts: int64[B + 1], where buckets begin.
      sketches: uint64[M, words], by rank in each bucket.
      is_old: bool[M], members that are paired with no higher one.
      farthest: maximum number of mismatches of a pair.
      near: maximum number of mismatches of a member and an anchor that seem similar.
      most: maximum number of pairs of a member in a larger bucket.
      enough: a member of a larger bucket that seems similar to fewer anchors becomes an anchor.
      anchors: int64[room], anchors of the current bucket; smaller buckets propose all pairs.
      state: int64[3], next bucket, next member, and number of anchors of the bucket; zeros at
        first.
      pairs: int64[P, 2], out: numbers of members, the higher rank first; P is at least room.
      is_unpaired: bool[M], out: true for members of a larger bucket that seem similar to no anchor
        and cannot become one.

    Returns:
      Number of pairs.
    """
    room, count = anchors.size, 0
    nearest = np.empty((room, 2), np.int64)
    bucket, member, used = state
    while bucket < starts.size - 1:
        stop = starts[bucket + 1]
        is_small = stop - starts[bucket] <= room
        best = nearest[: room if is_small else most]
        while member < stop:
            if count + room > pairs.shape[0]:
                state[:] = bucket, member, used
                return count
            used_best = alike = 0
            for anchor in anchors[:used]:
                differ = _count_mismatches(sketches, anchor, member)
                alike += differ <= near
                if differ <= farthest:
                    used_best = _insert(best, used_best, anchor, differ)
            for number in range(0 if is_old[member] else used_best):
                pairs[count, 0], pairs[count, 1] = best[number, 0], member
                count += 1
            if used < room and (is_small or alike < enough):
                anchors[used] = member
                used += 1
            elif alike == 0:
                is_unpaired[member] = True
            member += 1
        bucket, used = bucket + 1, 0
    state[:] = bucket, member, used
    return count
