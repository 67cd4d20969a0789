"""Looks words up and writes their ids, compiled by numba. Called by `word_table.py`.

How words lie in memory: a hash table of four numbers a slot.

    low     of the word, see `word_slots`
    high    likewise; 0 in a free slot
    ids     the first two of its ids             where its ids begin in the pool, if more than three
    rest    the third, and how many there are

Each pass over a chunk of words does little for one of them, so that a
processor has many under way at once, and a slot, which is seldom in a near cache, is read once.
Functions that take arrays are not called in those passes, for numba would count references.

Legend: N bytes of text, W words of a chunk, S slots (a power of two), L long words, U words of a
chunk that are too long to be kept.
"""

import numpy as np
from numba import types

from pipelines.encoding.splitting.cut_loop import FOUND, PIECE, TABLES, cut
from pipelines.encoding.word_slots import (
    HIGH,
    HIGH_MASK,
    LONG,
    LOW,
    LOW_MASK,
    ODD,
    SHORT,
    USED,
    find_slot,
    prefetch,
    short_hash,
)
from pipelines.host.compiled import entry, inner
from pipelines.rows.text_bytes import code_point

IDS, REST = 2, 3  # slots[S, 4], int64, after LOW and HIGH
FIRST_ID, NUMBER = 4, 7  # of the same as uint32[S, 8]
POOL, NEW, UNKEPT, MISSES = range(2, 6)  # at[6], after USED and LONG: the table's and the chunk's
DOCUMENT, PLACE, WORD, CHUNK = range(4)  # written[4]: how far the writing of ids has come
CUT, FIND, FILL, WRITE, DONE = range(5)  # stages of a chunk
WORDS = 1 << 11  # of a chunk, about: its arrays are 100 kB
MISSED, NEW_WORDS, NEW_SLOTS, UNKEPT_WORDS = range(4)  # scratch[4, W]
BLOCK = 512  # words whose keys are known before they are looked for
INLINE = 3  # ids that a slot holds
KEPT = 256  # bytes of the longest word that is kept
_NO_MERGE = np.int64(2**62)

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_EIGHTS = types.Array(types.int64, 1, "A", readonly=True, aligned=False)
_INTS = types.Array(types.int64, 1, "C", readonly=True)
_IDS = types.Array(types.uint32, 1, "C", readonly=True)
_ROWS = types.int64[:, ::1]
_SLOTS = types.Tuple((_ROWS, types.uint32[:, ::1]))
_FOUND = types.Tuple((types.int64[::1], _ROWS))
_ANSWERS = types.Tuple((_ROWS, types.uint32[:, ::1]))
_LONG_WORDS = types.Tuple((types.int64[::1], types.uint8[::1], _EIGHTS))


# ---- words -> slots ----


@inner
def _find_words(data, eights, starts, slots, long_words, at, scratch, becomes):
    """Finds the slot of each word. Those that are new get one, which the caller must fill.

    Args:
      data: uint8[N].
      eights: int64[N - 7], the eight bytes of it from each byte on.
      starts: int64[W + 1], where words start in it, and where the last ends.
      slots: int64[S, 4], all zeros in the beginning, with room for all if all are new.
      long_words: where they begin, int64[L + 1]; the words one after another, uint8; the eight
        bytes of these from each byte on. With room for all, too.
      at: int64[6].
      scratch: int64[4, W]. Its row MISSED becomes at[MISSES] words without an answer yet, by their
        number in the chunk; NEW_WORDS and NEW_SLOTS at[NEW] words that are new, and their slots;
        UNKEPT_WORDS those too long to be kept.
      becomes: of each word its slot, or -1 - its place in UNKEPT_WORDS, int64[W]; and its answer,
        the latter half of its slot, int64[W, 2].
    """
    found, answers = becomes
    last = slots.shape[0] - 1
    words, near = starts.size - 1, starts.size - 1
    lows, highs = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    while near > 0 and starts[near - 1] + 16 > data.size:
        near -= 1  # from its start on there are no 16 bytes
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
            prefetch(slots, slot)
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
    new, unkept = 0, 0
    for miss in range(misses):
        n = scratch[MISSED, miss]
        size = starts[n + 1] - starts[n]
        if size > KEPT:
            scratch[UNKEPT_WORDS, unkept] = n
            unkept += 1
            found[n] = -unkept
            continue
        slot = find_slot(data, eights, starts[n], size, slots, long_words, at)
        scratch[NEW_WORDS, new], scratch[NEW_SLOTS, new] = n, -1 - slot
        new += slot < 0
        found[n] = max(slot, -1 - slot)
    at[NEW], at[UNKEPT], at[MISSES] = new, unkept, misses


@entry(types.void(_BYTES, _EIGHTS, _INTS, _ROWS, _LONG_WORDS, types.int64[::1], _ROWS, _FOUND))
def find_words(data, eights, starts, slots, long_words, at, scratch, becomes):
    """As `_find_words`, of words that are cut already."""
    _find_words(data, eights, starts, slots, long_words, at, scratch, becomes)


# ---- the ids of new words ----


@entry(types.void(_INTS, _IDS, _INTS, _SLOTS, types.uint32[::1], types.int64[::1]))
def fill_slots(new_slots, ids, offsets, views, pool, at):
    """Gives new words their ids: ids[offsets[k] : offsets[k + 1]] those of number k.

    Args:
      new_slots: int64[words].
      ids: uint32.
      offsets: int64[words + 1].
      views: the slots, as int64[S, 4] and as uint32[S, 8].
      pool: uint32, with room for all.
      at: int64[6].
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


@entry(types.void(_ROWS, _INTS, _INTS))
def enter_merges(merges, pairs, results):
    """Makes the hash table of merges: a row is a pair of ids and its result, -1 in a free one.

    Of merges that are there twice, the last one counts, as with `tokenizers`.

    Args:
      merges: int64[a power of two, 2], all -1.
      pairs: int64, the left id << 32 | the right one.
      results: int64, the rank << 32 | the id they are merged to.
    """
    last = merges.shape[0] - 1
    for k in range(pairs.size):
        slot = pairs[k] * ODD
        slot = (slot ^ slot >> 32) & last
        while merges[slot, 1] >= 0 and merges[slot, 0] != pairs[k]:
            slot = (slot + 1) & last
        merges[slot, 0], merges[slot, 1] = pairs[k], results[k]


@inner
def _merge_once(merges, symbols, results, where):
    """What the pair of symbols at `where` merges to, into `results`."""
    pair = symbols[where] << 32 | symbols[where + 1]
    last = merges.shape[0] - 1
    slot = pair * ODD
    slot = (slot ^ slot >> 32) & last
    while merges[slot, 1] >= 0 and merges[slot, 0] != pair:
        slot = (slot + 1) & last
    results[where] = merges[slot, 1] if merges[slot, 1] >= 0 else _NO_MERGE


@inner
def _merge_all(merges, symbols, results, number):
    """Merges the pair of the lowest rank, the first of several, until none is left to merge.

    Args:
      merges: as `enter_merges` makes them.
      symbols: int64, ids; becomes those of the word.
      results: what each merges to with the next one.
      number: of symbols.

    Returns:
      How many symbols are left.
    """
    while number > 1:
        where = 0
        for j in range(1, number - 1):
            where = j if results[j] < results[where] else where
        if results[where] == _NO_MERGE:
            break
        symbols[where] = results[where] & 0xFFFF_FFFF
        number -= 1
        for j in range(where + 1, number):
            symbols[j], results[j - 1] = symbols[j + 1], results[j]
        if where > 0:
            _merge_once(merges, symbols, results, where - 1)
        if where < number - 1:
            _merge_once(merges, symbols, results, where)
    return number


@inner
def _append(symbols, number, k, ids, offsets, total):
    """Writes the ids of the k-th word behind the `total` ids before it; returns the new total."""
    offsets[k] = total
    for j in range(number):
        ids[total + j] = symbols[j]
    return total + number


@entry(types.void(_INTS, _ROWS, types.int64[::1]))
def enter_byte_pairs(byte_ids, merges, of_pairs):
    """What two bytes merge to, int64[65536], as `enter_merges` has it; _NO_MERGE if they do not."""
    symbols = np.empty(2, np.int64)
    for pair in range(of_pairs.size):
        symbols[0], symbols[1] = byte_ids[pair >> 8], byte_ids[pair & 255]
        _merge_once(merges, symbols, of_pairs[pair : pair + 1], 0)


@entry(
    types.int64(
        _BYTES,
        _INTS,
        _INTS,
        types.Tuple((_INTS, _INTS, _ROWS)),
        types.uint32[::1],
        types.int64[::1],
    )
)
def merge_bytes(data, starts, words, tables, ids, offsets):
    """Byte-level BPE of some words: of all pairs, the one of the lowest rank is merged, and again.

    Args:
      data: uint8[N].
      starts: int64[W + 1], of words in it.
      words: int64, which of these, each of at most KEPT bytes.
      tables: ids of bytes, int64[256]; of pairs of them, as `enter_byte_pairs` makes it; merges as
        `enter_merges` makes them.
      ids: uint32, with room for an id a byte; becomes the ids of all of them.
      offsets: int64[words + 1], becomes where those of each begin.

    Returns:
      How many ids there are.
    """
    byte_ids, of_pairs, merges = tables
    symbols, results = np.empty(KEPT, np.int64), np.empty(KEPT, np.int64)
    total = 0
    for k in range(words.size):
        start = starts[words[k]]
        number = starts[words[k] + 1] - start
        for j in range(number):
            symbols[j] = byte_ids[data[start + j]]
        for j in range(number - 1):
            results[j] = of_pairs[np.int64(data[start + j]) << 8 | data[start + j + 1]]
        number = _merge_all(merges, symbols, results, number)
        total = _append(symbols, number, k, ids, offsets, total)
    offsets[words.size] = total
    return total


@entry(
    types.int64(
        _BYTES,
        _INTS,
        _INTS,
        types.Tuple((_INTS, _INTS, _ROWS)),
        types.uint32[::1],
        types.int64[::1],
    )
)
def merge_characters(data, starts, words, tables, ids, offsets):
    """BPE of words of characters; one that is no token begins as its bytes (SentencePiece).

    Args and returns: see `merge_bytes`, but for
      tables: ids of characters, int64[code points], -1 for those that are no tokens; ids of bytes,
        int64[256]; merges as `enter_merges` makes them.
    """
    character_ids, byte_ids, merges = tables
    symbols, results = np.empty(KEPT, np.int64), np.empty(KEPT, np.int64)
    total = 0
    for k in range(words.size):
        i, number = starts[words[k]], 0
        while i < starts[words[k] + 1]:
            point, size = code_point(data, i)
            if character_ids[point] >= 0:
                symbols[number] = character_ids[point]
                number += 1
            else:
                for j in range(size):
                    symbols[number + j] = byte_ids[data[i + j]]
                number += size
            i += size
        for j in range(number - 1):
            _merge_once(merges, symbols, results, j)
        number = _merge_all(merges, symbols, results, number)
        total = _append(symbols, number, k, ids, offsets, total)
    offsets[words.size] = total
    return total


# ---- slots -> ids ----


@inner
def _answer_missed(missed, answers, found, slots, unkept):
    """Answers for the words that were not where their hash says, and moves them there.

    Each changes places with the word that was there, which is as easily found in its new slot: all
    slots between the two are taken.

    Args:
      missed: int64, which.
      answers: the latter half of each word's slot, as int64[W, 2] and as uint32[W, 4].
      found: int64[W], slots, or -1 - a number among those not kept.
      slots: int64[S, 4].
      unkept: ids of the words that are not kept, uint32, and where those of each begin, int64[U+1].
    """
    rows, numbers = answers
    long_ids, long_offsets = unkept
    last = slots.shape[0] - 1
    for n in missed:
        slot = found[n]
        if slot >= 0:
            rows[n, 0], rows[n, 1] = slots[slot, IDS], slots[slot, REST]
        else:
            first = long_offsets[-slot - 1]
            number = long_offsets[-slot] - first
            rows[n, 0] = first
            if number <= INLINE:
                for j in range(number):
                    numbers[n, j] = long_ids[first + j]
            numbers[n, INLINE] = number
    for n in missed:  # whatever word is in the slot now moves to where its hash says
        slot = found[n]
        if slot >= 0:
            low, high = slots[slot, LOW], slots[slot, HIGH]
            home = (low if high < 0 else short_hash(low, high)) & last
            if home != slot:
                for column in range(4):
                    word = slots[slot, column]
                    slots[slot, column], slots[home, column] = slots[home, column], word


@inner
def _write_ids(words, offsets, answers, pools, ids, id_offsets, written):
    """Writes the ids of a chunk's words, as far as there is room.

    Args:
      words: of each its slot, negative if it is not kept, int64[W], and its start, int64[W + 1].
      offsets: int64[documents + 1], where documents begin in the text.
      answers: as `answer_missed` has completed them.
      pools: uint32, ids of words that are kept and of those that are not.
      ids: uint32, written from written[PLACE] on.
      id_offsets: int64[documents + 1], becomes where those of a document begin.
      written: int64[4]; WORD becomes W when all is written.
    """
    found, starts = words
    rows, numbers = answers
    pool, long_ids = pools
    document, place = written[DOCUMENT], written[PLACE]
    n, room = written[WORD], ids.size - INLINE
    end = offsets[document + 1]
    while n < found.size:
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
                ids[place + j] = pool[start + j] if found[n] >= 0 else long_ids[start + j]
        place += number
        n += 1
    written[DOCUMENT], written[PLACE], written[WORD] = document, place, n


# ---- text -> ids ----


_STARTS = types.int64[::1]


@inner
def _has_room(starts, slots, long_words, at):
    """Whether the table holds these words if all of them are new."""
    words, size = starts.size - 1, starts[starts.size - 1] - starts[0]
    size = min(size, words * KEPT)
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
        types.Tuple((_IDS, _INTS)),
        types.Tuple((_INTS, types.uint32[::1], _STARTS, _STARTS)),
    )
)
def encode_words(stage, text, cutting, table, chunk, unkept, out):
    """Cuts text into words, finds them and writes their ids, WORDS at a time.

    What a chunk holds stays in a near cache from one pass to the next. Returns where the caller has
    to do something, and goes on from there when it is called again.

    Args:
      stage: CUT in the beginning; later what it returned.
      text: data and eights, as in `_find_words`.
      cutting: pieces, tables, shifts, starts and at, as in `cut`.
      table: slots, long words, the pool of ids, and at, as in `_find_words`.
      chunk: scratch; of each word its slot; its answer, as int64 and as uint32.
      unkept: ids of words that are not kept, and where those of each begin.
      out: where documents begin in the text; ids, which are written; where those of documents
        begin; how far that has come, int64[4], WORDS of the chunk among it.

    Returns:
      FIND: the table may be too small for the words of the chunk. FILL: some words are new, or not
      kept, and have no ids yet. WRITE: there is no room for ids. DONE.
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
            if at[NEW] or at[UNKEPT]:
                return FILL
        if stage == FILL:
            missed = scratch[MISSED, : at[MISSES]]
            _answer_missed(missed, (rows, numbers), found, slots, unkept)
            stage = WRITE
        _write_ids(
            (found[:words], own),
            offsets,
            (rows, numbers),
            (pool, unkept[0]),
            ids,
            id_offsets,
            written,
        )
        if written[WORD] < words:
            return WRITE
        left = cut_at[FOUND] - words
        for n in range(left):
            starts[n] = starts[words + n]
        cut_at[FOUND] = left
        stage = CUT
