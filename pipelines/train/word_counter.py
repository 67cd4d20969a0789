"""Documents -> how often each word occurs. Pure: pyarrow, numpy and a compiled loop.

A word is a pre-token of GPT-2's pattern (as in `tokenizers`' ByteLevel), as raw bytes: `it's a dog`
gives `it`, `'s`, ` a`, ` dog`. Which code points are letters, numbers and white space is what the
installed `tokenizers` says. Tables of counts are those of `word_counts`.
"""
# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import, where pyright cannot see them.)

from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.encoding.unicode_guard import classes_in_tokenizers
from pipelines.train import count_loop
from pipelines.train.word_counts import SCHEMA

BUCKETS = 64  # a power of two
_BINARY = pa.large_binary()
_PLANES = 0x40000  # code points from here on are private, or will never be letters


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
        self._scratch = np.empty((6, count_loop.SCRATCH), np.int64)
        self._at = np.zeros(9, np.int64)

    def count(self, text: pa.LargeStringArray, *, add_prefix_space: bool = False) -> None:
        """Adds the words of some documents.

        Args:
          text: documents, UTF-8, no nulls; may be a slice.
          add_prefix_space: put a space before each document that does not begin with one.
        """
        offsets, data = _buffers(_prefix_spaces(text) if add_prefix_space else text)
        kinds, eights = character_classes(), _eights(data)
        self._begin(offsets[0])
        while not count_loop.count_documents(
            data, eights, offsets, kinds, self._scratch, self._tables(), self._at
        ):
            self._grow(int(self._at[count_loop.FOUND]))

    def add(self, counts: pa.Table) -> None:
        """Adds the counts of another table."""
        for batch in counts.to_batches():
            offsets, data = _buffers(batch["word"])
            eights, numbers = _eights(data), _read_only(batch["count"].to_numpy())
            self._begin(0)
            while not count_loop.add_words(
                data, eights, offsets, numbers, self._tables(), self._at
            ):
                self._grow(len(numbers) >> 4)

    def buckets(self, number: int = BUCKETS) -> Iterator[tuple[int, pa.Table]]:
        """The counts, cut by the hash of the word: (bucket, table), the same for a word anywhere.

        Args:
          number: of buckets, a power of two; those without words are left out.
        """
        sizes = np.zeros((number, 2), np.int64)
        count_loop.measure_buckets(self._slots, self._long_starts, sizes)
        stops = np.cumsum(sizes, axis=0)
        begins = stops - sizes
        offsets, counts = np.empty(stops[-1, 0] + 1, np.int64), np.empty(stops[-1, 0], np.int64)
        words = np.empty(stops[-1, 1], np.uint8)
        offsets[-1] = len(words)
        count_loop.fill_buckets(
            self._slots, self._long_starts, self._long_words, begins, offsets, words, counts
        )
        table = pa.table([_binary(offsets, words), pa.array(counts)], schema=SCHEMA)
        for bucket in np.flatnonzero(sizes[:, 0]).tolist():
            size = int(sizes[bucket, 0])
            yield bucket, table.slice(int(stops[bucket, 0]) - size, size)

    def table(self) -> pa.Table:
        """The counts, in the order of the table's slots."""
        return next((table for _, table in self.buckets(1)), SCHEMA.empty_table())

    def _begin(self, place: int) -> None:
        at = self._at
        at[count_loop.DOCUMENT] = at[count_loop.STEP] = at[count_loop.FOUND] = 0
        at[count_loop.PLACE], at[count_loop.KIND] = place, count_loop.NOTHING

    def _tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        long_words = self._long_words
        return self._slots, self._long_starts, long_words, _eights(long_words)

    def _grow(self, words: int) -> None:
        """Makes room for so many words more, and for the long words that the loop wants."""
        at = self._at
        size = len(self._slots)
        while 4 * (at[count_loop.USED] + words) > 3 * size:
            size *= 2
        if size > len(self._slots):
            larger = np.zeros((size, 3), np.int64)
            count_loop.move_slots(self._slots, larger)
            self._slots = larger
        long = int(at[count_loop.LONG])
        self._long_starts = _grown(
            self._long_starts, long + 1, int(at[count_loop.WORDS_WANTED]) + 1
        )
        used = int(self._long_starts[long])
        self._long_words = _grown(self._long_words, used, int(at[count_loop.BYTES_WANTED]))


@cache
def character_classes() -> np.ndarray:
    """Whether a code point is a letter, a number, white space or another: uint8[code points].

    Takes 0.05 s.
    """
    classes = np.full(0x110000, count_loop.OTHER, np.uint8)
    points = np.arange(_PLANES, dtype=np.uint32)
    points = points[(points < 0xD800) | (points >= 0xE000)]
    classes[points] = classes_in_tokenizers(points)
    return _read_only(classes)


def add_counts(tables: Iterable[pa.Table]) -> pa.Table:
    """The sum of tables of counts."""
    total = WordCounter()
    for table in tables:
        total.add(table)
    return total.table()


def _prefix_spaces(text: pa.LargeStringArray) -> pa.LargeBinaryArray:
    """The documents with a space before each that does not begin with one."""
    space, nothing = pa.scalar(b" ", _BINARY), pa.scalar(b"", _BINARY)
    binary = text.cast(_BINARY)
    prefix = pc.if_else(pc.starts_with(binary, b" "), nothing, space)
    return pc.binary_join_element_wise(prefix, binary, nothing)


def _buffers(values: pa.LargeStringArray | pa.LargeBinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """Where the values begin, int64[values + 1], in their bytes, uint8. No copy."""
    _, offsets, data = values.buffers()
    if not len(values) or offsets is None:
        return _read_only(np.zeros(1, np.int64)), _read_only(np.zeros(0, np.uint8))
    bounds = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    return _read_only(bounds), _read_only(np.frombuffer(data or b"", np.uint8))


def _binary(offsets: np.ndarray, data: np.ndarray) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(_BINARY, len(offsets) - 1, buffers)


def _eights(data: np.ndarray) -> np.ndarray:
    """The eight bytes from each byte on, as numbers that overlap; less than eight are none."""
    return _read_only(np.ndarray(max(len(data) - 7, 0), "<i8", data.data, 0, 1))


def _grown(array: np.ndarray, used: int, more: int) -> np.ndarray:
    """`array`, or a copy with room for `more` items after the `used` first, and as many again."""
    if used + more <= len(array):
        return array
    larger = np.zeros(2 * (used + more), array.dtype)
    larger[:used] = array[:used]
    return larger


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view
