"""What is wrong with a row, in words. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

MOST = 20  # problems of one kind that are described; a thousand equal ones help nobody


@dataclass(frozen=True)
class RowProblem:
    """What is wrong with a row.

    Attributes:
      row: index in the batch.
      message: names the value and its place in the row.
    """

    row: int
    message: str


def problems_where(bad: np.ndarray, message: Callable[[int, int], str]) -> Iterator[RowProblem]:
    """A problem for every true place [row, column], up to MOST."""
    if not bad.any():
        return
    for row, column in np.argwhere(bad)[:MOST].tolist():
        yield RowProblem(row, message(row, column))
