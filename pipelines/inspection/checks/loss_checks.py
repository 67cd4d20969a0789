"""What must hold of `loss_weights` and of what goes with them, in rows of decoders' tasks. Pure.

Legend: B rows, L places a row.
"""

from collections.abc import Iterator

import numpy as np

from pipelines.inspection.checks.row_problem import RowProblem, problems_where
from pipelines.tasks.task import is_training

Columns = dict[str, np.ndarray]


def clm_problems(columns: Columns) -> Iterator[RowProblem]:
    """Every token but the first of its segment counts; padding does not."""
    segment_ids, weights = columns["segment_ids"], columns["loss_weights"]
    due = np.zeros(segment_ids.shape, weights.dtype)
    due[:, 1:] = (segment_ids[:, 1:] == segment_ids[:, :-1]) & (segment_ids[:, 1:] > 0)
    yield from problems_where(
        weights != due,
        lambda row, i: (
            f"loss_weights[{i}] is {weights[row, i]}, not {due[row, i]}: every token counts but "
            "the first of its segment, and padding does not"
        ),
    )


def qa_problems(columns: Columns, split: str) -> Iterator[RowProblem]:
    """What counts is the end of each segment; the prompt is what comes before.

    Args:
      columns: of B rows, whose segments are as they should be.
      split: that they are of.
    """
    segment_ids, weights = columns["segment_ids"], columns["loss_weights"]
    is_token, counts = segment_ids > 0, weights > 0
    yield from problems_where(
        weights > is_token,
        lambda row, i: (
            f"loss_weights[{i}] is {weights[row, i]}, not 0 or 1"
            if is_token[row, i]
            else f"loss_weights[{i}] is {weights[row, i]} in padding"
        ),
    )
    goes_on = np.zeros(segment_ids.shape, bool)
    goes_on[:, :-1] = segment_ids[:, 1:] == segment_ids[:, :-1]
    after = np.zeros(segment_ids.shape, bool)
    after[:, :-1] = counts[:, 1:]
    yield from problems_where(
        goes_on & counts & ~after,
        lambda row, i: (
            f"loss_weights[{i + 1}] is 0 after 1: the answer is the end of segment "
            f"{segment_ids[row, i]}"
        ),
    )
    yield from problems_where(
        is_token & ~goes_on & ~counts,
        lambda row, i: (
            f"loss_weights[{i}] is 0 at the end of segment {segment_ids[row, i]}: nothing of it "
            "is learned"
        ),
    )
    is_prompt = is_token & ~counts
    if "prefix_mask" in columns:
        prefix_mask = columns["prefix_mask"]
        yield from problems_where(
            prefix_mask != is_prompt,
            lambda row, i: (
                f"prefix_mask[{i}] is {prefix_mask[row, i]}, not {int(is_prompt[row, i])}: it is 1 "
                "on the prompt alone"
            ),
        )
    length, prompt_B = columns["prompt_length"], is_prompt.sum(axis=1)
    if is_training(split):
        prompt_B = np.zeros_like(prompt_B)
    yield from problems_where(
        (length != prompt_B)[:, None],
        lambda row, _: f"prompt_length is {length[row]}, not {prompt_B[row]}",
    )
    if not is_training(split):
        yield from problems_where(
            segment_ids > 1,
            lambda row, i: (
                f"segment_ids[{i}] is {segment_ids[row, i]}, although {split} has one question a "
                "row"
            ),
        )


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
