"""Lengths -> rows: which segment is in which row, and where; and segments put there. Pure.

No token is lost. What copies segments is compiled, since two threads make shards at once and
numpy's indexing would keep one of them waiting for the interpreter's lock. Legend: L positions of a
row, R rows, S segments, a row's one after another, B rows of a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipelines.host.compiled import entry
from pipelines.rows.packing_loop import best_fit, fill

# Searches for full rows: places that a row may leave free, in 512ths of it, and whether rows begin
# with the length that is left most, not with the longest. Many short segments are packed best by
# the first, few long ones by the others.
_SEARCHES = ((0, False), (1, False), (8, False), (16, False), (4, True))
_STEPS = 64  # of each search, a segment: only thousands of different lengths need as many


@dataclass(frozen=True)
class Packing:
    """Where each segment lies. Segments are slices of one flat stream of tokens.

    Attributes:
      start_S: int64, first token of the segment in the stream.
      length_S: int64, tokens of the segment.
      row_S: int64, the row it lies in; ascending.
      offset_S: int64, its first place in that row.
      segment_S: int64, which of the segments it is, or is a piece of.
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
        return np.searchsorted(self.row_S, np.arange(self.rows + 1))


def pack(
    offsets: np.ndarray, max_length: int, method: str, room_S: np.ndarray | None = None
) -> Packing:
    """Packs the segments of a stream into rows.

    Args:
      offsets: int64 [n + 1], where segments begin and end in the stream; with best_fit and none
        each is at most `max_length` long.
      max_length: L.
      method: best_fit (segments whole, rows as full as can be), concat (the stream cut every L
        tokens, segments too) or none (a segment a row).
      room_S: int64, places that best_fit gives each segment; by default as many as it is long.
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
    order = _sort(row_of)
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
    """int64 [S]: the row of each segment, of as few rows as any way finds."""
    ways = try_ways(np.bincount(lengths, minlength=max_length + 1))
    _, parts_P = min(ways, key=lambda rows_and_parts: rows_and_parts[0])
    return _assign(lengths, parts_P)


def try_ways(count_L: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Makes rows by best-fit decreasing, then by each search, until there can be no fewer.

    Segments of equal length are interchangeable, so rows are made from a histogram of lengths, many
    alike at once: work grows with the number of different lengths, hardly with that of segments.
    Best fit ends with rows that no segment left is short enough for. A search tries to fill each
    row wholly, or but for a few places (minimum bin slack: Gupta and Ho 1999, Fleszar and Hindi
    2002). Rows can be no fewer than all tokens through L.

    Args:
      count_L: int64 [L + 1], segments of each length.

    Yields:
      How many rows, and their parts, int64 [P, 4]: see `packing_loop.py`.
    """
    max_length = len(count_L) - 1
    tokens_L = count_L * np.arange(max_length + 1)
    order_D = np.argsort(-tokens_L, kind="stable")[: np.count_nonzero(count_L)]
    fewest, steps = -(-int(tokens_L.sum()) // max_length), _STEPS * int(count_L.sum())
    made = best_fit(count_L)
    yield made
    for share, most_left in _SEARCHES:
        if made[0] == fewest:
            return
        made = fill(count_L, order_D, -(-share * max_length // 512), most_left, steps)
        yield made


def _assign(lengths: np.ndarray, parts_P: np.ndarray) -> np.ndarray:
    """The row of each segment: those of a length go into its rows as they come."""
    first_P, rows_P, _, times_P = parts_P[np.argsort(parts_P[:, 2], kind="stable")].T
    row_R = np.arange(rows_P.sum()) + np.repeat(first_P - np.cumsum(rows_P) + rows_P, rows_P)
    row_of = np.empty(len(lengths), np.int64)
    row_of[_sort(lengths)] = np.repeat(row_R, np.repeat(times_P, rows_P))
    return row_of


def _sort(values: np.ndarray) -> np.ndarray:
    """A stable argsort of numbers below 2**32.

    numpy sorts numbers of 16 bits by radix: both halves take a third of the time of the whole.
    """
    if (values[1:] >= values[:-1]).all():
        return np.arange(len(values))
    order = np.argsort(values.astype(np.uint16), kind="stable")
    high = values >> 16
    return order[np.argsort(high[order].astype(np.uint16), kind="stable")] if high.any() else order


@dataclass(frozen=True)
class RowLayout:
    """What lies where in some rows.

    Attributes:
      start_S: int64, where each segment of a packing begins in the stream.
      length_S: int64.
      span_B: int64 [B] twice, each row's first segment and the one after its last.
      length: L.
    """

    start_S: np.ndarray
    length_S: np.ndarray
    span_B: tuple[np.ndarray, np.ndarray]
    length: int

    def copy(self, values: np.ndarray, rest: int) -> np.ndarray:
        """Rows of a stream's values, [B, L], and `rest` at padding.

        [5, 6, 7], segments [1, 3) and [0, 1), both in the one row, L = 5, rest 9 -> [[6 7 5 9 9]]

        Raises:
          ValueError: a segment is not in the stream, or does not fit its row.
        """
        column_BxL = np.full((len(self.span_B[0]), self.length), rest, values.dtype)
        if not _copy(values, self.start_S, self.length_S, *self.span_B, column_BxL):
            raise ValueError(
                f"segments do not fit rows of {self.length} places, or {len(values)} values"
            )
        return column_BxL

    def number(self, dtype: str) -> np.ndarray:
        """Rows of each segment's number, from 1 on, as often as it is long; then zeros: [B, L].

        Raises:
          ValueError: a segment does not fit its row.
        """
        column_BxL = np.zeros((len(self.span_B[0]), self.length), dtype)
        if not _number(self.length_S, *self.span_B, column_BxL):
            raise ValueError(f"segments do not fit rows of {self.length} places")
        return column_BxL


@entry()
def _copy(values, start_S, length_S, first_B, stop_B, column_BxL):
    for row in range(first_B.size):
        place = 0
        for segment in range(first_B[row], stop_B[row]):
            start, length = start_S[segment], length_S[segment]
            if start < 0 or length < 0 or length > values.size - start:
                return False
            if place + length > column_BxL.shape[1]:
                return False
            column_BxL[row, place : place + length] = values[start : start + length]
            place += length
    return True


@entry()
def _number(length_S, first_B, stop_B, column_BxL):
    for row in range(first_B.size):
        place = 0
        for segment in range(first_B[row], stop_B[row]):
            length = length_S[segment]
            if length < 0 or length > column_BxL.shape[1] - place:
                return False
            column_BxL[row, place : place + length] = segment - first_B[row] + 1
            place += length
    return True
