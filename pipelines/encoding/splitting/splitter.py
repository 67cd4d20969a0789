"""Splitting patterns at work: documents -> where their words start, or which hold a character.

Two bytes of ASCII are one step of a table of pairs, for each step waits for the one before it;
other characters, and those at which a word may end without a match, take a step alone.

Legend: N bytes, P pieces, S states, C classes and A classes of bytes (powers of two, of which some
may be unused).
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
from numba import types

from pipelines.encoding.splitting.automaton import Automaton, compile_pattern
from pipelines.host.compiled import entry, inner
from pipelines.rows.text_bytes import code_point

CHUNK = 1 << 14  # bytes of text, and about as many words, that are cut at once
ROOM = 2 * CHUNK + 4  # for starts: at most one a byte is found
# at[6]: the piece, the next byte, the row of the state, where the last match ended, where the last
# gap did, and how many starts are known
PIECE, PLACE, STATE, MATCHED, GAP, FOUND = range(6)


@inner
def _next_character(data, i):
    lead = data[i]
    return i + (1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4)


@inner
def _stop_word(data, starts, found, matched, gap):
    """Ends the word that no step goes on with: at its last match, or, without one, in a gap.

    Characters that begin no match make one word with those before them that begin none.

    Returns:
      Where to go on, where the last gap ends, and how many starts are known.
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
    """Finds where words start, from where `at` says on.

    Args:
      data: uint8[N], UTF-8.
      offsets: int64[P + 1], where pieces begin, and where the last ends.
      tables: classes uint8[code points], steps int32[S C], ends uint8[S] of an `Automaton`; a step
        has the place of the next state's row instead of its number. Classes of bytes, uint8[256],
        and their pairs, int32[S A A]: the place of the next state's row of pairs << 4, and the two
        bits of the second step and of the first; negative if one of them has no next state.
      shifts: log2 C, log2 A.
      starts: int64[ROOM]; those that `at` knows of lie there.
      at: int64[6].
      most: words, about, and bytes that are looked at in one go; at most CHUNK.

    Returns:
      How many words are whole: all but the last, which a gap may still go on with, or all.
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
    """As `cut`, of as many words as there is room for."""
    return cut(data, offsets, tables, shifts, starts, at, CHUNK)


@entry(types.void(_BYTES, _INTS, types.boolean[::1], types.boolean[::1]))
def find_characters(data, offsets, wanted, found):
    """Finds the pieces that hold any of some characters.

    Args:
      data: uint8[N], UTF-8.
      offsets: int64[P + 1].
      wanted: bool[code points].
      found: bool[P], becomes which pieces hold one.
    """
    for piece in range(found.size):
        place, stop, is_found = offsets[piece], offsets[piece + 1], False
        while place < stop and not is_found:
            code, size = np.int64(data[place]), 1
            if code >= 0x80:
                code, size = code_point(data, place)
            is_found = wanted[code]
            place += size
        found[piece] = is_found


# ---- patterns ----


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
            words = cut_chunk(data, offsets, tables, shifts, starts, at)
            if words > 0:
                yield starts[: words + 1]
                left = at[FOUND] - words
                starts[:left] = starts[words : at[FOUND]]
                at[FOUND] = left
