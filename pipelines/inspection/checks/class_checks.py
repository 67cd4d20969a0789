"""What must hold of `label` and `token_type_ids`, in rows of classification. Pure.

Legend: B rows, L places a row.
"""

from collections.abc import Iterator

import numpy as np

from pipelines.inspection.checks.row_problem import RowProblem, problems_where
from schemas.sidecar import Schema

Columns = dict[str, np.ndarray]


def class_problems(columns: Columns, schema: Schema) -> Iterator[RowProblem]:
    """Labels are classes, and padding has the token type 0.

    Args:
      columns: of B rows.
      schema: their contract.
    """
    label_B, classes = columns["label"], schema.parameters["classes"]
    yield from problems_where(
        (label_B >= len(classes))[:, None],
        lambda row, _: f"label is {label_B[row]}, and there are {len(classes)} classes, from 0 on",
    )
    if "token_type_ids" in columns:
        types = columns["token_type_ids"]
        yield from problems_where(
            (columns["segment_ids"] == 0) & (types != 0),
            lambda row, i: f"token_type_ids[{i}] is {types[row, i]} in padding, not 0",
        )


def count_labels(columns: Columns, schema: Schema) -> dict[str, int]:
    """Rows of each class, as statistics name them."""
    classes = schema.parameters["classes"]
    counts = np.bincount(columns["label"], minlength=len(classes)).tolist()
    return dict(zip(classes, counts, strict=False))  # a label beyond them is a problem of its row
