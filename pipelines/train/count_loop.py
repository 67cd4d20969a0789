"""Counts words, compiled by numba. Called by `word_counter.py`.

How counts lie in memory: a hash table of three numbers a slot, low and high of the word, see
`word_slots`, and its count. A loop stops where a table is full, and goes on
when its caller has made a larger one.

Legend: N bytes of text, W words, S slots (a power of two), L long words.
"""

from numba import types

from pipelines.encoding.word_slots import (
    HIGH,
    HIGH_MASK,
    LONG,
    LOW,
    LOW_MASK,
    NUMBERED,
    SHORT,
    USED,
    find_slot,
    short_hash,
)
from pipelines.host.compiled import entry, inner

COUNT = 2  # slots[S, 3], after LOW and HIGH


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
        low = eights[starts[n]] & LOW_MASK[masked]
        high = eights[starts[n] + 8] & HIGH_MASK[masked] | size << 56
        high = high if size <= SHORT else -1
        slot = short_hash(low, high) & last
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
        slot = find_slot(data, eights, starts[n], size, slots, tables[1:], at)
        slots[max(slot, -1 - slot), COUNT] += counts[n]
    return True


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
        hashes[word] = low if high < 0 else short_hash(low, high)
        if high < 0:
            for i in range(long_starts[high ^ NUMBERED], long_starts[(high ^ NUMBERED) + 1]):
                words[place] = long_words[i]
                place += 1
        else:
            for i in range(high >> 56):
                words[place + i] = low >> 8 * i if i < 8 else high >> 8 * (i - 8)
            place += high >> 56
        word += 1
    offsets[word] = place
