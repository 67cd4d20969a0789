"""Long contexts -> windows of tokens that hold an answer. Pure; vectorised over documents.

Windows of a context of C tokens, R of which a row has room for, begin every s tokens, until one
reaches the end. R = 5, s = 3, C = 9: [0, 5), [3, 8), [6, 9). Legend: D documents, W windows.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.rows.ragged import ranges

NONE, FIRST, EVERY, HOLDING = range(4)  # which windows are wanted; HOLDING: those with the answer


@dataclass(frozen=True)
class Windows:
    """Some windows of each document, neighbours in ascending order.

    Attributes:
      document_W: int64, ascending.
      start_W: int64, the first token.
      stop_W: int64, the one after the last.
      part_W: int64, numbers from 0 within the document.
    """

    document_W: np.ndarray
    start_W: np.ndarray
    stop_W: np.ndarray
    part_W: np.ndarray

    def fresh_W(self) -> np.ndarray:
        """int64 [W]: tokens of each window that no window before it holds."""
        before = np.append(0, self.stop_W[:-1])
        return self.stop_W - np.where(self.part_W > 0, before, self.start_W)


def choose_windows(
    wanted_D: np.ndarray,
    *,
    length_D: np.ndarray,
    room_D: np.ndarray,
    start_D: np.ndarray,
    stop_D: np.ndarray,
    stride: int,
) -> Windows:
    """Cuts contexts so that the answer, wherever it is, stands in one window at least as a whole.

    Args:
      wanted_D: NONE, FIRST, EVERY or HOLDING, those that hold tokens start_D to stop_D.
      length_D: int64, C.
      room_D: int64, R, at least 1.
      start_D: int64.
      stop_D: int64; with HOLDING at most room_D after start_D.
      stride: s; less in documents where the answer would fit between two windows.
    """
    span_D = np.where(wanted_D == HOLDING, np.maximum(stop_D - start_D, 1), 1)
    step_D = np.clip(room_D - span_D + 1, 1, stride)
    last_D = -(-np.maximum(length_D - room_D, 0) // step_D)
    # Window w is [w * s, w * s + R): it holds the answer if w * s <= start and stop <= w * s + R.
    first_holding_D = np.maximum(-((room_D - stop_D) // step_D), 0)
    last_holding_D = np.minimum(start_D // step_D, last_D)
    from_D = np.where(wanted_D == HOLDING, first_holding_D, 0)
    to_D = np.select(
        [wanted_D == NONE, wanted_D == EVERY, wanted_D == HOLDING], [-1, last_D, last_holding_D], 0
    )
    count_D = to_D - from_D + 1
    document_W = np.repeat(np.arange(len(count_D)), count_D)
    number_W = ranges(from_D, count_D)
    start_W = number_W * step_D[document_W]
    stop_W = np.minimum(start_W + room_D[document_W], length_D[document_W])
    return Windows(document_W, start_W, stop_W, number_W - from_D[document_W])
