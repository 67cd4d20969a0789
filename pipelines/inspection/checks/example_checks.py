"""What must hold of `example_id`, by which rows that are evaluated name their documents. Pure."""

from collections.abc import Iterator

import numpy as np

from pipelines.rows.row_problem import RowProblem, problems_where
from schemas.features import is_training

Columns = dict[str, np.ndarray]


def example_names(columns: Columns) -> np.ndarray:
    """The feature `example_id` as one number: uint64 [B]."""
    halves = columns["example_id"].astype(np.uint64)
    return halves[:, 0] << np.uint64(32) | halves[:, 1]


def example_problems(
    columns: Columns, split: str, evaluation: np.ndarray | None
) -> Iterator[RowProblem]:
    """Rows that are evaluated have a line in evaluation.jsonl, and those of training name none.

    Args:
      columns: of B rows.
      split: that they are of.
      evaluation: uint64, the names of its lines; None if it cannot be read.
    """
    names_B = example_names(columns)
    if is_training(split):
        yield from problems_where(
            (names_B != 0)[:, None],
            lambda row, _: f"example_id is {names_B[row]:016x} in a row that is trained on, not 0",
        )
    elif evaluation is not None:
        yield from problems_where(
            ~np.isin(names_B, evaluation)[:, None],
            lambda row, _: f"example_id {names_B[row]:016x} has no line in evaluation.jsonl",
        )
