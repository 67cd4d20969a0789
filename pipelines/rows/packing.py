"""Packs segments into rows, and copies segments to their positions. No token is lost.

Copying is compiled, since two threads make shards at once and numpy's indexing would hold the GIL.
Legend: L positions of a row, R rows, S segments in the order of their rows, B rows of a batch, D
different lengths, P parts of rows: int64 [P, 4], each (first row, number of rows, length, how many
segments of that length each of these rows has).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from textmill.pipelines.runtime.compiled import entry, inner

# Searches for full rows: the padding that a row may have, in 512ths of L, and whether rows begin
# with the length that has most tokens left instead of the longest. The first search packs many
# short segments best, the others few long ones.
_SEARCHES = ((0, False), (1, False), (8, False), (16, False), (4, True))
_STEPS = 64  # of each search, per segment; only thousands of different lengths need as many


@dataclass(frozen=True)
class Packing:
    """The row and position of each segment. Segments are slices of one flat stream of tokens.

    Attributes:
      start_S: int64, the first token of the segment in the stream.
      length_S: int64, tokens of the segment.
      row_S: int64, the row of the segment; ascending.
      offset_S: int64, its first position in that row.
      segment_S: int64, the index of the original segment; concat may cut one into several.
      rows: R.
    """

    start_S: np.ndarray
    length_S: np.ndarray
    row_S: np.ndarray
    offset_S: np.ndarray
    segment_S: np.ndarray
    rows: int

    @cached_property
    def bounds(self) -> np.ndarray:
        """int64 [R + 1]: the segments of row r are those from bounds[r] to bounds[r + 1]."""
        return np.append(0, np.cumsum(np.bincount(self.row_S, minlength=self.rows)))


def pack(
    offsets: np.ndarray, max_length: int, method: str, room_S: np.ndarray | None = None
) -> Packing:
    """Packs the segments of a stream into rows.

    Args:
      offsets: int64 [n + 1], where segments begin and end in the stream. With best_fit and none,
        each has at most `max_length` tokens.
      max_length: L.
      method: best_fit (whole segments, as few rows as possible), concat (the stream is cut every L
        tokens, also within segments) or none (one segment per row).
      room_S: int64, positions that best_fit reserves for each segment; its length by default.

    Raises:
      ValueError: a segment is longer than a row.
    """
    lengths = np.diff(offsets)
    if method == "concat":
        return _concat(offsets, max_length)
    if len(lengths) and lengths.max() > max_length:
        raise ValueError(f"a segment of {lengths.max()} tokens does not fit a row of {max_length}")
    if method == "none":
        rows = np.arange(len(lengths))
        return Packing(offsets[:-1], lengths, rows, np.zeros_like(rows), rows, len(rows))
    row_of = _fill_rows(lengths if room_S is None else room_S, max_length)
    order = np.argsort(row_of, kind="stable")
    # The segments of each row, one after another.
    start_S, length_S, row_S = offsets[:-1][order], lengths[order], row_of[order]
    rows = int(row_S[-1]) + 1 if len(row_S) else 0
    before = np.cumsum(length_S) - length_S
    segments_R = np.bincount(row_S, minlength=rows)
    offset_S = before - np.repeat(before[np.cumsum(segments_R) - segments_R], segments_R)
    return Packing(start_S, length_S, row_S, offset_S, order, rows)


def _concat(offsets: np.ndarray, max_length: int) -> Packing:
    """[0, 5, 9], L = 4 -> segments [0, 4), [4, 5), [5, 8), [8, 9) in rows 0, 1, 1, 2."""
    total = int(offsets[-1])
    cuts = np.union1d(offsets, np.arange(0, total, max_length))
    start_S = cuts[:-1]
    return Packing(
        start_S,
        np.diff(cuts),
        start_S // max_length,
        start_S % max_length,
        np.searchsorted(offsets, start_S, side="right") - 1,
        -(-total // max_length),
    )


def _fill_rows(lengths: np.ndarray, max_length: int) -> np.ndarray:
    """The row of each segment, int64 [S], by the method that needs the fewest rows."""
    ways = try_ways(np.bincount(lengths, minlength=max_length + 1))
    _, parts_P = min(ways, key=lambda rows_and_parts: rows_and_parts[0])
    return _assign(lengths, parts_P)


def try_ways(count_L: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Packs by best-fit decreasing, then by each search, until fewer rows are impossible.

    Segments of equal length are interchangeable, so rows are made from a histogram of lengths, many
    equal rows at once: the work grows with the number of different lengths, hardly with that of
    segments. Best fit ends with rows that no remaining segment is short enough for. A search tries
    to fill each row completely, or up to a few positions (minimum bin slack: Gupta and Ho 1999,
    Fleszar and Hindi 2002). The lower bound is the number of tokens divided by L, rounded up.

    Args:
      count_L: int64 [L + 1], segments of each length.

    Yields:
      The number of rows, and their parts, int64 [P, 4].
    """
    max_length = len(count_L) - 1
    tokens_L = count_L * np.arange(max_length + 1)
    order_D = np.argsort(-tokens_L, kind="stable")[: np.count_nonzero(count_L)]
    fewest, steps = -(-int(tokens_L.sum()) // max_length), _STEPS * int(count_L.sum())
    rows, parts_P = best_fit(count_L)
    yield rows, parts_P
    for share, most_left in _SEARCHES:
        if rows == fewest:
            return
        rows, parts_P = fill(count_L, order_D, -(-share * max_length // 512), most_left, steps)
        yield rows, parts_P


def _assign(lengths: np.ndarray, parts_P: np.ndarray) -> np.ndarray:
    """The row of each segment: those of one length go into its rows in their order."""
    first_P, rows_P, _, times_P = parts_P[np.argsort(parts_P[:, 2], kind="stable")].T
    row_R = np.arange(rows_P.sum()) + np.repeat(first_P - np.cumsum(rows_P) + rows_P, rows_P)
    row_of = np.empty(len(lengths), np.int64)
    row_of[np.argsort(lengths, kind="stable")] = np.repeat(row_R, np.repeat(times_P, rows_P))
    return row_of


@dataclass(frozen=True)
class RowLayout:
    """The segments of some rows, from which columns of these rows are made.

    Attributes:
      start_S: int64, where each segment of a packing begins in the stream.
      length_S: int64, tokens of each segment.
      span_B: int64 [B] twice, each row's first segment and the one after its last.
      length: L.
    """

    start_S: np.ndarray
    length_S: np.ndarray
    span_B: tuple[np.ndarray, np.ndarray]
    length: int

    def copy(self, values: np.ndarray, rest: int) -> np.ndarray:
        """The values of a stream in rows, [B, L], with `rest` as padding.

        [5, 6, 7], one row with segments [1, 3) and [0, 1), L = 5, rest 9 -> [[6 7 5 9 9]]

        Raises:
          ValueError: a segment is not in the stream, or does not fit its row.
        """
        first_B, stop_B = self.span_B
        column_BxL = np.empty((len(first_B), self.length), values.dtype)
        rest = values.dtype.type(rest)
        if not _copy(values, self.start_S, self.length_S, first_B, stop_B, rest, column_BxL):
            raise ValueError(
                f"segments do not fit rows of {self.length} positions, or {len(values)} values"
            )
        return column_BxL

    def number(self, dtype: str) -> np.ndarray:
        """The number of each position's segment, from 1 on, 0 at padding: [B, L].

        Raises:
          ValueError: a segment does not fit its row.
        """
        first_B, stop_B = self.span_B
        column_BxL = np.empty((len(first_B), self.length), dtype)
        if not _number(self.length_S, first_B, stop_B, column_BxL):
            raise ValueError(f"segments do not fit rows of {self.length} positions")
        return column_BxL


@inner
def _fill(row_L, place, length, value):
    # LLVM makes vector instructions of loops over unsigned indices, but of no slices.
    for i in range(place, place + length):
        row_L[np.uint64(i)] = value


@entry()
def _copy(values, start_S, length_S, first_B, stop_B, rest, column_BxL):
    for row in range(first_B.size):
        row_L, place = column_BxL[row], 0
        for segment in range(first_B[row], stop_B[row]):
            start, length = start_S[segment], length_S[segment]
            if start < 0 or length < 0 or length > values.size - start:
                return False
            if length > row_L.size - place:
                return False
            for i in range(length):
                row_L[np.uint64(place + i)] = values[np.uint64(start + i)]
            place += length
        _fill(row_L, place, row_L.size - place, rest)
    return True


@entry()
def _number(length_S, first_B, stop_B, column_BxL):
    for row in range(first_B.size):
        row_L, place = column_BxL[row], 0
        for segment in range(first_B[row], stop_B[row]):
            length = length_S[segment]
            if length < 0 or length > row_L.size - place:
                return False
            _fill(row_L, place, length, segment - first_B[row] + 1)
            place += length
        _fill(row_L, place, row_L.size - place, 0)
    return True


# ---- rows from a histogram of segment lengths ----
# In a search, the row that is being filled is int64 [L, 2], its parts: a length, and how many
# segments of it. The remaining segments are two int64 [L + 1]: `left_L`, how many there are of each
# length, and `upto_L`, links to the longest that is at most a length.

_ROW_STEPS = 2000  # the most for one row; nearly all searches end long before


@inner
def _fullest(open_L, blocks, length):
    """The fewest free positions of an open row that are enough for a length; above L if none is."""
    free = length
    while free < open_L.size and open_L[free] < 0:
        free += 1 if blocks[free >> 8] else 256 - (free & 255)
    return free


@entry()
def best_fit(count_L):
    """Best-fit decreasing: the longest first, each into the fullest row that has room.

    Segments of one length are packed at once, as many per row as fit (for language models: Ding et
    al., "Fewer Truncations Improve Language Modeling", 2024).

    Args:
      count_L: int64 [L + 1], segments of each length, none of length 0.

    Returns:
      The number of rows, and their parts, int64 [P, 4].
    """
    most, rows, parts = count_L.size - 1, 0, 0
    parts_P = np.empty((count_L.sum(), 4), np.int64)
    # Runs of equal rows: the first, how many, and the next run with as many free positions.
    alike = np.empty((2 * len(parts_P), 3), np.int64)
    open_L, blocks, size = np.full(count_L.size, -1), np.zeros((most >> 8) + 1, np.int64), 0
    for length in range(most, 0, -1):
        left = count_L[length]
        while left:
            free = _fullest(open_L, blocks, length)
            if free > most:
                free, first, some = most, rows, -(-left // (most // length))
                rows += some
            else:
                first, some, open_L[free] = alike[open_L[free]]
                blocks[free >> 8] -= 1
            times = min(free // length, left)
            used = min(left // times, some)
            parts_P[parts] = first, used, length, times
            parts += 1
            left -= used * times
            for begin, number, places in (
                (first, used, free - times * length),
                (first + used, some - used, free),
            ):
                if number and places:
                    alike[size] = begin, number, open_L[places]
                    open_L[places] = size
                    blocks[places >> 8] += 1
                    size += 1
    return rows, parts_P[:parts]


@inner
def _longest(upto_L, length):
    """The longest remaining length up to `length`, or 0; shortens the links for later calls."""
    while upto_L[length] != length:
        upto_L[length] = upto_L[upto_L[length]]
        length = upto_L[length]
    return length


@inner
def _times(row, parts, length):
    """How many segments of a length a row with `parts` parts has."""
    times = 0
    for part in range(parts):
        if row[part, 0] == length:
            times += row[part, 1]
    return times


@inner
def _take_longest(row, left_L, upto_L, first):
    """Fills a row by adding the longest that fits: the number of parts, and free positions."""
    parts, length, free = 0, first, left_L.size - 1
    while length:
        row[parts] = length, min(left_L[length], free // length)
        free -= length * row[parts, 1]
        length = _longest(upto_L, min(free, length - 1))
        parts += 1
    return parts, free


@inner
def _search(row, left_L, upto_L, first, order_D, slack):
    """Searches for a row with one segment of length `first` and at most `slack` free positions.

    The search is depth first over the lengths of `order_D`. The last segment is looked up: it is
    the longest of them, so each other one takes at most half of the free positions.

    Returns:
      The number of the row's parts, 0 if none was found; free positions; steps taken.
    """
    rank_P = np.empty(len(row), np.int64)
    row[0] = first, 1
    parts, free, at, steps = 1, left_L.size - 1 - first, 0, 0
    while steps < _ROW_STEPS:
        last = _longest(upto_L, free)
        if last and free - last <= slack and _times(row, parts, last) < left_L[last]:
            row[parts] = last, 1
            return parts + 1, free - last, steps
        while at < order_D.size and (
            order_D[at] * 2 > free or left_L[order_D[at]] == (order_D[at] == first)
        ):
            at += 1
            steps += 1
        if at < order_D.size:
            length = order_D[at]
            rank_P[parts] = at
            row[parts] = length, min(left_L[length] - (length == first), free // length)
            free -= length * row[parts, 1]
            parts += 1
            if free <= slack:
                return parts, free, steps
        elif parts > 1:  # one segment less of the last part, or of the one before
            at = rank_P[parts - 1]
            free += order_D[at]
            row[parts - 1, 1] -= 1
            parts -= row[parts - 1, 1] == 0
        else:
            break
        at += 1
        steps += 1
    return 0, free, steps


@inner
def _first(left_L, upto_L, order_D, most_left):
    """The length that begins the next row, or 0: the longest, or the one with most tokens left."""
    first = _longest(upto_L, left_L.size - 1)
    if most_left and first * 2 < left_L.size:
        for length in order_D:
            if left_L[length] * length > left_L[first] * first:
                first = length
    return first


@entry()
def fill(count_L, order_D, slack, most_left, steps):
    """Packs all segments: finds a row, and repeats it as often as the segments allow.

    Args:
      count_L: int64 [L + 1], segments of each length, none of length 0.
      order_D: int64, the lengths, in the order in which the search tries them.
      slack: positions that the search may leave free in a row.
      most_left: begin rows with the length that has most tokens left once the longest is at most
        half a row; otherwise always with the longest.
      steps: the most steps of all searches together. A row for which the search fails is filled by
        adding the longest that fits.

    Returns:
      The number of rows, and their parts, int64 [P, 4].
    """
    left_L = count_L.copy()
    upto_L = np.maximum(np.arange(left_L.size) - (left_L == 0), 0)
    row, other = np.empty((left_L.size, 2), np.int64), np.empty((left_L.size, 2), np.int64)
    rows, size, parts_P = 0, 0, np.empty((left_L.sum(), 4), np.int64)
    first = _first(left_L, upto_L, order_D, most_left)
    while first:
        parts, free = _take_longest(row, left_L, upto_L, first)
        if free > slack and steps > 0:
            found, rest, taken = _search(other, left_L, upto_L, first, order_D, slack)
            steps -= taken
            if found:
                row, other, parts, free = other, row, found, rest
        alike = left_L[first]
        for part in range(parts):
            alike = min(alike, left_L[row[part, 0]] // _times(row, parts, row[part, 0]))
        if free <= slack:  # only half of them, to keep a choice of lengths for later rows
            alike = (alike + 1) // 2
        for part in range(parts):
            length, times = row[part]
            parts_P[size] = rows, alike, length, times
            size += 1
            left_L[length] -= alike * times
            if not left_L[length]:
                upto_L[length] = length - 1
        rows += alike
        steps -= order_D.size * (most_left and first * 2 < left_L.size)
        first = _first(left_L, upto_L, order_D, most_left and steps > 0)
    return rows, parts_P[:size]
