"""Puts segments where packing says, compiled by numba. Called by `shards.py`.

Legend: S segments, a row's one after another; B rows, L places a row.
"""

import numpy as np

from pipelines.host.compiled import entry


@entry()
def _copy(values, start_S, length_S, first_B, stop_B, column_BxL):
    for row in range(first_B.size):
        place = 0
        for segment in range(first_B[row], stop_B[row]):
            start, length = start_S[segment], length_S[segment]
            if start < 0 or length < 0 or start + length > values.size:
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
            if length < 0 or place + length > column_BxL.shape[1]:
                return False
            column_BxL[row, place : place + length] = segment - first_B[row] + 1
            place += length
    return True


def copied(
    values: np.ndarray,
    start_S: np.ndarray,
    length_S: np.ndarray,
    span_B: tuple[np.ndarray, np.ndarray],
    length: int,
    rest: int,
) -> np.ndarray:
    """Rows of slices of `values`.

    [5, 6, 7], slices [1, 3) and [0, 1), both in the one row, length 5, rest 9 -> [[6, 7, 5, 9, 9]]

    Args:
      values: of all segments.
      start_S: int64, where each slice begins.
      length_S: int64.
      span_B: int64 [B] twice, each row's first segment and the one after its last.
      length: L.
      rest: what fills the rows up.

    Raises:
      ValueError: a slice is not in the values, or does not fit its row.
    """
    column_BxL = np.full((len(span_B[0]), length), rest, values.dtype)
    if not _copy(values, start_S, length_S, *span_B, column_BxL):
        raise ValueError(f"segments do not fit {len(values)} values or rows of {length} places")
    return column_BxL


def numbered(
    length_S: np.ndarray, span_B: tuple[np.ndarray, np.ndarray], length: int, dtype: str
) -> np.ndarray:
    """Rows of each segment's number in its row, from 1 on, as often as it is long; then zeros.

    Raises:
      ValueError: a segment does not fit its row.
    """
    column_BxL = np.zeros((len(span_B[0]), length), dtype)
    if not _number(length_S, *span_B, column_BxL):
        raise ValueError(f"segments do not fit rows of {length} places")
    return column_BxL
