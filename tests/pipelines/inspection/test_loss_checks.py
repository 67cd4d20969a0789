"""Checks of the losses of clm and qa rows, broken by hand in one row of a good batch."""

from typing import Any

import numpy as np
import pytest

from pipelines.inspection.checks.row_checks import example_names, example_problems
from pipelines.tasks.clm import Clm
from pipelines.tasks.qa import Qa

CLM = {
    "segment_ids": [[1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 1, 1]],
    "loss_weights": [[0, 1, 1, 0, 1, 0], [0, 1, 1, 1, 1, 1]],
}
# A packed row: prompts of 2 and 1, answers of 2 and 1; and one that is all one question.
TRAIN = {
    "segment_ids": [[1, 1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 1, 1, 1]],
    "loss_weights": [[0, 0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0, 1]],
    "prefix_mask": [[1, 1, 0, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1, 0]],
    "prompt_length": [0, 0],
    "example_id": [[0, 0], [0, 0]],
}
TEST = {
    "segment_ids": [[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0, 0]],
    "loss_weights": [[0, 0, 1, 1, 1, 0, 0], [0, 0, 1, 0, 0, 0, 0]],
    "prefix_mask": [[1, 1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0]],
    "prompt_length": [2, 2],
    "example_id": [[1, 2], [3, 4]],
}
LINES = np.array([(1 << 32) + 2, (3 << 32) + 4], np.uint64)


def columns_of(values):
    dtypes = {"prompt_length": np.uint16, "example_id": np.uint32}
    return {name: np.array(column, dtypes.get(name, np.uint8)) for name, column in values.items()}


NO_SCHEMA: Any = None  # neither task reads it


def clm_problems(columns):
    return Clm.row_problems(columns, NO_SCHEMA, "train")


def qa_problems(columns, split):
    return Qa.row_problems(columns, NO_SCHEMA, split)


def found(problems):
    return [(problem.row, problem.message) for problem in problems]


def test_good_rows_have_no_problem():
    assert found(clm_problems(columns_of(CLM))) == []
    for rows, split in ((TRAIN, "train"), (TEST, "test")):
        columns = columns_of(rows)
        assert found(qa_problems(columns, split)) == []
        assert found(example_problems(columns, split, LINES)) == []
        del columns["prefix_mask"]  # as in the causal form
        assert found(qa_problems(columns, split)) == []
        empty = {name: values[:0] for name, values in columns.items()}
        assert found([*qa_problems(empty, split), *example_problems(empty, split, LINES)]) == []


@pytest.mark.parametrize(("place", "value"), [(0, 1), (2, 0), (3, 1), (5, 1), (1, 2)])
def test_every_token_of_clm_counts_but_the_first(place, value):
    columns = columns_of(CLM)
    due = columns["loss_weights"][0, place]
    columns["loss_weights"][0, place] = value
    ((row, message),) = found(clm_problems(columns))
    assert row == 0
    assert message.startswith(f"loss_weights[{place}] is {value}, not {due}: it is 1 for all")


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("loss_weights", (0, 6), 1, "loss_weights[6] is 1 in padding"),
        ("loss_weights", (0, 2), 2, "loss_weights[2] is 2, not 0 or 1"),
        ("loss_weights", (0, 0), 1, "loss_weights[1] is 0 after 1: the answer is the end of segme"),
        ("loss_weights", (0, 3), 0, "loss_weights[3] is 0 at the end of segment 1: the segment"),
        ("loss_weights", (0, 5), 0, "loss_weights[5] is 0 at the end of segment 2: the segment"),
        ("prefix_mask", (1, 3), 0, "prefix_mask[3] is 0, not 1: it must be 1 on the prompt and 0"),
        ("prefix_mask", (0, 2), 1, "prefix_mask[2] is 1, not 0: it must be 1 on the prompt and 0"),
        ("prefix_mask", (0, 6), 1, "prefix_mask[6] is 1, not 0: it must be 1 on the prompt and 0"),
        ("prefix_mask", (0, 0), 2, "prefix_mask[0] is 2, not 1: it must be 1 on the prompt and 0"),
        ("prompt_length", 1, 6, "prompt_length is 6, not 0"),
    ],
)
def test_what_is_broken_in_a_training_row_is_named(name, place, value, message):
    columns = columns_of(TRAIN)
    columns[name][place] = value
    problems = found(qa_problems(columns, "train_2"))
    assert {row for row, _ in problems} == {place if isinstance(place, int) else place[0]}
    assert any(said.startswith(message) for _, said in problems), problems


def test_what_is_broken_in_an_evaluation_row_is_named():
    columns = columns_of(TEST)
    columns["prompt_length"][1] = 3
    assert (1, "prompt_length is 3, not 2") in found(qa_problems(columns, "test"))
    columns = columns_of(TEST)
    columns["segment_ids"][1, 2] = 2
    message = "segment_ids[2] is 2, but test has one question per row"
    assert (1, message) in found(qa_problems(columns, "test"))


def test_rows_and_lines_name_each_other():
    columns = columns_of(TEST)
    assert example_names(columns).tolist() == LINES.tolist()
    assert found(example_problems(columns, "test", None)) == []
    assert found(example_problems(columns, "test", LINES[:1])) == [
        (1, "example_id 0000000300000004 has no line in evaluation.jsonl")
    ]
    assert found(example_problems(columns, "train", LINES)) == [
        (0, "example_id is 0000000100000002 in a training row, not 0"),
        (1, "example_id is 0000000300000004 in a training row, not 0"),
    ]
