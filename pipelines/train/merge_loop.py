"""The inner loop of BPE training, compiled by numba. Called by `bpe.py`, which says what it does.

A symbol is what words are made of before any merge: a byte, or a character. How a word lies in
memory: one integer a symbol, changed in place. `lower` after the merges l+o, e+r and w+er, `#` for
the id of a token:

    letter     |   l    o   w    e   r   |
    symbols   -1  #lo  -2  #wer  .  -3  -1

The id of a token stands where the token starts, minus its length where it ends (a token of one
symbol is its id alone), so both neighbours of a token are one step away; -1 is the wall between
words; what lies inside a token (`.`) is some negative number that nobody reads.

A pair waits in the queue with the positions where it was born. A position stays when its pair
breaks: both tokens can only grow, so `symbols` tells in one look that it is stale.

A pair is born in one merge only, the one that makes the newer of its tokens: two merges never
spell the same string. (Where a string's two ends are borders of tokens, no merge has crossed them,
so all that happened between them happened the same way everywhere.) So a pair waits once.

A pair that occurs too seldom to be merged when it is born will never be merged, for from then on it
only breaks: neither its count nor its positions are kept. Most pairs are such.

Tables are int64 arrays of few columns, named below: numba compiles these in half the time that
objects take. A table that can grow is returned by whoever may have grown it.

Legend: N symbols and walls, W words, T tokens, P pairs.
"""

from __future__ import annotations

from functools import cache
from heapq import heappop, heappush, heapreplace
from typing import Any

import numpy as np
from numba import types

from pipelines.host.compiled import entry, inner

LARGE = 2**31  # from so many symbols of words on, positions take 64 bits
POOL_ROOM = 2  # positions for each of the words' symbols; when they are used up, stale ones go
WALL = -1
_INSIDE = -2
_FREE = -1  # a slot of the table of pairs that no pair has taken
_ODD = np.int64(-7046029254386353131)  # 2**64 / golden ratio, as a signed number
_LOW = 0xFFFFFFFF  # a pair as one number: left << 32 | right

KEY, COUNT = range(2)  # pairs[2**k > 2 P, 2], a hash table: the pair, how often it occurs now
BORN, FROM, NUMBER = range(3)  # births[P, 3]: the pair; its positions in the pool, 0 when merged
WEIGHT, TIMES, PLACE, MET = range(4)  # side[T, 4]: what one merge met on one side, by token
TOKEN, START, STOP = range(3)  # spelled[n, 3]: a special token, and where its symbols are
TOKENS, MERGES, PAIRS, BIRTHS, POOL = range(5)  # sizes[5]: how full each is


@inner
def _grow(table, needed):
    """`table`, or a copy of it with room for `needed` rows and as many again."""
    if needed <= table.shape[0]:
        return table
    larger = np.empty((2 * needed, table.shape[1]), table.dtype)
    for i in range(table.shape[0]):  # a slice assignment would take two seconds to compile
        for j in range(table.shape[1]):
            larger[i, j] = table[i, j]
    return larger


# ---- pairs ----


@inner
def _no_pairs(size):
    pairs = np.zeros((size, 2), np.int64)
    for slot in range(size):
        pairs[slot, KEY] = _FREE
    return pairs


@inner
def _slot(pairs, pair):
    """The slot of a pair, or the free slot where it belongs."""
    last = pairs.shape[0] - 1
    slot = ((pair * _ODD) >> 32) & last
    while pairs[slot, KEY] != pair and pairs[slot, KEY] != _FREE:
        slot = (slot + 1) & last
    return slot


@inner
def _add_pair(pairs, left, right, count, sizes):
    """A pair begins to be counted, or its other half does: `new new` is born on both sides."""
    slot = _slot(pairs, (left << 32) | right)
    if pairs[slot, KEY] == _FREE:
        pairs[slot, KEY] = (left << 32) | right
        sizes[PAIRS] += 1
    pairs[slot, COUNT] += count


@inner
def _take_count(pairs, left, right, count):
    """Takes from the count of a pair, if it is counted."""
    slot = _slot(pairs, (left << 32) | right)
    if pairs[slot, KEY] != _FREE:
        pairs[slot, COUNT] -= count


@inner
def _room_for_pairs(pairs, more, sizes):
    """`pairs`, or a larger copy, in which `more` pairs fit and half the slots stay free."""
    size = pairs.shape[0]
    if 2 * (sizes[PAIRS] + more) <= size:
        return pairs
    while size < 4 * (sizes[PAIRS] + more):
        size *= 2
    larger = _no_pairs(size)
    for old in range(pairs.shape[0]):
        if pairs[old, KEY] != _FREE:
            slot = _slot(larger, pairs[old, KEY])
            larger[slot, KEY] = pairs[old, KEY]
            larger[slot, COUNT] = pairs[old, COUNT]
    return larger


# ---- the queue: the highest count first, of equal ones the smallest pair ----


@inner
def _put(heap, births, pair, count, start, number, sizes):
    """A pair begins to wait with the positions where it was born."""
    birth = sizes[BIRTHS]
    sizes[BIRTHS] += 1
    births[birth, BORN] = pair
    births[birth, FROM] = start
    births[birth, NUMBER] = number
    heappush(heap, (-count, pair, birth))


@inner
def _take_first(heap, pairs, min_count):
    """Takes the pair that is merged next; returns the row of its birth, -1 if it is too rare."""
    while len(heap) > 0:
        then, pair, birth = heap[0]
        count = pairs[_slot(pairs, pair), COUNT]
        if then != -count:  # changed since it was put in: it goes where it belongs now
            heapreplace(heap, (-count, pair, birth))
        elif count < min_count:
            return -1
        else:
            heappop(heap)
            return birth
    return -1


# ---- one merge ----


@inner
def _first_fresh(symbols, positions, left, right, left_length):
    """The first position where left still stands before right; there is one if they count."""
    i = 0
    while symbols[positions[i, 0]] != left or symbols[positions[i, 0] + left_length] != right:
        i += 1
    return np.int64(positions[i, 0])


@inner
def _make_token(lengths, original, start, length, special, spelled, sizes):
    """The id of the token original[start : start + length]: a new one, or a special token's."""
    for i in range(spelled.shape[0]):
        first = spelled[i, START]
        same = spelled[i, STOP] - first == length
        j = 0
        while same and j < length:
            same = special[first + j] == original[start + j]
            j += 1
        if same:
            return spelled[i, TOKEN]
    token = sizes[TOKENS]
    sizes[TOKENS] += 1
    lengths[token] = length
    return token


@inner
def _note(side, met, where, token, weight, position):
    """The new token has `token` beside it; their pair is born at `position`.

    `met` is how many distinct tokens and how many positions were noted; `where` lists the latter.
    """
    if side[token, TIMES] == 0:
        side[met[0], MET] = token
        met[0] += 1
    side[token, TIMES] += 1
    side[token, WEIGHT] += weight
    where[met[1], 0] = token
    where[met[1], 1] = position
    met[1] += 1


@inner
def _rewrite(symbols, word_of, counts, lengths, positions, merge, before, after):
    """Writes the new token over every fresh left + right, and notes what stands beside it."""
    left, right, new = merge
    side_before, met_before, where_before = before
    side_after, met_after, where_after = after
    left_length, right_length = lengths[left], lengths[right]
    for i in range(positions.shape[0]):
        p = np.int64(positions[i, 0])
        q = p + left_length
        if symbols[p] != left or symbols[q] != right:
            continue
        end = q + right_length
        weight = counts[word_of[p]]
        at = p - 1 if symbols[p - 1] >= WALL else p + symbols[p - 1]
        if symbols[at] != WALL:
            _note(side_before, met_before, where_before, symbols[at], weight, at)
        if symbols[end] != WALL:
            _note(side_after, met_after, where_after, symbols[end], weight, p)
        symbols[q] = _INSIDE
        symbols[end - 1] = p - end
        symbols[p] = new


@inner
def _add_new(pairs, lengths, noted, new, new_is_right, limits, sizes):
    """Begins to count the new pairs of one side that may be merged some time."""
    side, met, _ = noted
    min_count, max_length = limits
    for i in range(met[0]):
        token = side[i, MET]
        side[token, PLACE] = -1
        if side[token, WEIGHT] >= min_count and lengths[token] + lengths[new] <= max_length:
            left, right = (token, new) if new_is_right else (new, token)
            _add_pair(pairs, left, right, side[token, WEIGHT], sizes)
            side[token, PLACE] = 0


@inner
def _recount(pairs, lengths, merge, before, after, limits, sizes):
    """Moves the counts of the broken pairs to the new ones: adds before it takes away."""
    left, right, new = merge
    side_before, met_before, _ = before
    side_after, met_after, _ = after
    _add_new(pairs, lengths, before, new, True, limits, sizes)
    _add_new(pairs, lengths, after, new, False, limits, sizes)
    for i in range(met_before[0]):
        token = side_before[i, MET]
        _take_count(pairs, token, left, side_before[token, WEIGHT])
    for i in range(met_after[0]):
        token = side_after[i, MET]
        _take_count(pairs, right, token, side_after[token, WEIGHT])


@inner
def _enqueue(pairs, heap, births, pool, noted, new, new_is_right, min_count, sizes):
    """Puts the new pairs of one side in the queue and empties the side."""
    side, met, where = noted
    for i in range(met[0]):
        token = side[i, MET]
        number = side[token, TIMES]
        if side[token, PLACE] == 0:
            side[token, PLACE] = -1
            pair = (token << 32) | new if new_is_right else (new << 32) | token
            count = pairs[_slot(pairs, pair), COUNT]
            if count >= min_count:  # the next merge of the same pair in `abab` may have broken it
                side[token, PLACE] = sizes[POOL]
                _put(heap, births, pair, count, sizes[POOL], number, sizes)
                sizes[POOL] += number
        side[token, TIMES] = 0
        side[token, WEIGHT] = 0
    for i in range(met[1]):
        token = where[i, 0]
        if side[token, PLACE] >= 0:
            pool[side[token, PLACE], 0] = where[i, 1]
            side[token, PLACE] += 1
    met[0] = 0
    met[1] = 0


@inner
def _fresh_only(pool, births, symbols, lengths, sizes):
    """Forgets the stale positions of every pair that waits, and closes the gaps."""
    to = np.int64(0)
    for birth in range(sizes[BIRTHS]):
        left, right = births[birth, BORN] >> 32, births[birth, BORN] & _LOW
        start, number = births[birth, FROM], births[birth, NUMBER]
        births[birth, FROM] = to
        for i in range(start, start + number):
            p = np.int64(pool[i, 0])
            if symbols[p] == left and symbols[p + lengths[left]] == right:
                pool[to, 0] = p
                to += 1
        births[birth, NUMBER] = to - births[birth, FROM]
    sizes[POOL] = to


# ---- all merges ----


@inner
def _number_words(symbols, word_of):
    """Notes in which word each symbol stands: |ab|c| gives -1 0 0 -1 1 -1."""
    word = -1
    for p in range(symbols.size):
        word += symbols[p] == WALL
        word_of[p] = WALL if symbols[p] == WALL else word


@inner
def _sort_by_symbol(symbols, first):
    """The positions of all symbols that another follows, by symbol, and where each one's begin."""
    starts = np.zeros(first + 1, np.int64)
    for p in range(symbols.size - 1):
        starts[symbols[p] + 1] += symbols[p + 1] != WALL  # those of walls go to the first
    starts[0] = 0
    for symbol in range(first):
        starts[symbol + 1] += starts[symbol]
    positions = np.empty(starts[first], symbols.dtype)
    place = starts.copy()
    for p in range(symbols.size - 1):
        if symbols[p] != WALL and symbols[p + 1] != WALL:
            positions[place[symbols[p]]] = p
            place[symbols[p]] += 1
    return positions, starts


@inner
def _first_pairs(
    symbols, word_of, counts, lengths, pairs, heap, births, pool, side, met, where, limits, sizes
):
    """Puts the pairs of symbols in the queue, as if each symbol had just been made by a merge."""
    first = sizes[TOKENS]
    positions, starts = _sort_by_symbol(symbols, first)
    for left in range(first):
        start, stop = starts[left], starts[left + 1]
        where = _grow(where, stop - start)
        for i in range(start, stop):
            p = np.int64(positions[i])
            _note(side, met, where, symbols[p + 1], counts[word_of[p]], p)
        noted = (side, met, where)
        pairs = _room_for_pairs(pairs, met[0], sizes)
        births = _grow(births, sizes[BIRTHS] + met[0])
        _add_new(pairs, lengths, noted, left, False, limits, sizes)
        _enqueue(pairs, heap, births, pool, noted, left, False, limits[0], sizes)
    return pairs, births, where


def _merge_all(
    symbols, original, counts, special, spelled, lengths, word_of, pool, sizes, min_count,
    max_length, progress,
):  # fmt: skip
    room = lengths.size
    pairs = _no_pairs(1 << 17)
    births = np.zeros((1 << 16, 3), np.int64)
    heap = [(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)]
    side_before, met_before = np.zeros((room, 4), np.int64), np.zeros(2, np.int64)
    side_after, met_after = side_before.copy(), met_before.copy()
    where_before = np.zeros((1024, 2), symbols.dtype)
    where_after = where_before.copy()
    merges = np.zeros((1024, 3), np.int64)
    limits = (min_count, max_length)
    _number_words(symbols, word_of)
    pairs, births, where_after = _first_pairs(
        symbols, word_of, counts, lengths, pairs, heap, births, pool, side_after, met_after,
        where_after, limits, sizes,
    )  # fmt: skip

    while sizes[TOKENS] < room and progress[1] == 0:
        birth = _take_first(heap, pairs, min_count)
        if birth < 0:
            break
        left, right = births[birth, BORN] >> 32, births[birth, BORN] & _LOW
        positions = pool[births[birth, FROM] : births[birth, FROM] + births[birth, NUMBER]]
        births[birth, NUMBER] = 0
        p = _first_fresh(symbols, positions, left, right, lengths[left])
        length = lengths[left] + lengths[right]
        new = _make_token(lengths, original, p, length, special, spelled, sizes)
        merges = _grow(merges, sizes[MERGES] + 1)
        merges[sizes[MERGES], 0] = left
        merges[sizes[MERGES], 1] = right
        merges[sizes[MERGES], 2] = new
        sizes[MERGES] += 1

        merge = (left, right, new)
        where_before = _grow(where_before, positions.shape[0])
        where_after = _grow(where_after, positions.shape[0])
        before = (side_before, met_before, where_before)
        after = (side_after, met_after, where_after)
        _rewrite(symbols, word_of, counts, lengths, positions, merge, before, after)
        born = met_before[0] + met_after[0]
        pairs = _room_for_pairs(pairs, born, sizes)
        births = _grow(births, sizes[BIRTHS] + born)
        if sizes[POOL] + met_before[1] + met_after[1] > pool.shape[0]:
            _fresh_only(pool, births, symbols, lengths, sizes)
            pool = _grow(pool, sizes[POOL] + met_before[1] + met_after[1])
        _recount(pairs, lengths, merge, before, after, limits, sizes)
        _enqueue(pairs, heap, births, pool, before, new, True, min_count, sizes)
        _enqueue(pairs, heap, births, pool, after, new, False, min_count, sizes)
        progress[0] = sizes[TOKENS]

    word_tokens = np.zeros(counts.size, np.int64)
    for p in range(symbols.size):
        if symbols[p] >= 0:
            word_tokens[word_of[p]] += 1
    return merges[: sizes[MERGES]], word_tokens


@cache
def _compiled_for(index: Any) -> Any:
    """The loop for positions of a type."""
    numbers, table, positions = types.int64[::1], types.int64[:, ::1], types.Array(index, 1, "C")
    given = types.Array(types.int64, 1, "C", readonly=True)
    signature = types.Tuple((table, numbers))(
        positions, positions, given, numbers, table, numbers, positions,
        types.Array(index, 2, "C"), numbers, types.int64, types.int64, numbers,
    )  # fmt: skip
    return entry(signature)(_merge_all)


def lay_out(offsets: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Words in a row with a wall before, between and after, as `merge_all` takes them: |ab|c|.

    Args:
        offsets: int64[W + 1], where words begin in `ids`; a word may be empty.
        ids: of the symbols, one after another.
    """
    walls = offsets - offsets[0] + np.arange(len(offsets))
    number = int(walls[-1]) + 1
    is_symbol = np.ones(number, bool)
    is_symbol[walls] = False
    symbols = np.full(number, WALL, np.int32 if number < LARGE else np.int64)
    symbols[is_symbol] = ids
    return symbols


def merge_all(
    symbols: np.ndarray,
    counts: np.ndarray,
    *,
    special: np.ndarray,
    spelled: np.ndarray,
    first: int,
    room: int,
    min_count: int,
    max_length: int,
    progress: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Merges until there are `room` tokens or no pair is left with `min_count` (1 or more).

    Args:
        symbols: what `lay_out` gave, W words; becomes what is left of them.
        counts: int64[W], how often each occurs.
        special: int64, the symbols of special tokens, one after another.
        spelled: int64[n, 3], the special tokens that merges can spell: TOKEN, START, STOP.
        first: how many tokens there are before the first merge.
        room: how many there may be at the end.
        min_count: the smallest count that is still merged.
        max_length: how many symbols a token may have, at least 2.
        progress: int64[2]: the first item tells another thread the number of tokens, the second
            set to 1 by it stops the loop.

    Returns:
        int64[merges, 3] of (left, right, new token); int64[W], how many tokens each word became.
    """
    original = symbols.copy() if len(spelled) else symbols[:0]
    word_of = np.empty_like(symbols)
    # What is not used of it takes no memory.
    pool = np.empty((POOL_ROOM * len(symbols), 1), symbols.dtype)
    lengths, sizes = np.ones(room, np.int64), np.zeros(5, np.int64)
    lengths[spelled[:, TOKEN]] = spelled[:, STOP] - spelled[:, START]
    sizes[TOKENS] = first
    loop = _compiled_for(types.int32 if symbols.dtype == np.int32 else types.int64)
    return loop(
        symbols, original, counts, special, spelled, lengths, word_of, pool, sizes, min_count,
        max_length, progress,
    )  # fmt: skip
