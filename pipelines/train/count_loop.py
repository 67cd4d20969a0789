"""Counts words, compiled by numba. Called by `word_counter.py`.

How counts lie in memory: a hash table of three numbers a slot.

    low    bytes 0 to 7 of the word             a word of 16 bytes or more: a hash of it
    high   bytes 8 to 14 and, on top, its size  2**63 + its number in the table of long words
    count  of it; `high` is 0 in a free slot

So most words are found by comparing two numbers. A loop stops where a table is full, and goes on
when its caller has made a larger one.

Legend: N bytes of text, W words, S slots (a power of two), L long words.
"""

import numpy as np
from numba import types

from pipelines.host.compiled import entry, inner

LOW, HIGH, COUNT = range(3)  # slots[S, 3]
USED, LONG = range(2)  # at[2]: slots in use, long words
SHORT = 15  # bytes of the longest word that is its own key
_ODD = np.int64(-7046029254386353131)  # 2**64 / golden ratio, as a signed number
_MIX = np.int64(-4417276706812531889)  # another odd number
_LONG = np.int64(-(2**63))
_LOW_MASK = np.array([(1 << 8 * n) - 1 for n in range(8)] + [-1] * 8, np.int64)  # by size
_HIGH_MASK = np.array([0] * 8 + [(1 << 8 * n) - 1 for n in range(8)], np.int64)


# ---- words -> slots ----


@inner
def _short_key(data, i, size):
    """The key of a word so near the end of the text that 16 bytes from it on lie beyond."""
    low, high = np.int64(0), size << 56
    for j in range(min(size, 8)):
        low |= np.int64(data[i + j]) << (8 * j)
    for j in range(8, size):
        high |= np.int64(data[i + j]) << (8 * (j - 8))
    return low, high


@inner
def _long_key(eights, i, size):
    """The key of a word of 16 bytes or more, but for its number: -1 is none."""
    low = size * _ODD
    for j in range(0, size - 8, 8):
        low = (low ^ eights[i + j]) * _MIX
        low ^= low >> 29
    low = (low ^ eights[i + size - 8]) * _MIX
    return low ^ low >> 32, np.int64(-1)


@inner
def _key(data, eights, i, size):
    if size > SHORT:
        return _long_key(eights, i, size)
    if i + 16 > data.size:
        return _short_key(data, i, size)
    return eights[i] & _LOW_MASK[size], eights[i + 8] & _HIGH_MASK[size] | size << 56


@inner
def _short_hash(low, high):
    mixed = (low * _ODD ^ high) * _MIX
    return mixed ^ mixed >> 32


@inner
def _hash(low, high):
    return low ^ low >> 32 if high < 0 else _short_hash(low, high)


@inner
def _same(eights, i, others, start, size):
    for j in range(0, size - 8, 8):
        if eights[i + j] != others[start + j]:
            return False
    return eights[i + size - 8] == others[start + size - 8]


@inner
def _add(data, eights, i, size, low, high, count, tables, at):
    """Adds to the count of the word of `size` bytes at byte i."""
    slots, long_starts, long_words, long_eights = tables
    last = slots.shape[0] - 1
    slot = _hash(low, high) & last
    while slots[slot, HIGH] != 0:
        if slots[slot, LOW] == low:
            if slots[slot, HIGH] == high:
                break
            if high < 0 and slots[slot, HIGH] < 0:
                which = slots[slot, HIGH] ^ _LONG
                start = long_starts[which]
                same_size = long_starts[which + 1] - start == size
                if same_size and _same(eights, i, long_eights, start, size):
                    break
        slot = (slot + 1) & last
    slots[slot, COUNT] += count
    if slots[slot, HIGH] == 0:
        at[USED] += 1
        slots[slot, LOW] = low
        slots[slot, HIGH] = high
        if high < 0:
            slots[slot, HIGH] = _LONG | at[LONG]
            start = long_starts[at[LONG]]
            for j in range(size):
                long_words[start + j] = data[i + j]
            at[LONG] += 1
            long_starts[at[LONG]] = start + size


@inner
def _fits(starts, tables, at):
    """Whether there is room for some words, if all are new."""
    slots, long_starts, long_words, _ = tables
    number, size = at[LONG], long_starts[at[LONG]]
    for n in range(starts.size - 1):
        length = starts[n + 1] - starts[n]
        number += length > SHORT
        size += length if length > SHORT else 0
    return (
        4 * (at[USED] + starts.size) <= 3 * slots.shape[0]
        and number < long_starts.size
        and size <= long_words.size
    )


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_EIGHTS = types.Array(types.int64, 1, "A", readonly=True, aligned=False)
_INTS = types.Array(types.int64, 1, "C", readonly=True)
_TABLES = types.Tuple((types.int64[:, ::1], types.int64[::1], types.uint8[::1], _EIGHTS))


@entry(types.boolean(_BYTES, _EIGHTS, _INTS, _INTS, types.int64[::1], _TABLES, types.int64[::1]))
def count_words(data, eights, starts, counts, missed, tables, at):
    """Adds to the counts of words: first those in the slot where they are looked for, then others.

    Args:
      data: uint8[N].
      eights: int64[N - 7], the eight bytes of it from each byte on.
      starts: int64[W + 1], where words start in it, and where the last ends.
      counts: int64[W], what is added for each.
      missed: int64[W], overwritten.
      tables: slots int64[S, 3], all zeros in the beginning; where long words begin, int64[L + 1];
        the long words one after another, uint8; the eight bytes of these from each byte on.
      at: int64[2].

    Returns:
      Whether all are counted; if not, none is, for the tables are too full.
    """
    if not _fits(starts, tables, at):
        return False
    slots = tables[0]
    last = slots.shape[0] - 1
    words, misses, near = starts.size - 1, 0, starts.size - 1
    while near > 0 and starts[near - 1] + 16 > data.size:
        near -= 1  # from its start on there are no 16 bytes
    # No function is called with arrays here: numba would count references, which takes ten times
    # as long as the rest.
    for n in range(near):
        size = starts[n + 1] - starts[n]
        masked = min(size, SHORT)
        low = eights[starts[n]] & _LOW_MASK[masked]
        high = eights[starts[n] + 8] & _HIGH_MASK[masked] | size << 56
        high = high if size <= SHORT else -1
        slot = _short_hash(low, high) & last
        hit = (slots[slot, LOW] == low) & (slots[slot, HIGH] == high)
        slots[slot, COUNT] += hit * counts[n]
        missed[misses] = n
        misses += not hit
    for n in range(near, words):
        missed[misses] = n
        misses += 1
    for miss in range(misses):
        n = missed[miss]
        size = starts[n + 1] - starts[n]
        low, high = _key(data, eights, starts[n], size)
        _add(data, eights, starts[n], size, low, high, counts[n], tables, at)
    return True


@entry(types.void(types.int64[:, ::1], types.int64[:, ::1]))
def move_slots(slots, larger):
    """Puts all counts into a larger table of zeros."""
    last = larger.shape[0] - 1
    for old in range(slots.shape[0]):
        if slots[old, HIGH] != 0:
            slot = _hash(slots[old, LOW], slots[old, HIGH]) & last
            while larger[slot, HIGH] != 0:
                slot = (slot + 1) & last
            for column in range(3):
                larger[slot, column] = slots[old, column]


@entry(
    types.void(
        types.int64[:, ::1],
        types.int64[::1],
        types.uint8[::1],
        types.int64[::1],
        types.uint8[::1],
        types.int64[::1],
        types.int64[::1],
    )
)
def read_slots(slots, long_starts, long_words, offsets, words, counts, hashes):
    """Writes the words of all slots one after another, and their counts and hashes.

    Args:
      slots: and the long words, as in `count_words`.
      long_starts: of these.
      long_words: of these.
      offsets: int64[words + 1], becomes where each word begins in `words`.
      words: uint8, with room for SHORT bytes a word and for the long words.
      counts: int64[words].
      hashes: int64[words].
    """
    word, place = 0, 0
    for slot in range(slots.shape[0]):
        low, high = slots[slot, LOW], slots[slot, HIGH]
        if high == 0:
            continue
        offsets[word] = place
        counts[word] = slots[slot, COUNT]
        hashes[word] = _hash(low, high)
        if high < 0:
            for i in range(long_starts[high ^ _LONG], long_starts[(high ^ _LONG) + 1]):
                words[place] = long_words[i]
                place += 1
        else:
            for i in range(high >> 56):
                words[place + i] = low >> 8 * i if i < 8 else high >> 8 * (i - 8)
            place += high >> 56
        word += 1
    offsets[word] = place
