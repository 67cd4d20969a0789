"""Learns the merges of a BPE from words of symbols and their counts.

The method is Sennrich et al. 2016 (https://arxiv.org/abs/1508.07909); the merges are those of
`tokenizers`' BpeTrainer, one for one. The behaviour of that trainer, found by comparison and kept
here:

- Ids: special tokens first, then the symbols that words are made of, then one id per merge.
- The next merge is the pair with the highest count, ties to the smallest (left id, right id).
- A merge that spells a special token takes that token's id, and the vocabulary does not grow.
- With a maximum token length of n, merged tokens have fewer than n symbols; two symbols may always
  be merged.

Two things differ on purpose. Counts are 64-bit (there 32, wrapping above 2**31). The cost of a
merge is its number of occurrences (there the length of the words that contain it, which makes one
long word quadratic).

A symbol is a byte or a character, the unit of words before any merge. A word is one integer per
symbol, changed in place: `lower` after the merges l+o, e+r and w+er (`#` is the id of a token):

    letter     |   l    o   w    e   r   |
    symbols   -1  #lo  -2  #wer  .  -3  -1

A token's first symbol holds its id, its last symbol minus its length (a token of one symbol is its
id alone), so both neighbours of a token are one step away. -1 is the wall between words. Symbols
inside a token (`.`) are negative and never read.

A pair waits in the queue with the positions where it was created, each with the count of its word:
they are read one after another, while positions in `symbols` are far apart in memory. A position is
kept when its pair is broken there: tokens can only grow, so `symbols` shows that it is stale.

A pair is created in one merge only, the one that makes the newer of its tokens, and so is queued
once: two merges never spell the same string. (If both ends of a string are borders of tokens, no
merge has crossed them, so all merges between them were the same everywhere.)

A pair that is too rare to be merged when it is created will never be merged, since its count can
only fall: neither its count nor its positions are kept. Since few pairs are frequent enough before
the vocabulary is full, the limit is high at first. When no pair reaches it, all words are counted
again with a lower one, down to `min_frequency`: the merges are the same for any limits.

Tables are int64 arrays with few columns, named below: numba compiles these in half the time that
objects take. A function that may grow a table returns it.

Legend: N symbols and walls, W words, T tokens, P pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush, heapreplace
from typing import Any

import numpy as np
from numba import types

from textmill.pipelines.encoding.word_slots import prefetch
from textmill.pipelines.runtime.compiled import entry, inner

LARGE = 2**31  # positions and counts of words take 64 bits if one is as large
ROWS = 1 << 16  # of a table at first, a power of 2: tables grow
POOL_ROOM = 2  # positions per symbol; when they are used up, stale ones are removed
WALL = -1
_INSIDE = -2
_ANY_LENGTH = 1 << 62
RARE = 256  # the first limit is the mean count of pairs if there were so many for each token
LOWER = 8  # each later limit is this much lower
AHEAD = 16  # positions, from the one that is prefetched to the one that is read
AT, WEIGHS = range(2)  # pool[2 N, 2]: a position; the count of its word
_FREE = -1  # a slot of the table of pairs that no pair has taken
_ODD = np.int64(-7046029254386353131)  # 2**64 / golden ratio, as a signed number
_LOW = 0xFFFFFFFF  # a pair as one number: left << 32 | right

# pairs[2**k > 2 P, 3], a hash table: the pair, its current count; its occurrences or next position
KEY, COUNT, NEXT = range(3)
BORN, FROM, NUMBER = range(3)  # births[P, 3]: the pair; its positions in the pool
WEIGHT, TIMES, PLACE, MET = range(4)  # side[T, 4]: tokens that one merge met on one side
TOKEN, START, STOP = range(3)  # spelled[n, 3]: a special token, and where its symbols are
TOKENS, MERGES, PAIRS, BIRTHS, POOL = range(5)  # sizes[5]: the used rows of each table


@inner
def _grow(table, needed):
    """`table` if it has `needed` rows, else a copy with twice as many."""
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
    pairs = np.zeros((size, 3), np.int64)
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
    """Adds to the count of a new pair; `new new` is created on both sides, and added twice."""
    slot = _slot(pairs, (left << 32) | right)
    if pairs[slot, KEY] == _FREE:
        pairs[slot, KEY] = (left << 32) | right
        sizes[PAIRS] += 1
    pairs[slot, COUNT] += count


@inner
def _take_count(pairs, left, right, count):
    """Reduces the count of a pair, if it is counted."""
    slot = _slot(pairs, (left << 32) | right)
    if pairs[slot, KEY] != _FREE:
        pairs[slot, COUNT] -= count


@inner
def _room_for_pairs(pairs, more, sizes):
    """`pairs`, or a larger copy, with room for `more` pairs while half the slots stay free."""
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
            larger[slot, NEXT] = pairs[old, NEXT]
    return larger


# ---- the queue: the highest count first, the smallest pair if counts are equal ----


@inner
def _put(heap, births, pair, count, start, number, sizes):
    """Queues a pair with the positions where it was created."""
    birth = sizes[BIRTHS]
    sizes[BIRTHS] += 1
    births[birth, BORN] = pair
    births[birth, FROM] = start
    births[birth, NUMBER] = number
    heappush(heap, (-count, pair, birth))


@inner
def _take_first(heap, pairs, min_count):
    """Takes the next pair to merge; returns its row of `births`, -1 if all pairs are too rare."""
    while len(heap) > 0:
        then, pair, birth = heap[0]
        count = pairs[_slot(pairs, pair), COUNT]
        if then != -count:  # the count has changed: queue the pair again
            heapreplace(heap, (-count, pair, birth))
        elif count < min_count:
            return -1
        else:
            heappop(heap)
            return birth
    return -1


# ---- one merge ----


@inner
def _make_token(lengths, words, position, length, special, spelled, sizes):
    """The id of the token of `length` symbols at a position: a new one, or a special token's."""
    offsets, letters, ids = words
    for i in range(spelled.shape[0]):
        first = spelled[i, START]
        same = spelled[i, STOP] - first == length
        if same:
            start = position - 1 - _word_at(offsets, position)  # without the walls before it
        j = 0
        while same and j < length:
            same = special[first + j] == ids[letters[start + j]]
            j += 1
        if same:
            return spelled[i, TOKEN]
    token = sizes[TOKENS]
    sizes[TOKENS] += 1
    lengths[token] = length
    return token


@inner
def _word_at(offsets, position):
    """The word at a position of `symbols`, in which a wall is before each word."""
    low, high = 0, offsets.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if offsets[middle] + middle < position:
            low = middle
        else:
            high = middle
    return low


@inner
def _note(side, met, where, token, weight, position):
    """Records that `token` is beside the new token, so that a pair is created at `position`.

    `met` counts distinct tokens and positions; `where` lists the positions with their counts.
    """
    side[met[0], MET] = token  # without a branch: overwritten if the token was met before
    met[0] += side[token, TIMES] == 0
    side[token, TIMES] += 1
    side[token, WEIGHT] += weight
    where[met[1], 0] = token
    where[met[1], 1] = position
    where[met[1], 2] = weight
    met[1] += 1


@inner
def _rewrite(symbols, lengths, positions, merge, before, after):
    """Replaces left + right by the new token at valid positions, and records its neighbours."""
    left, right, new = merge
    side_before, met_before, where_before = before
    side_after, met_after, where_after = after
    left_length, right_length = lengths[left], lengths[right]
    for i in range(positions.shape[0]):
        # Later positions are far apart in memory.
        prefetch(symbols, np.int64(positions[min(i + AHEAD, positions.shape[0] - 1), AT]))
        p = np.int64(positions[i, AT])
        q = p + left_length
        if symbols[p] != left or symbols[q] != right:
            continue
        end = q + right_length
        weight = np.int64(positions[i, WEIGHS])
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
    """Adds to the counts the new pairs on one side that may be merged later."""
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
    """Moves the counts of broken pairs to the new ones: adds first, then subtracts."""
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
    """Moves the new pairs on one side to the queue."""
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
            pool[side[token, PLACE], AT] = where[i, 1]
            pool[side[token, PLACE], WEIGHS] = where[i, 2]
            side[token, PLACE] += 1
    met[0] = 0
    met[1] = 0


@inner
def _fresh_only(pool, births, symbols, lengths, sizes):
    """Removes the stale positions of all queued pairs from the pool."""
    to = np.int64(0)
    for birth in range(sizes[BIRTHS]):
        left, right = births[birth, BORN] >> 32, births[birth, BORN] & _LOW
        start, number = births[birth, FROM], births[birth, NUMBER]
        births[birth, FROM] = to
        for i in range(start, start + number):
            p = np.int64(pool[i, AT])
            if symbols[p] == left and symbols[p + lengths[left]] == right:
                pool[to, AT] = p
                pool[to, WEIGHS] = pool[i, WEIGHS]
                to += 1
        births[birth, NUMBER] = to - births[birth, FROM]
    sizes[POOL] = to


# ---- all merges ----


@inner
def _lay_out(offsets, letters, ids, symbols):
    """Writes the words with walls: |ab|c|."""
    p = 0
    for word in range(offsets.size - 1):
        symbols[p] = WALL
        p += 1
        for i in range(offsets[word], offsets[word + 1]):
            symbols[p] = ids[letters[i]]
            p += 1
    symbols[p] = WALL


@inner
def _count_pairs(symbols, counts, lengths, sizes):
    """All pairs that are in the words now, with their counts and their numbers of occurrences."""
    sizes[PAIRS] = 0
    pairs = _no_pairs(ROWS)
    p, word = 0, -1
    while p < symbols.size:
        pairs = _room_for_pairs(pairs, 1, sizes)
        p, word = _count_while_room(pairs, symbols, counts, lengths, sizes, p, word)
    return pairs


@inner
def _count_while_room(pairs, symbols, counts, lengths, sizes, p, word):
    """Counts pairs from a position on; returns where the table has no room, and the word there."""
    free = pairs.shape[0] // 2 - sizes[PAIRS]
    while p < symbols.size and free > 0:
        left = np.int64(symbols[p])
        if left == WALL:
            p += 1
            word += 1
            continue
        p += 1
        if symbols[p] < WALL:  # a jump by each length would wait for that length
            p += lengths[left] - 1
        if symbols[p] != WALL:
            slot = _slot(pairs, (left << 32) | symbols[p])
            is_new = pairs[slot, KEY] == _FREE
            free -= is_new
            sizes[PAIRS] += is_new
            pairs[slot, KEY] = (left << 32) | symbols[p]
            pairs[slot, COUNT] += counts[word]
            pairs[slot, NEXT] += 1
    return p, word


@inner
def _queue_all(symbols, counts, lengths, heap, births, pool, limits, sizes):
    """Queues all pairs that may be merged, with all their positions; forgets earlier ones."""
    min_count, max_length = limits
    counted = _count_pairs(symbols, counts, lengths, sizes)
    pairs = _no_pairs(ROWS)
    heap.clear()
    sizes[PAIRS] = sizes[BIRTHS] = sizes[POOL] = 0
    for slot in range(counted.shape[0]):
        pair, count, number = counted[slot, KEY], counted[slot, COUNT], counted[slot, NEXT]
        counted[slot, NEXT] = -1
        if pair == _FREE or count < min_count:
            continue
        left, right = pair >> 32, pair & _LOW
        if lengths[left] + lengths[right] <= max_length:
            pairs = _room_for_pairs(pairs, 1, sizes)
            births = _grow(births, sizes[BIRTHS] + 1)
            _add_pair(pairs, left, right, count, sizes)
            _put(heap, births, pair, count, sizes[POOL], number, sizes)
            counted[slot, NEXT] = sizes[POOL]
            sizes[POOL] += number
    p, word = 0, -1
    while p < symbols.size:
        at = p
        word += symbols[at] == WALL
        p += 1 if symbols[at] == WALL else lengths[symbols[at]]
        if symbols[at] != WALL and symbols[p] != WALL:
            slot = _slot(counted, (np.int64(symbols[at]) << 32) | symbols[p])
            if counted[slot, NEXT] >= 0:
                pool[counted[slot, NEXT], AT] = at
                pool[counted[slot, NEXT], WEIGHS] = counts[word]
                counted[slot, NEXT] += 1
    return pairs, births


def _merge_all(
    offsets, letters, ids, counts, special, spelled, lengths, symbols, pool, sizes,
    limit, min_count, max_length, progress,
):  # fmt: skip
    room, words = lengths.size, (offsets, letters, ids)
    births = np.zeros((ROWS, 3), np.int64)
    heap = [(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)]
    side_before, met_before = np.zeros((room + 1, 4), np.int64), np.zeros(2, np.int64)
    side_after, met_after = side_before.copy(), met_before.copy()
    where_before = np.zeros((ROWS, 3), symbols.dtype)
    where_after = where_before.copy()
    merges = np.zeros((ROWS, 3), np.int64)
    limits = (limit, max_length)
    _lay_out(offsets, letters, ids, symbols)
    pairs, births = _queue_all(symbols, counts, lengths, heap, births, pool, limits, sizes)

    while sizes[TOKENS] < room and progress[1] == 0:
        birth = _take_first(heap, pairs, limits[0])
        if birth < 0:
            if limits[0] == min_count:
                break
            limits = (max(min_count, limits[0] // LOWER), max_length)
            pairs, births = _queue_all(symbols, counts, lengths, heap, births, pool, limits, sizes)
            continue
        left, right = births[birth, BORN] >> 32, births[birth, BORN] & _LOW
        positions = pool[births[birth, FROM] : births[birth, FROM] + births[birth, NUMBER]]
        p = np.int64(positions[0, AT])  # stale or not, each spells the token
        length = lengths[left] + lengths[right]
        new = _make_token(lengths, words, p, length, special, spelled, sizes)
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
        _rewrite(symbols, lengths, positions, merge, before, after)
        born = met_before[0] + met_after[0]
        pairs = _room_for_pairs(pairs, born, sizes)
        births = _grow(births, sizes[BIRTHS] + born)
        if sizes[POOL] + met_before[1] + met_after[1] > pool.shape[0]:
            _fresh_only(pool, births, symbols, lengths, sizes)
            # Half of the pool is empty now; this line is for a mistake here, since compiled loops
            # write past an array.
            pool = _grow(pool, sizes[POOL] + met_before[1] + met_after[1])
        _recount(pairs, lengths, merge, before, after, limits, sizes)
        _enqueue(pairs, heap, births, pool, before, new, True, limits[0], sizes)
        _enqueue(pairs, heap, births, pool, after, new, False, limits[0], sizes)
        progress[0] = sizes[TOKENS]

    word_tokens = np.zeros(counts.size, np.int64)
    word = -1
    for p in range(symbols.size):
        word += symbols[p] == WALL
        if symbols[p] >= 0:
            word_tokens[word] += 1
    return merges[: sizes[MERGES]], word_tokens


@cache
def _compiled_for(index: Any, letter: Any) -> Any:
    """The compiled loop for positions and letters of some types."""
    numbers, table, positions = types.int64[::1], types.int64[:, ::1], types.Array(index, 1, "C")
    read, letters, ids = (
        types.Array(kind, 1, "C", readonly=True) for kind in (types.int64, letter, types.int32)
    )
    signature = types.Tuple((table, numbers))(
        read, letters, ids, read, numbers, table, numbers, positions,
        types.Array(index, 2, "C"), numbers, types.int64, types.int64, types.int64, numbers,
    )  # fmt: skip
    return entry(signature)(_merge_all)


# ---- words to vocabulary and merges ----


@dataclass(frozen=True)
class TrainedVocabulary:
    """A trained vocabulary.

    Attributes:
      tokens: tokens by id; byte tokens are written in GPT-2's alphabet (see `byte_characters`),
        special tokens as they are.
      merges: (left token, right token), in order.
      word_tokens: int64[words], the number of tokens of each word when it is encoded.
    """

    tokens: list[str]
    merges: list[tuple[str, str]]
    word_tokens: np.ndarray


def merge_words(
    offsets: np.ndarray,
    letters: np.ndarray,
    counts: np.ndarray,
    *,
    ids: np.ndarray,
    first: Sequence[str],
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    min_frequency: int = 2,
    max_token_length: int | None = None,
    continuing_prefix: str = "",
    progress: np.ndarray | None = None,
) -> TrainedVocabulary:
    """Merges until the vocabulary has `vocab_size` tokens, or no remaining pair is frequent enough.

    Args:
      offsets: int64[W + 1], where words begin in `letters`, the first 0; words may be empty.
      letters: uint8 or int32, the letters of all words, joined.
      counts: int64[W], occurrences of each word, at least 1.
      ids: int32, the id of each letter's symbol.
      first: the tokens before any merge, symbols included.
      vocab_size: size of the vocabulary, `first` included; a result with fewer tokens means that no
        pair was left.
      special_tokens: the special tokens at the beginning of `first`.
      min_frequency: pairs that occur less often are not merged.
      max_token_length: tokens of merges have fewer symbols than this, or two.
      continuing_prefix: prefix of tokens that do not begin a word.
      progress: int64[2], shared with another thread: the loop sets the first item to the number of
        tokens; the thread may set the second to 1 to stop the loop.
    """
    spelled = _spelled_by_merges(special_tokens, first, continuing_prefix)
    stops = np.cumsum([0, *map(len, spelled.values())])
    special = np.column_stack([np.array([*spelled], np.int64), stops[:-1], stops[1:]])
    room = max(len(first), min(vocab_size, len(first) + len(letters)))  # a merge uses up a symbol
    lengths, sizes = np.ones(room, np.int64), np.zeros(5, np.int64)
    lengths[special[:, TOKEN]] = special[:, STOP] - special[:, START]
    sizes[TOKENS] = len(first)
    number = len(letters) + len(offsets)
    is_large = max(number, counts.max(initial=0)) >= LARGE
    symbols = np.empty(number, np.int64 if is_large else np.int32)
    loop = _compiled_for(
        types.int64 if is_large else types.int32,
        types.uint8 if letters.dtype == np.uint8 else types.int32,
    )
    min_count = max(1, min_frequency)
    merges, word_tokens = loop(
        offsets,
        letters,
        ids,
        counts,
        np.array([i for spelling in spelled.values() for i in spelling], np.int64),
        special,
        lengths,
        symbols,
        np.empty((POOL_ROOM * number, 2), symbols.dtype),  # memory is allocated when used
        sizes,
        max(min_count, int(counts @ np.diff(offsets) / (RARE * room))),
        min_count,
        _ANY_LENGTH if max_token_length is None else max(max_token_length - 1, 2),
        np.zeros(2, np.int64) if progress is None else progress,
    )
    lefts, rights, results = merges.T.tolist()
    tokens = [*first, *[""] * (max(results, default=-1) + 1 - len(first))]
    skipped = len(continuing_prefix)
    for left, right, new in zip(lefts, rights, results, strict=True):
        tokens[new] = tokens[left] + tokens[right][skipped:]
    pairs = [(tokens[left], tokens[right]) for left, right in zip(lefts, rights, strict=True)]
    return TrainedVocabulary(tokens, pairs, word_tokens)


def _spelled_by_merges(
    special_tokens: Sequence[str], first: Sequence[str], prefix: str
) -> Mapping[int, list[int]]:
    """Special tokens that merges can spell, such as `the` or `##ing`, to their symbols."""
    ids = {token: i for i, token in enumerate(first)}
    spelled = {}
    for token in special_tokens:
        begins = "" if token.startswith(prefix) else token[:1]
        symbols = [begins] if begins else []
        symbols += [prefix + character for character in token.removeprefix(prefix)[len(begins) :]]
        if len(symbols) > 1 and ids.keys() >= set(symbols):
            spelled[ids[token]] = [ids[symbol] for symbol in symbols]
    return spelled
