"""Runs splitting patterns over documents, in compiled loops: finds where words start.

Since each step waits for the one before it, two ASCII bytes are one step of a table of pairs. Other
characters, and those at which a word may end without a match, take a step each.

Legend: N bytes, P pieces, S states, C classes and A classes of bytes (rounded up to powers of two).
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
from numba import types

from textmill.pipelines.encoding.automaton import Automaton, compile_pattern
from textmill.pipelines.rows.text_bytes import code_point
from textmill.pipelines.runtime.compiled import entry, inner

CHUNK = 1 << 14  # bytes of text that are cut at once, and about the most words
ROOM = 2 * CHUNK + 4  # starts: at most one per byte is found
# at[6]: the piece, the next byte, the row of the state, the end of the last match, the end of the
# last gap, and the number of known starts
PIECE, PLACE, STATE, MATCHED, GAP, FOUND = range(6)


@inner
def _next_character(data, i):
    lead = data[i]
    return i + (1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4)


@inner
def _stop_word(data, starts, found, matched, gap):
    """Ends a word that no step continues: at its last match, or, without one, in a gap.

    Consecutive characters that begin no match form one word, a gap.

    Returns:
      The next byte, the end of the last gap, and the number of known starts.
    """
    begin = starts[found - 1]
    if matched > begin:
        starts[found] = matched
        return matched, gap, found + 1
    place = _next_character(data, begin)
    if gap == begin:
        starts[found - 1] = place
        return place, place, found
    starts[found] = place
    return place, place, found + 1


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INTS = types.Array(types.int64, 1, "C", readonly=True)
_STEPS = types.Array(types.int32, 1, "C", readonly=True)
TABLES = types.Tuple((_BYTES, _STEPS, _BYTES, _BYTES, _STEPS))


@inner
def cut(data, offsets, tables, shifts, starts, at, most):
    """Finds where words start, from the position in `at` on.

    Args:
      data: uint8[N], UTF-8.
      offsets: int64[P + 1], where pieces begin, and where the last ends.
      tables: classes uint8[code points], steps int32[S C], ends uint8[S] of an `Automaton`; a step
        has the offset of the next state's row instead of its number. Classes of bytes, uint8[256],
        and their pairs, int32[S A A]: offset of the next state's row of pairs << 4, and the two
        bits of the second step and of the first; negative if one of them has no next state.
      shifts: log2 C, log2 A.
      starts: int64[ROOM]; contains the at[FOUND] starts known so far.
      at: int64[6].
      most: at most CHUNK: the bytes scanned in one call, and about the most words.

    Returns:
      The number of complete words: all, or all but the last, which may be a gap that continues.
    """
    classes, steps, ends, byte_classes, pairs = tables
    shift, first_shift = shifts[0], np.uint64(shifts[1])
    pair_shift = 2 * shifts[1]
    found, state, matched, gap = at[FOUND], at[STATE], at[MATCHED], at[GAP]
    place, piece, last = at[PLACE], at[PIECE], offsets.size - 1
    while found <= most and piece < last:
        stop = offsets[piece + 1]
        until = min(place + most, stop)
        while True:
            while place < until:
                row = state >> shift << pair_shift
                while place + 1 < until:
                    first = np.uint64(byte_classes[data[np.uint64(place)]]) << first_shift
                    second = np.uint64(byte_classes[data[np.uint64(place + 1)]])
                    step = np.int64(pairs[np.uint64(row) | first | second])
                    if step < 0:
                        break
                    matched = place if step & 1 else matched
                    starts[np.uint64(found)] = place
                    found += step >> 1 & 1
                    place += 1
                    matched = place if step & 4 else matched
                    starts[np.uint64(found)] = place
                    found += step >> 3 & 1
                    place += 1
                    row = step >> 4
                state = row >> pair_shift << shift
                if place == until:
                    break
                code, size = np.int64(data[place]), 1
                if code >= 0x80:
                    code, size = code_point(data, place)
                step = np.int64(steps[state | classes[code]])
                matched = place if step & 1 else matched
                if step < 0:
                    place, gap, found = _stop_word(data, starts, found, matched, gap)
                    state = 0
                    continue
                starts[found] = place
                found += step >> 1 & 1
                state = step >> 2
                place += size
            if place < stop or place == starts[found - 1]:
                break
            matched = place if ends[state >> shift] else matched
            place, gap, found = _stop_word(data, starts, found, matched, gap)
            state = 0
        if place == stop:
            piece += 1
            gap = -1
    at[FOUND], at[STATE], at[MATCHED], at[GAP] = found, state, matched, gap
    at[PLACE], at[PIECE] = place, piece
    return found - 1 if piece == last else found - 2


@entry(types.int64(_BYTES, _INTS, TABLES, _INTS, types.int64[::1], types.int64[::1]))
def cut_chunk(data, offsets, tables, shifts, starts, at):
    """`cut` for a caller in Python, with `most` = CHUNK."""
    return cut(data, offsets, tables, shifts, starts, at, CHUNK)


# ---- patterns ----


class Splitter:
    """Cuts text by one pattern after another, each within the words of the one before.

    `tokenizers` does the same with a Sequence of Splits with behavior `Isolated`: each match is a
    word, and so is the text between two matches.
    """

    def __init__(self, *patterns: str):
        """Compiles the patterns, in about 0.1 s.

        Raises:
          UnsupportedPattern: Textmill does not compile one of them.
        """
        self._tables = [_tables(pattern) for pattern in patterns]

    def cut(self, data: np.ndarray, offsets: np.ndarray) -> Iterator[np.ndarray]:
        """Finds where the words of pieces start, chunk by chunk.

        Args:
          data: UTF-8, uint8[bytes].
          offsets: int64[pieces + 1]; a piece is data[offsets[i] : offsets[i + 1]].

        Yields:
          int64: where words start, and where the last one ends. The next chunk overwrites the
          array. Words cover the whole text: `it's a dog` -> [[0, 2, 4, 6, 10]].
        """
        return _cut_each(data, self.cut_before(data, offsets), *self.last)

    @property
    def last(self) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """The tables of the last pattern, and log2 of the lengths of their rows."""
        return self._tables[-1]

    def cut_before(self, data: np.ndarray, offsets: np.ndarray) -> Iterator[np.ndarray]:
        """`cut` by all patterns except the last."""
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
    """The tables of a pattern, and log2 of the lengths of their rows."""
    automaton = compile_pattern(pattern)
    states, number = automaton.steps.shape
    shift = max(number - 1, 1).bit_length()
    steps = np.zeros((states, 1 << shift), np.int32)
    row_offsets = (automaton.steps >> 2 << shift + 2) | automaton.steps & 3
    steps[:, :number] = np.where(automaton.steps < 0, automaton.steps, row_offsets)
    byte_classes, pairs, byte_shift = _pairs(automaton)
    tables = automaton.classes, steps.ravel(), automaton.ends.astype(np.uint8), byte_classes, pairs
    return tables, np.array([shift, byte_shift])


def _pairs(automaton: Automaton) -> tuple[np.ndarray, np.ndarray, int]:
    """The classes of bytes, the steps of pairs of them, and log2 of the number of classes.

    Bytes above ASCII form one class, in which no pair has a step.
    """
    of_ascii, byte_classes = np.unique(automaton.classes[:128], return_inverse=True)
    shift = len(of_ascii).bit_length()
    above = (1 << shift) - 1
    single = np.full((len(automaton.steps), 1 << shift), -1, np.int64)
    single[:, : len(of_ascii)] = automaton.steps[:, of_ascii]
    first, second = single[:, :, np.newaxis], single[single >> 2]
    pairs = (second >> 2 << 2 * shift + 4) | (second & 3) << 2 | first & 3
    pairs = np.where((first < 0) | (second < 0), -1, pairs).astype(np.int32)
    classes = np.append(byte_classes, np.full(128, above)).astype(np.uint8)
    return classes, pairs.ravel(), shift


def begin(offsets: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The initial `at` of `cut` for some pieces."""
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
            words = cut_chunk(data, offsets, tables, shifts, starts, at)
            if words > 0:
                yield starts[: words + 1]
                left = at[FOUND] - words
                starts[:left] = starts[words : at[FOUND]]
                at[FOUND] = left
