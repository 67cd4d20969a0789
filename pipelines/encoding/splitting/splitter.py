"""Splitting patterns at work: documents -> where their words start."""

from collections.abc import Iterator
from functools import cache

import numpy as np

from pipelines.encoding.splitting import cut_loop
from pipelines.encoding.splitting.automaton import Automaton, compile_pattern
from pipelines.encoding.splitting.cut_loop import FOUND, GAP, MATCHED, PIECE, PLACE, ROOM


class Splitter:
    """Cuts text as one pattern after another says, each within the words of the one before.

    So do `tokenizers` with a Sequence of Splits, `Isolated`: what matches is a word, and what lies
    between two matches is one.
    """

    def __init__(self, *patterns: str):
        """Compiles the patterns, in about 0.1 s.

        Raises:
          UnsupportedPattern: one holds what is not known here.
        """
        self._tables = [_tables(pattern) for pattern in patterns]

    def cut(self, data: np.ndarray, offsets: np.ndarray) -> Iterator[np.ndarray]:
        """Where the words of pieces start, chunk by chunk.

        Args:
          data: UTF-8, uint8[bytes].
          offsets: int64[pieces + 1]; a piece is data[offsets[i] : offsets[i + 1]].

        Yields:
          int64 arrays that are overwritten by the next: where words start, and at last where the
          last of them ends. Words leave nothing out: `it's a dog` -> [[0, 2, 4, 6, 10]].
        """
        return _cut_each(data, self.cut_before(data, offsets), *self.last)

    @property
    def last(self) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """What the loop takes of the last pattern, and log2 of the lengths of its rows."""
        return self._tables[-1]

    def cut_before(self, data: np.ndarray, offsets: np.ndarray) -> Iterator[np.ndarray]:
        """As `cut`, by all patterns but the last."""
        chunks: Iterator[np.ndarray] = iter((offsets,))
        for tables in self._tables[:-1]:
            chunks = _cut_each(data, chunks, *tables)
        return chunks


@cache
def split_by(*patterns: str) -> Splitter:
    """The splitter of some patterns; each is compiled once."""
    return Splitter(*patterns)


@cache
def _tables(pattern: str) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """What the loop takes of a pattern, and log2 of the lengths of its rows."""
    found = compile_pattern(pattern)
    states, number = found.steps.shape
    shift = max(number - 1, 1).bit_length()
    steps = np.zeros((states, 1 << shift), np.int32)
    where_row_lies = (found.steps >> 2 << shift + 2) | found.steps & 3
    steps[:, :number] = np.where(found.steps < 0, found.steps, where_row_lies)
    byte_classes, pairs, byte_shift = _pairs(found)
    tables = found.classes, steps.ravel(), found.ends.astype(np.uint8), byte_classes, pairs
    return tables, np.array([shift, byte_shift])


def _pairs(found: Automaton) -> tuple[np.ndarray, np.ndarray, int]:
    """The classes of bytes, the steps of pairs of them, and log2 of the number of classes.

    Bytes above ASCII are of one class, from which no step leads on.
    """
    of_ascii, byte_classes = np.unique(found.classes[:128], return_inverse=True)
    shift = len(of_ascii).bit_length()
    above = (1 << shift) - 1
    single = np.full((len(found.steps), 1 << shift), -1, np.int64)
    single[:, : len(of_ascii)] = found.steps[:, of_ascii]
    first, second = single[:, :, np.newaxis], single[single >> 2]
    pairs = (second >> 2 << 2 * shift + 4) | (second & 3) << 2 | first & 3
    pairs = np.where((first < 0) | (second < 0), -1, pairs).astype(np.int32)
    classes = np.append(byte_classes, np.full(128, above)).astype(np.uint8)
    return classes, pairs.ravel(), shift


def begin(offsets: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Where cutting stands before the first byte of some pieces: `at` of `cut`."""
    at = np.zeros(6, np.int64)
    starts[0] = at[PLACE] = offsets[0]
    at[FOUND], at[GAP], at[MATCHED] = 1, -1, -1
    return at


def _cut_each(
    data: np.ndarray,
    chunks: Iterator[np.ndarray],
    tables: tuple[np.ndarray, ...],
    shifts: np.ndarray,
) -> Iterator[np.ndarray]:
    for offsets in chunks:
        if len(offsets) < 2:
            continue
        starts = np.empty(ROOM, np.int64)
        at = begin(offsets, starts)
        while at[PIECE] < len(offsets) - 1:
            words = cut_loop.cut_chunk(data, offsets, tables, shifts, starts, at)
            if words > 0:
                yield starts[: words + 1]
                left = at[FOUND] - words
                starts[:left] = starts[words : at[FOUND]]
                at[FOUND] = left
