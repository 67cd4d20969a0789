"""Lengths -> rows: which segment lies in which row, and where. Pure; no token is lost.

Legend: L places a row, R rows, S segments.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


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
    row_of = _best_fit(lengths if room_S is None else room_S, max_length)
    order = np.argsort(row_of, kind="stable")
    # The segments of each row, one after another.
    start_S, length_S, row_S = offsets[:-1][order], lengths[order], row_of[order]
    rows = int(row_S[-1]) + 1 if len(row_S) else 0
    before = np.cumsum(length_S) - length_S
    firsts = np.searchsorted(row_S, np.arange(rows))
    offset_S = before - np.repeat(before[firsts], np.diff(np.append(firsts, len(row_S))))
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


def _best_fit(lengths: np.ndarray, max_length: int) -> np.ndarray:
    """Best-fit decreasing bin packing, over a histogram of lengths.

    Segments of equal length are interchangeable, so the work is done a length at a time: all of
    them go into the fullest rows that take them, as many a row as fit (Ding et al., "Fewer
    Truncations Improve Language Modeling", 2024, packs so for language models). Steps depend on
    the number of different lengths, not of segments.

    Returns:
      int64 [S]: the row of each segment.
    """
    row_of = np.empty(len(lengths), np.int64)
    by_length = np.argsort(-lengths, kind="stable")
    present, counts = np.unique(lengths, return_counts=True)
    open_rows: dict[int, list[np.ndarray]] = {}  # free places -> rows, as batches
    free_bits = 0  # bit f is set while open_rows[f] holds rows
    rows = done = 0
    for length, count in zip(present[::-1].tolist(), counts[::-1].tolist(), strict=True):
        segments = by_length[done : done + count]
        done += count
        while len(segments):
            fitting = free_bits >> length
            if fitting:
                free = (fitting & -fitting).bit_length() - 1 + length
                batch = np.concatenate(open_rows.pop(free))
                free_bits &= ~(1 << free)
            else:
                free = max_length
                batch = np.arange(rows, rows + -(-len(segments) // (free // length)))
                rows += len(batch)
            each = free // length
            used, rest = divmod(len(segments), each)
            used = min(used, len(batch))
            placed = used * each
            row_of[segments[:placed]] = np.repeat(batch[:used], each)
            left = [(free - each * length, batch[:used]), (free, batch[used:])]
            if rest and used < len(batch) and placed + rest == len(segments):
                row_of[segments[placed:]] = batch[used]
                placed += rest
                left = [left[0], (free - rest * length, batch[used : used + 1])]
                left.append((free, batch[used + 1 :]))
            segments = segments[placed:]
            for places, some in left:
                if places and len(some):
                    open_rows.setdefault(places, []).append(some)
                    free_bits |= 1 << places
    return row_of
