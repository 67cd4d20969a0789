"""Documents -> how often each word occurs. Pure: pyarrow, numpy and a compiled loop.

A word is what a splitting pattern cuts (see `cutting`), as raw bytes: `it's a dog` gives `it`,
`'s`, ` a`, ` dog`. Tables of counts are those of `word_counts`.
"""
# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import, where pyright cannot see them.)

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.encoding import word_slots
from pipelines.encoding.normal_text import normalized
from pipelines.encoding.splitting.pattern_parser import UnsupportedPattern
from pipelines.encoding.splitting.splitter import Splitter, split_by
from pipelines.rows.ragged import grow
from pipelines.rows.text_bytes import overlapping_eights
from pipelines.train import count_loop
from pipelines.train.cutting import Cutting
from pipelines.train.reference_counts import count_by_tokenizers
from pipelines.train.word_counts import SCHEMA, array_bytes, buffers_of

BUCKETS = 64  # a power of two
_BINARY = pa.large_binary()
_CHUNK = 1 << 16  # words that are added at once


class WordCounter:
    """Counts that grow, of documents and of other counts.

    A word takes 24 bytes in a table that is between three eighths and three quarters full, and one
    of 16 bytes or more its bytes and eight more.
    """

    def __init__(self) -> None:
        """Starts with an empty table of words."""
        self._slots = np.zeros((1 << 12, 3), np.int64)
        self._long_starts = np.zeros(1 << 8, np.int64)
        self._long_words = np.zeros(1 << 12, np.uint8)
        self._missed = np.empty(0, np.int64)
        self._at = np.zeros(2, np.int64)

    def count(self, text: pa.LargeStringArray, cutting: Cutting) -> int:
        """Adds the words of some documents.

        Args:
          text: documents, UTF-8, no nulls; may be a slice.
          cutting: how they become words.

        Returns:
          The bytes of the documents as the normalizer wrote them.

        Raises:
          DataError: the pattern fails on them.
        """
        text = normalized(text, cutting.normalizers)
        size = array_bytes(text)
        if cutting.add_prefix_space:
            text = _prefix_spaces(text)
        splitter = _splitter(cutting.pattern)
        if splitter:
            self._count_documents(text, splitter)
        else:
            for counted in count_by_tokenizers(text, cutting.pattern):
                self.add(counted)
        return size

    def _count_documents(self, text: pa.LargeStringArray, splitter: Splitter) -> None:
        offsets, data = buffers_of(text)
        eights, once = overlapping_eights(data), np.ones(0, np.int64)
        for starts in splitter.cut(data, offsets):
            if len(once) < len(starts):
                once = np.ones(2 * len(starts), np.int64)
            self._count(data, eights, starts, once[: len(starts) - 1])

    def add(self, counts: pa.Table) -> None:
        """Adds the counts of another table."""
        for batch in counts.to_batches(max_chunksize=_CHUNK):
            offsets, data = buffers_of(batch["word"])
            self._count(data, overlapping_eights(data), offsets, batch["count"].to_numpy())

    def table(self) -> pa.Table:
        """The counts, in the order of the table's slots."""
        return self._words()[0]

    def buckets(self) -> Iterator[tuple[int, pa.Table]]:
        """The counts, cut by the hash of the word: (bucket, table), the same for a word anywhere.

        Buckets without words are left out.
        """
        table, hashes = self._words()
        buckets = (hashes >> 48 & BUCKETS - 1).astype(np.uint8)
        table = table.take(np.argsort(buckets, kind="stable"))
        stops = np.cumsum(np.bincount(buckets, minlength=BUCKETS)).tolist()
        for bucket, (start, stop) in enumerate(pairwise([0, *stops])):
            if stop > start:
                yield bucket, table.slice(start, stop - start)

    def _words(self) -> tuple[pa.Table, np.ndarray]:
        """The counts and the hashes of their words."""
        used, long = self._at[word_slots.USED], self._at[word_slots.LONG]
        offsets, counts = np.empty(used + 1, np.int64), np.empty(used, np.int64)
        words = np.empty(word_slots.SHORT * used + self._long_starts[long], np.uint8)
        hashes = np.empty(used, np.int64)
        count_loop.read_slots(
            self._slots, self._long_starts, self._long_words, offsets, words, counts, hashes
        )
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
        if not count_loop.count_words(data, eights, starts, counts, self._missed, tables, self._at):
            self._grow(np.diff(starts))
            self._count(data, eights, starts, counts)

    def _grow(self, sizes: np.ndarray) -> None:
        """Makes room for words of such sizes."""
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


@cache
def _splitter(pattern: str) -> Splitter | None:
    """What cuts by a pattern; None where `tokenizers` has to."""
    try:
        return split_by(pattern)
    except UnsupportedPattern:
        return None


def _prefix_spaces(text: pa.LargeStringArray) -> pa.LargeStringArray:
    """The documents with a space before each that does not begin with one."""
    space, nothing = pa.scalar(b" ", _BINARY), pa.scalar(b"", _BINARY)
    binary = text.cast(_BINARY)
    prefix = pc.if_else(pc.starts_with(binary, b" "), nothing, space)
    return pc.binary_join_element_wise(prefix, binary, nothing).cast(pa.large_string())
