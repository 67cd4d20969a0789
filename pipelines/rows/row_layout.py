"""Puts segments where packing says. Pure.

Legend: S segments of these rows, a row's one after another; B rows, L places a row, N tokens.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.rows.ragged import ranges


@dataclass(frozen=True)
class RowLayout:
    """What lies where in some rows.

    Attributes:
      filled_BxL: bool, false at padding.
      token_N: int64, which token of the stream each filled place holds, row by row.
      number_S: int64, the number of each segment in its row, from 1 on.
      length_S: int64.
    """

    filled_BxL: np.ndarray
    token_N: np.ndarray
    number_S: np.ndarray
    length_S: np.ndarray

    @classmethod
    def of(
        cls,
        start_S: np.ndarray,
        length_S: np.ndarray,
        span_B: tuple[np.ndarray, np.ndarray],
        length: int,
    ) -> "RowLayout":
        """Lays out rows of a packing.

        Args:
          start_S: int64, where each segment of the packing begins in the stream.
          length_S: int64, of all its segments too.
          span_B: int64 [B] twice, each row's first segment and the one after its last.
          length: L.

        Raises:
          ValueError: a segment begins before the stream, or does not fit its row.
        """
        count_B = span_B[1] - span_B[0]
        chosen_S = ranges(span_B[0], count_B)
        start_S, length_S = start_S[chosen_S], length_S[chosen_S]
        ends_S, stop_B = np.append(0, np.cumsum(length_S)), np.cumsum(count_B)
        used_B = ends_S[stop_B] - ends_S[stop_B - count_B]
        longest = max(length_S.max(initial=0), used_B.max(initial=0))
        if min(start_S.min(initial=0), length_S.min(initial=0)) < 0 or longest > length:
            raise ValueError(f"segments do not fit rows of {length} places")
        filled_BxL = np.arange(length) < used_B[:, None]
        number_S = ranges(np.ones_like(count_B), count_B)
        return cls(filled_BxL, ranges(start_S, length_S), number_S, length_S)

    def copy(self, values: np.ndarray, rest: int) -> np.ndarray:
        """Rows of a stream's values, [B, L], and `rest` at padding.

        [5, 6, 7], segments [1, 3) and [0, 1), both in the one row, L = 5, rest 9 -> [[6 7 5 9 9]]

        Raises:
          IndexError: a segment ends after the stream.
        """
        column_BxL = np.full(self.filled_BxL.shape, rest, values.dtype)
        column_BxL[self.filled_BxL] = values[self.token_N]
        return column_BxL

    def number(self, dtype: str) -> np.ndarray:
        """Rows of each segment's number, as often as it is long, and zeros at padding: [B, L]."""
        column_BxL = np.zeros(self.filled_BxL.shape, dtype)
        column_BxL[self.filled_BxL] = np.repeat(self.number_S.astype(dtype), self.length_S)
        return column_BxL
