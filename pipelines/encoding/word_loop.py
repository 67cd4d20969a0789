"""The loop of `word_table.py`, compiled by numba: looks words up and writes their ids.

A slot of the hash table has four numbers:

    low     key of the word, see `word_slots`
    high    key of the word; 0 in a free slot
    ids     its first two ids                    if more than three: where they begin in the pool
    rest    its third id, and how many there are

Each pass over a chunk of words does little per word, so that a processor works on many at once, and
reads a slot, which is rarely in a near cache, once. The passes call no functions that take arrays,
since numba would count references.

Legend: N bytes of text, W words of a chunk, S slots (a power of two), L long words.
"""

import numpy as np
from numba import types

from textmill.pipelines.encoding.splitter import FOUND, PIECE, TABLES, cut
from textmill.pipelines.encoding.word_slots import (
    HIGH,
    HIGH_MASK,
    LONG,
    LOW,
    LOW_MASK,
    SHORT,
    USED,
    find_slot,
    prefetch,
    short_hash,
)
from textmill.pipelines.runtime.compiled import entry, inner

IDS, REST = 2, 3  # slots[S, 4], int64, after LOW and HIGH
FIRST_ID, NUMBER = 4, 7  # slots viewed as uint32[S, 8]
POOL, NEW, MISSES = range(2, 5)  # at[5], after USED and LONG: the table's and the chunk's
DOCUMENT, PLACE, WORD, CHUNK = range(4)  # written[4]: the progress of writing ids
CUT, FIND, FILL, WRITE, DONE = range(5)  # stages of a chunk
WORDS = 1 << 11  # about as many in a chunk, whose arrays take 100 kB
MISSED, NEW_WORDS, NEW_SLOTS = range(3)  # scratch[3, W]
BLOCK = 512  # words whose keys are computed before they are looked up
INLINE = 3  # ids that a slot holds

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_EIGHTS = types.Array(types.int64, 1, "A", readonly=True, aligned=False)
_INTS = types.Array(types.int64, 1, "C", readonly=True)
_IDS = types.Array(types.uint32, 1, "C", readonly=True)
_ROWS = types.int64[:, ::1]
_SLOTS = types.Tuple((_ROWS, types.uint32[:, ::1]))
_LONG_WORDS = types.Tuple((types.int64[::1], types.uint8[::1], _EIGHTS))


# ---- words -> slots ----


@inner
def _find_words(data, eights, starts, slots, long_words, at, scratch, becomes):
    """Finds the slot of each word. A new word gets a slot, which the caller must fill.

    Args:
      data: uint8[N].
      eights: int64[N - 7], the eight bytes from each byte of `data` on.
      starts: int64[W + 1], where words start in `data`, and where the last ends.
      slots: int64[S, 4], all zeros at first, with room for all words.
      long_words: where they begin, int64[L + 1]; the words joined, uint8; the eight bytes from each
        byte of these on. With room for all words.
      at: int64[5].
      scratch: int64[3, W]. Row MISSED receives the numbers of at[MISSES] words without an answer
        yet; NEW_WORDS and NEW_SLOTS those of at[NEW] new words, and their slots.
      becomes: receives the slot of each word, int64[W]; and its answer, the second half of its
        slot, int64[W, 2].
    """
    found, answers = becomes
    last = slots.shape[0] - 1
    words, near = starts.size - 1, starts.size - 1
    lows, highs = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    while near > 0 and starts[near - 1] + 16 > data.size:
        near -= 1  # fewer than 16 bytes follow its start
    misses = 0
    for block in range(0, near, BLOCK):
        size_of_block = np.uint64(min(BLOCK, near - block))
        for k in range(size_of_block):
            n = np.uint64(block) + k
            start = starts[n]
            size = starts[n + np.uint64(1)] - start
            masked = np.uint64(min(size, SHORT))
            low = eights[np.uint64(start)] & LOW_MASK[masked]
            high = eights[np.uint64(start + 8)] & HIGH_MASK[masked] | size << 56
            slot = short_hash(low, high) & last
            prefetch(slots, slot)  # without it, encoding takes half as long again on a busy machine
            lows[k], highs[k] = low, high if size <= SHORT else -1
            found[n] = slot
        for k in range(size_of_block):
            n = np.uint64(block) + k
            slot = np.uint64(found[n])
            answers[n, 0], answers[n, 1] = slots[slot, IDS], slots[slot, REST]
            scratch[MISSED, np.uint64(misses)] = n
            misses += (slots[slot, LOW] != lows[k]) | (slots[slot, HIGH] != highs[k])
    for n in range(near, words):
        scratch[MISSED, misses] = n
        misses += 1
    new = 0
    for miss in range(misses):
        n = scratch[MISSED, miss]
        size = starts[n + 1] - starts[n]
        slot = find_slot(data, eights, starts[n], size, slots, long_words, at)
        scratch[NEW_WORDS, new], scratch[NEW_SLOTS, new] = n, -1 - slot
        new += slot < 0
        found[n] = max(slot, -1 - slot)
    at[NEW], at[MISSES] = new, misses


# ---- the ids of new words ----


@entry(types.void(_INTS, _IDS, _INTS, _SLOTS, types.uint32[::1], types.int64[::1]))
def fill_slots(new_slots, ids, offsets, views, pool, at):
    """Writes the ids of new words to their slots: ids[offsets[k] : offsets[k + 1]] for word k.

    Args:
      new_slots: int64[words].
      ids: uint32.
      offsets: int64[words + 1].
      views: the slots, as int64[S, 4] and as uint32[S, 8].
      pool: uint32, with room for all ids.
      at: int64[5].
    """
    slots, numbers = views
    for k in range(new_slots.size):
        slot, first, number = new_slots[k], offsets[k], offsets[k + 1] - offsets[k]
        numbers[slot, NUMBER] = number
        if number <= INLINE:
            for j in range(number):
                numbers[slot, FIRST_ID + j] = ids[first + j]
        else:
            slots[slot, IDS] = at[POOL]
            for j in range(number):
                pool[at[POOL] + j] = ids[first + j]
            at[POOL] += number


# ---- slots -> ids ----


@inner
def _write_ids(starts, offsets, answers, pool, ids, id_offsets, written):
    """Writes the ids of a chunk's words until `ids` is full.

    Args:
      starts: int64[W + 1].
      offsets: int64[documents + 1], where documents begin in the text.
      answers: the second half of each word's slot, as int64[W, 2] and as uint32[W, 4].
      pool: uint32, the ids of words with more than INLINE.
      ids: uint32, written from written[PLACE] on.
      id_offsets: int64[documents + 1], receives where the ids of a document begin.
      written: int64[4]; written[WORD] is W when all ids are written.
    """
    rows, numbers = answers
    document, place = written[DOCUMENT], written[PLACE]
    n, room = written[WORD], ids.size - INLINE
    end = offsets[document + 1]
    while n < starts.size - 1:
        word, first = np.uint64(n), np.uint64(place)
        number = np.int64(numbers[word, INLINE])
        if place > room or place + number > ids.size:
            break
        while end <= starts[word]:
            document += 1
            id_offsets[document] = place
            end = offsets[document + 1]
        if number <= INLINE:
            ids[first] = numbers[word, 0]
            ids[first + np.uint64(1)] = numbers[word, 1]
            ids[first + np.uint64(2)] = numbers[word, 2]
        else:
            start = rows[n, 0]
            for j in range(number):
                ids[place + j] = pool[start + j]
        place += number
        n += 1
    written[DOCUMENT], written[PLACE], written[WORD] = document, place, n


# ---- text -> ids ----


_STARTS = types.int64[::1]


@inner
def _has_room(starts, slots, long_words, at):
    """Whether the table has room for these words if all are new."""
    words, size = starts.size - 1, starts[starts.size - 1] - starts[0]
    begins, letters, _ = long_words
    return (
        2 * (at[USED] + words + 1) <= slots.shape[0]
        and at[LONG] + 1 + size // SHORT + 1 <= begins.size
        and begins[at[LONG]] + size <= letters.size
    )


@entry(
    types.int64(
        types.int64,
        types.Tuple((_BYTES, _EIGHTS)),
        types.Tuple((_INTS, TABLES, _INTS, _STARTS, _STARTS)),
        types.Tuple((_ROWS, _LONG_WORDS, types.uint32[::1], _STARTS)),
        types.Tuple((_ROWS, _STARTS, _ROWS, types.uint32[:, ::1])),
        types.Tuple((_INTS, types.uint32[::1], _STARTS, _STARTS)),
    )
)
def encode_words(stage, text, cutting, table, chunk, out):
    """Cuts text into words, looks them up and writes their ids, about WORDS at a time.

    A chunk stays in a near cache from one pass to the next. The loop returns when the caller must
    act, and continues there in the next call.

    Args:
      stage: CUT at first; later the value that was returned.
      text: data and eights, as in `_find_words`.
      cutting: pieces, tables, shifts, starts and at, as in `cut`.
      table: slots, long words, the pool of ids, and at, as in `_find_words`.
      chunk: scratch; slots of words; their answers, as int64 and as uint32.
      out: where documents begin in the text; the ids; where the ids of documents begin; progress,
        int64[4].

    Returns:
      FIND: the table may be too small for the words of the chunk. FILL: some words are new and
      have no ids yet. WRITE: `ids` is full. DONE.
    """
    data, eights = text
    pieces, tables, shifts, starts, cut_at = cutting
    slots, long_words, pool, at = table
    scratch, found, rows, numbers = chunk
    offsets, ids, id_offsets, written = out
    while True:
        if stage == CUT:
            if cut_at[PIECE] >= pieces.size - 1:
                return DONE
            words = cut(data, pieces, tables, shifts, starts, cut_at, WORDS)
            if words <= 0:
                continue
            written[CHUNK], written[WORD] = words, 0
            if not _has_room(starts[: words + 1], slots, long_words, at):
                return FIND
            stage = FIND
        words = written[CHUNK]
        own = starts[: words + 1]
        if stage == FIND:
            _find_words(data, eights, own, slots, long_words, at, scratch, (found, rows))
            stage = FILL
            if at[NEW]:
                return FILL
        if stage == FILL:
            for miss in range(at[MISSES]):
                n = scratch[MISSED, miss]
                rows[n, 0], rows[n, 1] = slots[found[n], IDS], slots[found[n], REST]
            stage = WRITE
        _write_ids(own, offsets, (rows, numbers), pool, ids, id_offsets, written)
        if written[WORD] < words:
            return WRITE
        left = cut_at[FOUND] - words
        for n in range(left):
            starts[n] = starts[words + n]
        cut_at[FOUND] = left
        stage = CUT
