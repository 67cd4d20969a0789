"""Counts the words of documents, in a compiled loop.

A word is a piece of text that the splitting pattern cuts (see `PreTokenization`), as raw bytes:
`it's a dog` has the words `it`, `'s`, ` a` and ` dog`. `histogram` defines tables of counts.

During counting, words are in a hash table with three numbers per slot: the key of the word, see
`word_slots`, and its count. The loop stops if a table is full; its caller then makes a larger one.
Legend: N bytes of text, W words, S slots (a power of two), L long words.
"""
# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import, where pyright cannot see them.)

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types

from textmill.pipelines.encoding import kept_tokenizer, word_slots
from textmill.pipelines.encoding.automaton import UnsupportedPattern
from textmill.pipelines.encoding.normal_text import apply_normalizers
from textmill.pipelines.encoding.splitter import Splitter, split_by
from textmill.pipelines.encoding.word_slots import (
    HIGH,
    HIGH_MASK,
    LONG,
    LOW,
    LOW_MASK,
    NUMBERED,
    SHORT,
    USED,
    find_slot,
    prefetch,
    short_hash,
)
from textmill.pipelines.rows.ragged import grow
from textmill.pipelines.rows.text_bytes import slices, utf8_bytes
from textmill.pipelines.runtime.compiled import entry, inner, overlapping_eights
from textmill.pipelines.tokenizer.histogram import SCHEMA, PreTokenization, array_bytes
from textmill.pipelines.tokenizer.uncompiled_patterns import count_by_tokenizers

COUNT = 2  # slots[S, 3], after LOW and HIGH
BLOCK = 64  # words whose slots are prefetched together
_1, _8 = np.uint64(1), np.uint64(8)
_LOW, _HIGH, _COUNT = np.uint64(LOW), np.uint64(HIGH), np.uint64(COUNT)


@inner
def _fits(starts, tables, at):
    """Whether the tables have room for these words if all are new."""
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
    """Adds to the counts of words, block by block: first of those in the slots of their hashes.

    The slots of a block are prefetched together: a large table is not in the CPU's cache. Words
    that are new, long, or at the end of the data come last.

    Args:
      data: uint8[N].
      eights: int64[N - 7], the eight bytes from each byte of `data` on.
      starts: int64[W + 1], where words start in `data`, and where the last ends.
      counts: int64[W], the number to add for each word.
      missed: int64[W], overwritten.
      tables: slots int64[S, 3], all zeros at first; where long words begin, int64[L + 1]; the long
        words joined, uint8; the eight bytes from each byte of these on.
      at: int64[2].

    Returns:
      Whether all words are counted; if not, none is, since the tables are too full.
    """
    if not _fits(starts, tables, at):
        return False
    slots = tables[0]
    last = np.uint64(slots.shape[0] - 1)
    words, misses, near = starts.size - 1, 0, starts.size - 1
    lows, highs, homes = np.empty((3, BLOCK), np.int64)
    while near > 0 and starts[near - 1] + 16 > data.size:
        near -= 1  # fewer than 16 bytes follow its start
    # This loop calls no functions with arrays: numba would count references, which takes ten times
    # as long as the rest. Indices are unsigned, so that none is tested for being negative.
    for block in range(0, near, BLOCK):
        first, size_of_block = misses, np.uint64(min(BLOCK, near - block))
        for k in range(size_of_block):
            n = np.uint64(block) + k
            start = np.uint64(starts[n])
            size = starts[n + _1] - starts[n]
            masked = np.uint64(min(size, SHORT))
            low = eights[start] & LOW_MASK[masked]
            high = eights[start + _8] & HIGH_MASK[masked] | size << 56
            high = high if size <= SHORT else -1
            slot = np.uint64(short_hash(low, high)) & last
            prefetch(slots, slot)
            lows[k], highs[k], homes[k] = low, high, slot
        for k in range(size_of_block):
            slot = np.uint64(homes[k])
            hit = (slots[slot, _LOW] == lows[k]) & (slots[slot, _HIGH] == highs[k])
            slots[slot, _COUNT] += hit * counts[np.uint64(block) + k]
            missed[np.uint64(misses)] = k
            misses += not hit
        stop, misses = misses, first
        for miss in range(first, stop):  # short words that another one has displaced
            k = np.uint64(missed[np.uint64(miss)])
            n, slot, is_short = np.uint64(block) + k, np.uint64(homes[k]), highs[k] >= 0
            while is_short and slots[slot, _HIGH] != 0:
                slot = slot + _1 & last
                if slots[slot, _LOW] == lows[k] and slots[slot, _HIGH] == highs[k]:
                    break
            if is_short and slots[slot, _HIGH] != 0:
                slots[slot, _COUNT] += counts[n]
            else:
                missed[np.uint64(misses)] = n
                misses += 1
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
    """Reads the words of all slots, with their counts and hashes.

    Args:
      slots: int64[S, 3].
      long_starts: int64[L + 1], where long words begin.
      long_words: uint8, the long words joined.
      offsets: int64[words + 1], receives where each word begins in `words`.
      words: uint8 with room for SHORT bytes per word and for the long words, receives the words.
      counts: int64[words], receives their counts.
      hashes: int64[words], receives their hashes.
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


BUCKETS = 64  # a power of two
_BINARY = pa.large_binary()
_CHUNK = 1 << 16  # words that are added at once
_REQUEST = 1 << 20  # bytes of documents that `tokenizers` splits at once


class WordCounter:
    """Counts the words of documents, and adds other counts.

    A word takes 24 bytes in a table that is between three eighths and three quarters full; a word
    of 16 bytes or more takes 8 bytes and its length in addition.
    """

    def __init__(self) -> None:
        """Starts with an empty table of words."""
        self._slots = np.zeros((1 << 12, 3), np.int64)
        self._long_starts = np.zeros(1 << 8, np.int64)
        self._long_words = np.zeros(1 << 12, np.uint8)
        self._missed = np.empty(0, np.int64)
        self._at = np.zeros(2, np.int64)

    def count(self, text: pa.LargeStringArray, cutting: PreTokenization) -> int:
        """Adds the words of some documents.

        Args:
          text: documents, UTF-8, no nulls; may be a slice.
          cutting: how they become words.

        Returns:
          The bytes of the normalized documents.

        Raises:
          DataError: the pattern fails on a document.
        """
        text = apply_normalizers(text, cutting.normalizers)
        size = array_bytes(text)
        if cutting.add_prefix_space:
            text = _prefix_spaces(text)
        splitter = _splitter(cutting.pattern)
        if splitter:
            self._count_documents(text, splitter)
        else:
            for documents in slices(text, _REQUEST):
                self.add(count_by_tokenizers(documents, cutting.pattern))
        return size

    def _count_documents(self, text: pa.LargeStringArray, splitter: Splitter) -> None:
        data, offsets = utf8_bytes(text)
        eights, once = overlapping_eights(data), np.ones(0, np.int64)
        for starts in splitter.cut(data, offsets):
            if len(once) < len(starts):
                once = np.ones(2 * len(starts), np.int64)
            self._count(data, eights, starts, once[: len(starts) - 1])

    def add(self, counts: pa.Table) -> None:
        """Adds the counts of another table."""
        for batch in counts.to_batches(max_chunksize=_CHUNK):
            data, offsets = utf8_bytes(batch["word"])
            self._count(data, overlapping_eights(data), offsets, batch["count"].to_numpy())

    def table(self) -> pa.Table:
        """The counts, in the order of the table's slots."""
        return self._words()[0]

    def buckets(self) -> Iterator[tuple[int, pa.Table]]:
        """The counts by bucket, a part of the word's hash; empty buckets are omitted."""
        table, hashes = self._words()
        buckets = (hashes >> 48 & BUCKETS - 1).astype(np.uint8)
        table = table.take(np.argsort(buckets, kind="stable"))
        stops = np.cumsum(np.bincount(buckets, minlength=BUCKETS)).tolist()
        for bucket, (start, stop) in enumerate(pairwise([0, *stops])):
            if stop > start:
                yield bucket, table.slice(start, stop - start)

    def _words(self) -> tuple[pa.Table, np.ndarray]:
        """The counts, and the hashes of their words."""
        used, long = self._at[word_slots.USED], self._at[word_slots.LONG]
        offsets, counts = np.empty(used + 1, np.int64), np.empty(used, np.int64)
        words = np.empty(word_slots.SHORT * used + self._long_starts[long], np.uint8)
        hashes = np.empty(used, np.int64)
        read_slots(self._slots, self._long_starts, self._long_words, offsets, words, counts, hashes)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(words)]
        column = pa.LargeBinaryArray.from_buffers(SCHEMA.field("word").type, used, buffers)
        return pa.table([column, pa.array(counts)], schema=SCHEMA), hashes

    def _count(
        self, data: np.ndarray, eights: np.ndarray, starts: np.ndarray, counts: np.ndarray
    ) -> None:
        if len(self._missed) < len(counts):
            self._missed = np.empty(2 * len(counts), np.int64)
        tables = (
            self._slots,
            self._long_starts,
            self._long_words,
            overlapping_eights(self._long_words),
        )
        if not count_words(data, eights, starts, counts, self._missed, tables, self._at):
            self._grow(np.diff(starts))
            self._count(data, eights, starts, counts)

    def _grow(self, sizes: np.ndarray) -> None:
        """Makes room for words of these sizes."""
        used, long = self._at.tolist()
        number = len(self._slots)
        while 4 * (used + len(sizes) + 1) > 3 * number:
            number *= 2
        if number > len(self._slots):
            larger = np.zeros((number, 3), np.int64)
            word_slots.move_slots(self._slots, larger)
            self._slots = larger
        sizes = sizes[sizes > word_slots.SHORT]
        begin = int(self._long_starts[long])
        self._long_starts = grow(self._long_starts, long + 1, len(sizes) + 1)
        self._long_words = grow(self._long_words, begin, int(sizes.sum()))


def add_counts(tables: Iterable[pa.Table]) -> pa.Table:
    """The sum of tables of counts."""
    total = WordCounter()
    for table in tables:
        total.add(table)
    return total.table()


def sort_by_word(counts: pa.Table) -> pa.Table:
    """The table in the order of its words' bytes.

    Most words differ in their first eight bytes, which are sorted as numbers: this takes half the
    time of sorting all words by Arrow, which sorts only the others.
    """
    counts = counts.combine_chunks()
    words = counts["word"].combine_chunks()
    data, offsets = utf8_bytes(words)
    eights = overlapping_eights(np.append(data, np.zeros(8, np.uint8)))
    masks = LOW_MASK[np.minimum(np.diff(offsets), SHORT)]
    begins = (eights[offsets[:-1]] & masks).byteswap().view(np.uint64)
    order = np.argsort(begins)
    same = np.diff(begins[order]) == 0
    tied = np.zeros(len(order), np.bool_)
    tied[1:] = same
    tied[:-1] |= same
    rows = order[tied]
    order[tied] = rows[pc.sort_indices(words.take(rows)).to_numpy()]
    return counts.take(order)


@cache
def _splitter(pattern: str) -> Splitter | None:
    """The splitter of a pattern, kept for later runs; None if only `tokenizers` can split by it."""
    key = kept_tokenizer.key_of_pattern(pattern)
    splitter = kept_tokenizer.find(key, None)
    if splitter is None:
        try:
            splitter = split_by(pattern)
        except UnsupportedPattern:
            return None
        kept_tokenizer.keep([key], splitter, None)
    return splitter


def _prefix_spaces(text: pa.LargeStringArray) -> pa.LargeStringArray:
    """Puts a space before each document that does not begin with one."""
    space, nothing = pa.scalar(b" ", _BINARY), pa.scalar(b"", _BINARY)
    binary = text.cast(_BINARY)
    prefix = pc.if_else(pc.starts_with(binary, b" "), nothing, space)
    return pc.binary_join_element_wise(prefix, binary, nothing).cast(pa.large_string())
