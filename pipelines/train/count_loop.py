r"""Cuts text into words and counts them, compiled by numba. Called by `word_counts.py`.

A word is what GPT-2's pattern matches, tried from left to right where the last one ended:

    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

Source: Radford et al. 2019, https://github.com/openai/gpt-2/blob/master/src/encoder.py. In terms of
runs of characters of one class (letters, numbers, white space, others) that is: a word is a run,
but the last white space of a run goes to what follows it if it is a space, and is a word of its own
if not; and an apostrophe that begins a word takes such letters along.

Cutting a whole chunk before its words are looked up keeps the loops without branches that a
processor must guess: five times as fast as word by word.

How counts lie in memory: a hash table of three numbers a slot.

    low    bytes 0 to 7 of the word             a word of 16 bytes or more: a hash of it
    high   bytes 8 to 14 and, on top, its size  2**63 + its number in the table of long words
    count  of it; `high` is 0 in a free slot

So most words are found by comparing two numbers. A loop stops where a table is full, and goes on
when its caller has made a larger one.

Legend: N bytes of text, D documents, S slots (a power of two), L long words, B buckets.
"""

import numpy as np
from numba import types

from pipelines.host.compiled import entry, inner

LETTER, NUMBER, SPACE, OTHER, NOTHING = range(5)  # classes; what comes before a document has none
LOW, HIGH, COUNT = range(3)  # slots[S, 3]
STARTS, RUNS, CHANGES, MISSED, WORD_LOW, WORD_HIGH = range(6)  # scratch[6, SCRATCH], see below
# at[9]: the next document, the next byte in it, the class and size of the character before it, the
# word starts found and not counted; slots in use, long words; room that is wanted of both tables
DOCUMENT, PLACE, KIND, STEP, FOUND, USED, LONG, WORDS_WANTED, BYTES_WANTED = range(9)
CHUNK = 1 << 12  # bytes that are cut into words at once
SCRATCH = 3 * CHUNK + 4  # a chunk not counted yet, then at most two starts for each byte of another

_APOSTROPHE, _SPACE = 39, 32
_ODD = np.int64(-7046029254386353131)  # 2**64 / golden ratio, as a signed number
_MIX = np.int64(-4417276706812531889)  # another odd number
_LONG = np.int64(-(2**63))
_LOW_MASK = np.array([(1 << 8 * n) - 1 for n in range(8)] + [-1] * 8, np.int64)  # by size
_HIGH_MASK = np.array([0] * 8 + [(1 << 8 * n) - 1 for n in range(8)], np.int64)


# ---- text -> where words start ----


@inner
def _code_point(data, i):
    """The code point that begins at byte i, above ASCII, and how many bytes it takes."""
    lead = np.int64(data[i])
    if lead < 0xE0:
        return (lead & 0x1F) << 6 | (data[i + 1] & 0x3F), 2
    if lead < 0xF0:
        return (lead & 0x0F) << 12 | np.int64(data[i + 1] & 0x3F) << 6 | (data[i + 2] & 0x3F), 3
    code = (lead & 0x07) << 18 | np.int64(data[i + 1] & 0x3F) << 12
    return code | np.int64(data[i + 2] & 0x3F) << 6 | (data[i + 3] & 0x3F), 4


@inner
def _find_runs(data, kinds, i, stop, kind, step, runs, changes):
    """Notes where the class of characters changes, from what to what, and the step back."""
    number = 0
    while i < stop:
        code, size = np.int64(data[i]), 1
        if code >= 0x80:
            code, size = _code_point(data, i)
        new = np.int64(kinds[code])
        runs[number] = i
        changes[number] = kind | new << 3 | step << 6
        number += new != kind
        kind, step = new, size
        i += size
    return number, i, kind, step


@inner
def _contraction(data, i, stop):
    """How many letters of s, t, re, ve, m, ll or d begin at byte i."""
    first = data[i]
    if first == 115 or first == 116 or first == 109 or first == 100:  # s t m d
        return 1
    if i + 1 < stop:
        second = data[i + 1]
        if (first == 114 or first == 118) and second == 101 or first == second == 108:  # re ve ll
            return 2
    return 0


@inner
def _find_starts(data, runs, changes, number, stop, starts, found):
    """Notes where words start, from the changes of class; may note the document's end."""
    last = starts[found - 1] if found else np.int64(-1)
    for change in range(number):
        place, what = runs[change], changes[change]
        before = place - (what >> 6)
        after_space = what & 7 == SPACE
        start = before if after_space else place  # the last white space goes to what follows it
        if (
            (data[before] == _APOSTROPHE)
            & (what & 63 == OTHER | LETTER << 3)
            & (before == last)  # it begins a word
        ):
            start += _contraction(data, place, stop)
        starts[found] = start
        found += start != last  # a run of one space, or nothing left of the letters
        alone = after_space & (data[before] != _SPACE)
        starts[found] = place
        found += alone
        last = place if alone else start
    return found


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
    if size > 15:
        return _long_key(eights, i, size)
    if i + 16 > data.size:
        return _short_key(data, i, size)
    return eights[i] & _LOW_MASK[size], eights[i + 8] & _HIGH_MASK[size] | size << 56


@inner
def _hash(low, high):
    mixed = low if high < 0 else (low * _ODD ^ high) * _MIX
    return mixed ^ mixed >> 32


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
def _fits(starts, number, tables, at):
    """Whether there is room for `number` words, if all are new; if not, says for how much."""
    slots, long_starts, long_words, _ = tables
    words, size = np.int64(0), np.int64(0)
    for n in range(number):
        length = starts[n + 1] - starts[n]
        words += length > 15
        size += length if length > 15 else 0
    at[WORDS_WANTED] = words
    at[BYTES_WANTED] = size
    return (
        4 * (at[USED] + number) <= 3 * slots.shape[0]
        and at[LONG] + words < long_starts.size
        and long_starts[at[LONG]] + size <= long_words.size
    )


@inner
def _count_found(data, eights, number, scratch, tables, at):
    """Counts `number` words: those in the slot where they are looked for first, then the others."""
    slots = tables[0]
    last = slots.shape[0] - 1
    starts, missed = scratch[STARTS], scratch[MISSED]
    lows, highs = scratch[WORD_LOW], scratch[WORD_HIGH]
    misses = 0
    for n in range(number):
        low, high = _key(data, eights, starts[n], starts[n + 1] - starts[n])
        slot = _hash(low, high) & last
        hit = (slots[slot, LOW] == low) & (slots[slot, HIGH] == high)
        slots[slot, COUNT] += hit
        lows[n], highs[n] = low, high
        missed[misses] = n
        misses += not hit
    for miss in range(misses):
        n = missed[miss]
        size = starts[n + 1] - starts[n]
        _add(data, eights, starts[n], size, lows[n], highs[n], 1, tables, at)


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_EIGHTS = types.Array(types.int64, 1, "A", readonly=True, aligned=False)
_INTS = types.Array(types.int64, 1, "C", readonly=True)
_TABLES = types.Tuple((types.int64[:, ::1], types.int64[::1], types.uint8[::1], _EIGHTS))


@entry(
    types.boolean(_BYTES, _EIGHTS, _INTS, _BYTES, types.int64[:, ::1], _TABLES, types.int64[::1])
)
def count_documents(data, eights, offsets, kinds, scratch, tables, at):
    """Counts the words of documents, from where `at` says on.

    Args:
      data: uint8[N], valid UTF-8.
      eights: int64[N - 7], the eight bytes of it from each byte on.
      offsets: int64[D + 1], where documents begin in it.
      kinds: uint8[code points], the class of each.
      scratch: int64[6, SCRATCH].
      tables: slots int64[S, 3], all zeros in the beginning; where long words begin, int64[L + 1];
        the long words one after another, uint8; the eight bytes of these from each byte on.
      at: int64[9].

    Returns:
      Whether all is counted; if not, the tables are full.
    """
    starts = scratch[STARTS]
    while True:
        done = at[DOCUMENT] == offsets.size - 1
        found = at[FOUND]
        if found > CHUNK or done and found > 0:
            number = found if done else found - 1  # where the last word ends is not known yet
            starts[found] = offsets[offsets.size - 1]
            if not _fits(starts, number, tables, at):
                return False
            _count_found(data, eights, number, scratch, tables, at)
            starts[0] = starts[number]
            found -= number
        if done:
            return True
        stop = offsets[at[DOCUMENT] + 1]
        until = min(at[PLACE] + CHUNK, stop)
        runs, changes = scratch[RUNS], scratch[CHANGES]
        number, place, kind, step = _find_runs(
            data, kinds, at[PLACE], until, at[KIND], at[STEP], runs, changes
        )
        found = _find_starts(data, runs, changes, number, stop, starts, found)
        if place == stop:
            kind, step = np.int64(NOTHING), np.int64(0)
            at[DOCUMENT] += 1
            found -= found > 0 and starts[found - 1] == stop
        at[PLACE], at[KIND], at[STEP], at[FOUND] = place, kind, step, found


@entry(types.boolean(_BYTES, _EIGHTS, _INTS, _INTS, _TABLES, types.int64[::1]))
def add_words(data, eights, offsets, counts, tables, at):
    """Adds counts of words, from the word at[DOCUMENT] on; else as `count_documents`."""
    while at[DOCUMENT] < counts.size:
        word = at[DOCUMENT]
        if not _fits(offsets[word:], 1, tables, at):
            return False
        i = offsets[word]
        size = offsets[word + 1] - i
        low, high = _key(data, eights, i, size)
        _add(data, eights, i, size, low, high, counts[word], tables, at)
        at[DOCUMENT] += 1
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


# ---- slots -> words in buckets ----


@inner
def _bucket(slots, slot, buckets):
    return (_hash(slots[slot, LOW], slots[slot, HIGH]) >> 48) & (buckets - 1)


@inner
def _size(slots, slot, long_starts):
    high = slots[slot, HIGH]
    if high > 0:
        return high >> 56
    return long_starts[(high ^ _LONG) + 1] - long_starts[high ^ _LONG]


@entry(types.void(types.int64[:, ::1], types.int64[::1], types.int64[:, ::1]))
def measure_buckets(slots, long_starts, sizes):
    """Adds up the words of each bucket and their bytes in sizes[B, 2]; B is a power of two."""
    for slot in range(slots.shape[0]):
        if slots[slot, HIGH] != 0:
            bucket = _bucket(slots, slot, sizes.shape[0])
            sizes[bucket, 0] += 1
            sizes[bucket, 1] += _size(slots, slot, long_starts)


@entry(
    types.void(
        types.int64[:, ::1],
        types.int64[::1],
        types.uint8[::1],
        types.int64[:, ::1],
        types.int64[::1],
        types.uint8[::1],
        types.int64[::1],
    )
)
def fill_buckets(slots, long_starts, long_words, begins, offsets, words, counts):
    """Writes the words and counts of all slots.

    Args:
      slots: and the long words, as in `count_documents`.
      long_starts: of these.
      long_words: of these.
      begins: int64[B, 2], the first word and the first byte of each bucket; is used up.
      offsets: int64[words + 1], becomes where each word begins in `words`; the last is left alone.
      words: uint8, becomes the words, one after another.
      counts: int64[words], becomes their counts.
    """
    for slot in range(slots.shape[0]):
        low, high = slots[slot, LOW], slots[slot, HIGH]
        if high != 0:
            bucket = _bucket(slots, slot, begins.shape[0])
            size = _size(slots, slot, long_starts)
            word, place = begins[bucket, 0], begins[bucket, 1]
            offsets[word] = place
            counts[word] = slots[slot, COUNT]
            if high < 0:
                start = long_starts[high ^ _LONG]
                for j in range(size):
                    words[place + j] = long_words[start + j]
            else:
                for j in range(size):
                    words[place + j] = low >> 8 * j if j < 8 else high >> 8 * (j - 8)
            begins[bucket, 0] += 1
            begins[bucket, 1] += size
