"""Puts segments where packing says, compiled by numba. Called by `shards.py`.

Legend: S segments, a row's one after another; B rows, L places a row.
"""

import numpy as np

from pipelines.compiled import entry


@entry()
def _copy(values, start_S, length_S, row_S, column_BxL):
    place = 0
    for segment in range(row_S.size):
        row, start = row_S[segment], start_S[segment]
        if segment and row != row_S[segment - 1]:
            place = 0
        for i in range(length_S[segment]):
            column_BxL[row, place + i] = values[start + i]
        place += length_S[segment]


@entry()
def _repeat(values_S, length_S, row_S, column_BxL):
    place = 0
    for segment in range(row_S.size):
        row, value = row_S[segment], values_S[segment]
        if segment and row != row_S[segment - 1]:
            place = 0
        for i in range(length_S[segment]):
            column_BxL[row, place + i] = value
        place += length_S[segment]


def copied(
    values: np.ndarray,
    start_S: np.ndarray,
    length_S: np.ndarray,
    row_S: np.ndarray,
    shape: tuple[int, int],
    rest: int,
) -> np.ndarray:
    """Rows of slices of `values`.

    [5, 6, 7], slices [1, 3) and [0, 1) in row 0, shape (1, 5), rest 9 -> [[6, 7, 5, 9, 9]]

    Args:
      values: of all segments.
      start_S: int64, where each slice begins.
      length_S: int64.
      row_S: int64, ascending.
      shape: (B, L).
      rest: what fills the rows up.
    """
    _check(length_S, row_S, shape)
    if len(start_S) and (start_S.min() < 0 or (start_S + length_S).max() > len(values)):
        raise ValueError(f"slices go beyond the {len(values)} values")
    column_BxL = np.full(shape, rest, values.dtype)
    _copy(values, start_S, length_S, row_S, column_BxL)
    return column_BxL


def repeated(
    values_S: np.ndarray, length_S: np.ndarray, row_S: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    """Rows of one value a segment, as often as it is long, and zeros after them."""
    _check(length_S, row_S, shape)
    column_BxL = np.zeros(shape, values_S.dtype)
    _repeat(values_S, length_S, row_S, column_BxL)
    return column_BxL


def _check(length_S: np.ndarray, row_S: np.ndarray, shape: tuple[int, int]) -> None:
    """Refuses what does not fit: compiled loops would write beside the column."""
    used_B = np.bincount(row_S, length_S, shape[0])
    if len(used_B) > shape[0] or used_B.max(initial=0) > shape[1] or length_S.min(initial=0) < 0:
        raise ValueError(f"segments do not fit {shape[0]} rows of {shape[1]} places")
