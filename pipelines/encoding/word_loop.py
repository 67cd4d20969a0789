"""The loop of `word_table.py`, compiled by numba: looks words up, encodes new ones, writes ids.

A slot of the hash table has four numbers:

    low     key of the word, see `word_slots`
    high    key of the word; 0 in a free slot
    ids     its first two ids                    if more than three: where they begin in the pool
    rest    its third id, and how many there are

Keys of a block of words are computed, and their slots prefetched, before the first is looked up.

Legend: N bytes of text, W words of a chunk, S slots (a power of two), L long words.
"""

from typing import NamedTuple

import numpy as np
from numba import types

from textmill.pipelines.encoding.splitter import FOUND, PIECE, TABLES, cut
from textmill.pipelines.encoding.word_merges import (
    MERGE_TABLES,
    NO_MERGES,
    merge_bytes,
    merge_characters,
)
from textmill.pipelines.encoding.word_pieces import NO_PIECES, PIECE_TABLES, encode_pieces
from textmill.pipelines.encoding.word_slots import (
    BYTES,
    HIGH,
    HIGH_MASK,
    INTS,
    KEPT,
    LEFT,
    LONG,
    LOW,
    LOW_MASK,
    MOST,
    SHORT,
    USED,
    find_slot,
    prefetch,
    short_hash,
)
from textmill.pipelines.host.compiled import entry, inner

IDS, REST = 2, 3  # slots[S, 4], int64, after LOW and HIGH
FIRST_ID, NUMBER = 4, 7  # slots viewed as uint32[S, 8]
POOL, ASKED = 2, 3  # at[4], after USED and LONG
DOCUMENT, PLACE, WORD, CHUNK, TAKEN = range(5)  # written[5]: the progress of writing ids
ASKED_FOR, BYTE_MERGES, CHARACTER_MERGES, PIECES = range(4)  # kinds of models
UNKEPT, FULL = -1, -2  # instead of a slot
NONE, ASK, WRITE, DONE = range(4)  # why the loop returns, if not FULL
# Instead of a number of ids, until `tokenizers` has encoded the word; and added to such a number.
PENDING, LISTED, UNKEPT_TOO = 2**32 - 1, 2**32 - 2, 1 << 31
WORDS = 1 << 11  # about as many in a chunk, whose arrays stay in a near cache
BLOCK = 512  # words whose keys are computed before they are looked up
INLINE = 3  # ids that a slot holds

EIGHTS = types.Array(types.int64, 1, "A", readonly=True, aligned=False)
_ROWS = types.int64[:, ::1]
_SLOTS = types.Tuple((_ROWS, types.uint32[:, ::1]))
_BLOCK = types.Tuple((*[types.int64[::1]] * 4, _ROWS, types.uint32[:, ::1], _ROWS))
_LONG_WORDS = types.Tuple((types.int64[::1], types.uint8[::1], EIGHTS))


class WordModel(NamedTuple):
    """A model that encodes words in the loop.

    Attributes:
      kind: ASKED_FOR, BYTE_MERGES, CHARACTER_MERGES or PIECES.
      merges: tables of `merges_of_bytes` or `merges_of_characters`.
      pieces: tables of `pieces_of`.
    """

    kind: int = ASKED_FOR
    merges: tuple[np.ndarray, ...] = NO_MERGES
    pieces: tuple[np.ndarray, ...] = NO_PIECES


@inner
def _encode_word(data, start, stop, model, scratch, ids, place):
    """Encodes a word of at most KEPT bytes.

    Args:
      data: uint8[N].
      start: where the word begins.
      stop: where it ends.
      model: a WordModel's fields.
      scratch: int64[5, MOST * KEPT + 1].
      ids: uint32, receives the ids.
      place: where they begin.

    Returns:
      The number of ids, or LEFT.
    """
    kind, merges, pieces = model
    if kind == BYTE_MERGES:
        return merge_bytes(data, start, stop, merges, scratch, ids, place)
    if kind == CHARACTER_MERGES:
        return merge_characters(data, start, stop, merges, scratch, ids, place)
    if kind == PIECES:
        return encode_pieces(data, start, stop, pieces, scratch, ids, place)
    return np.int64(LEFT)


@inner
def _give_ids(slots, numbers, slot, pool, first, number):
    """Writes the ids of a word, pool[first : first + number], to its slot."""
    numbers[slot, NUMBER] = number
    if number > INLINE:
        slots[slot, IDS] = first
    else:
        for j in range(number):
            numbers[slot, FIRST_ID + j] = pool[first + j]


@entry(types.void(INTS, INTS, _SLOTS, types.uint32[::1]))
def give_ids(new_slots, offsets, views, pool):
    """Writes the ids of words to their slots: pool[offsets[k] : offsets[k + 1]] for word k.

    Args:
      new_slots: int64[words]; negative for words without a slot.
      offsets: int64[words + 1].
      views: the slots, as int64[S, 4] and as uint32[S, 8].
      pool: uint32.
    """
    slots, numbers = views
    for k in range(new_slots.size):
        if new_slots[k] >= 0:
            number = offsets[k + 1] - offsets[k]
            _give_ids(slots, numbers, new_slots[k], pool, offsets[k], number)


@entry(types.void(BYTES, EIGHTS, INTS, types.uint32[::1], _SLOTS, _LONG_WORDS, types.int64[::1]))
def enter_words(data, eights, starts, ids, views, long_words, at):
    """Enters words of one id each in a table that has room for them.

    Args:
      data: uint8[N].
      eights: int64[N - 7], the eight bytes from each byte of `data` on.
      starts: int64[W + 1], where words start in `data`, and where the last ends.
      ids: uint32[W].
      views: the slots, as int64[S, 4] and as uint32[S, 8].
      long_words: as in `encode_words`.
      at: int64[4].
    """
    slots, numbers = views
    for n in range(ids.size):
        slot = find_slot(data, eights, starts[n], starts[n + 1] - starts[n], slots, long_words, at)
        if slot < 0:
            _give_ids(slots, numbers, -1 - slot, ids, n, 1)


@inner
def _has_room(slots, long_words, pool, at):
    """Whether the table has room for one more word."""
    begins, letters, _ = long_words
    return (
        2 * (at[USED] + 1) < slots.shape[0]
        and at[LONG] + 2 < begins.size
        and begins[at[LONG]] + KEPT <= letters.size
        and at[POOL] + MOST * KEPT <= pool.size
    )


def new_block() -> tuple[np.ndarray, ...]:
    """Arrays for the words of a block.

    Returns:
      low, high and slot of each word, and the words that were not found: int64[BLOCK] or more; the
      second half of each word's slot as int64[BLOCK, 2] and uint32[BLOCK, 4]; and scratch memory of
      models, int64[5, MOST * KEPT + 1].
    """
    rows = np.empty((BLOCK, 2), np.int64)
    numbers = (np.empty(BLOCK + 1, np.int64) for _ in range(4))
    return *numbers, rows, rows.view(np.uint32), np.empty((5, MOST * KEPT + 1), np.int64)


@inner
def _look_up(text, starts, slots, block):
    """Reads the slot of each word of a block, if its first two numbers are the word's.

    It does not branch, so that a processor waits for many slots at once.

    Args:
      text: as in `encode_words`.
      starts: int64[words + 1].
      slots: int64[S, 4].
      block: arrays of `new_block`.

    Returns:
      The number of words in `missed`, which were not found or have no ids yet.
    """
    data, eights = text
    lows, highs, places, missed, rows, _, _ = block
    words, last = starts.size - 1, slots.shape[0] - 1
    near = words
    while near > 0 and starts[near - 1] + 16 > data.size:
        near -= 1  # fewer than 16 bytes follow its start
    for k in range(np.uint64(near)):
        start = starts[k]
        size = starts[k + np.uint64(1)] - start
        masked = np.uint64(min(size, SHORT))
        low = eights[np.uint64(start)] & LOW_MASK[masked]
        high = eights[np.uint64(start + 8)] & HIGH_MASK[masked] | size << 56
        slot = short_hash(low, high) & last
        prefetch(slots, slot)  # without it, encoding takes half as long again on a busy machine
        lows[k], highs[k], places[k] = low, high if size <= SHORT else -1, slot
    misses = np.uint64(0)
    for k in range(np.uint64(near)):
        slot = np.uint64(places[k])
        rows[k, 0], rows[k, 1] = slots[slot, IDS], slots[slot, REST]
        missed[misses] = k
        differs = (slots[slot, LOW] != lows[k]) | (slots[slot, HIGH] != highs[k])
        misses += np.uint64(differs | (rows[k, 1] < 0))
    for n in range(near, words):
        missed[misses] = n
        misses += np.uint64(1)
    return np.int64(misses)


@inner
def _write_ids(starts, offsets, block, pool, ids, id_offsets, written):
    """Writes the ids of words until `ids` is full; returns the number of words.

    Args:
      starts: int64[words + 1].
      offsets: int64[documents + 1], where documents begin in the text.
      block: arrays of `new_block`.
      pool: uint32, the ids of words with more than three.
      ids: uint32, written from written[PLACE] on.
      id_offsets: int64[documents + 1], receives where the ids of a document begin.
      written: int64[5].
    """
    _, _, _, _, rows, answers, _ = block
    document, place, room = written[DOCUMENT], written[PLACE], ids.size - INLINE
    end, n, words = offsets[document + 1], 0, starts.size - 1
    while n < words and place <= room:
        word, first = np.uint64(n), np.uint64(place)
        while end <= starts[word]:
            document += 1
            id_offsets[document] = place
            end = offsets[document + 1]
        number = np.int64(answers[word, INLINE])
        if number <= INLINE:
            ids[first] = answers[word, 0]
            ids[first + np.uint64(1)] = answers[word, 1]
            ids[first + np.uint64(2)] = answers[word, 2]
        else:
            is_unkept = number >= UNKEPT_TOO
            number &= UNKEPT_TOO - 1
            if place + number > room:
                break
            for j in range(number):
                ids[place + j] = pool[rows[n, 0] + j]
            written[TAKEN] += 2 * is_unkept
        place += number
        n += 1
    written[DOCUMENT], written[PLACE] = document, place
    return n


@inner
def _find(text, start, stop, table, model, scratch):
    """The slot of a word; a new one is entered. UNKEPT: it is too long; FULL: no room."""
    views, long_words, pool, at = table
    slots, numbers = views
    if stop - start > KEPT:
        return np.int64(UNKEPT)
    if not _has_room(slots, long_words, pool, at):
        return np.int64(FULL)
    slot = find_slot(text[0], text[1], start, stop - start, slots, long_words, at)
    if slot >= 0:
        return slot
    number = _encode_word(text[0], start, stop, model, scratch, pool, at[POOL])
    if number == LEFT:
        numbers[-1 - slot, NUMBER] = PENDING
    else:
        _give_ids(slots, numbers, -1 - slot, pool, at[POOL], number)
        at[POOL] += number if number > INLINE else 0
    return -1 - slot


@inner
def _list_words(text, starts, table, model, scratch, asked):
    """Lists the words that `tokenizers` must encode, and enters those of them that are new."""
    numbers, at = table[0][1], table[3]
    at[ASKED] = 0
    for n in range(starts.size - 1):
        slot = _find(text, starts[n], starts[n + 1], table, model, scratch)
        if slot == FULL:
            break
        if slot == UNKEPT or numbers[slot, NUMBER] == PENDING:
            asked[0, at[ASKED]], asked[1, at[ASKED]] = starts[n], starts[n + 1]
            asked[2, at[ASKED]] = slot
            at[ASKED] += 1
            if slot >= 0:
                numbers[slot, NUMBER] = LISTED


@entry(
    types.int64(
        types.Tuple((BYTES, EIGHTS)),
        types.Tuple((INTS, TABLES, INTS, types.int64[::1], types.int64[::1])),
        types.Tuple((_SLOTS, _LONG_WORDS, types.uint32[::1], types.int64[::1])),
        types.Tuple((types.int64, MERGE_TABLES, PIECE_TABLES)),
        types.Tuple((_ROWS, INTS)),
        _BLOCK,
        types.Tuple((INTS, types.uint32[::1], types.int64[::1], types.int64[::1])),
    ),
    allocates=False,
)
def encode_words(text, cutting, table, model, asking, block, out):
    """Cuts text into words, looks them up and writes their ids, about WORDS at a time.

    The loop returns when the caller must act, and continues there in the next call.

    Args:
      text: data, uint8[N]; eights, int64[N - 7], the eight bytes from each byte on.
      cutting: pieces, tables, shifts, starts and at, as in `cut`.
      table: the slots, all zeros at first, as int64[S, 4] and as uint32[S, 8]; long words:
        where they begin, int64[L + 1], the words joined, uint8, and the eight bytes from each
        byte of these on; the pool of ids, uint32; at, int64[4].
      model: a WordModel's fields.
      asking: int64[3, W], receives start and end of at[ASKED] words that `tokenizers` must
        encode, and their slots, or UNKEPT; and where the ids of those without a slot begin in
        the pool, and end: int64[2 words].
      block: arrays of `new_block`.
      out: where documents begin in the text; the ids; where the ids of documents begin;
        progress, int64[5].

    Returns:
      FULL: the table has no room for one more word. ASK: words are in `asking`. WRITE: `ids` is
      full. DONE.
    """
    data, _ = text
    pieces, tables, shifts, starts, cut_at = cutting
    (slots, _), _, pool, _ = table
    asked, unkept = asking
    offsets, ids, id_offsets, written = out
    _, _, _, missed, rows, answers, scratch = block
    reason = np.int64(NONE)
    while reason == NONE:
        n, words = written[WORD], written[CHUNK]
        if n == words:
            left = cut_at[FOUND] - words
            for k in range(left):
                starts[k] = starts[words + k]
            cut_at[FOUND], written[WORD], written[CHUNK] = left, 0, 0
            if cut_at[PIECE] < pieces.size - 1:
                words = cut(data, pieces, tables, shifts, starts, cut_at, WORDS)
                written[CHUNK] = max(words, 0)
            else:
                reason = np.int64(DONE)
            continue
        stop, ahead = min(words, n + BLOCK), written[TAKEN]
        misses = _look_up(text, starts[n : stop + 1], slots, block)
        for miss in range(misses):
            k = missed[miss]
            slot = _find(text, starts[n + k], starts[n + k + 1], table, model, scratch)
            if slot >= 0:
                rows[k, 0], rows[k, 1] = slots[slot, IDS], slots[slot, REST]
                if answers[k, INLINE] < LISTED:
                    continue
            elif slot == UNKEPT and ahead < unkept.size:
                rows[k, 0] = unkept[ahead]
                answers[k, INLINE] = unkept[ahead + 1] - unkept[ahead] | UNKEPT_TOO
                ahead += 2
                continue
            stop, reason = n + k, np.int64(FULL if slot == FULL else ASK)
            break
        number = _write_ids(starts[n : stop + 1], offsets, block, pool, ids, id_offsets, written)
        written[WORD] = n + number
        if n + number < stop:
            reason = np.int64(WRITE)
        elif reason == ASK:
            _list_words(text, starts[stop : words + 1], table, model, scratch, asked)
            written[TAKEN] = 0
    return reason
