"""Puts segments where packing says. Pure.

The loops are compiled, since two threads make shards at once and numpy's indexing would keep one
of them waiting for the interpreter's lock. Legend: S segments, a row's one after another; B rows, L
places a row.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.host.compiled import entry


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
