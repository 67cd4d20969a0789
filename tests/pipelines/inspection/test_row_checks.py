"""Each invariant of a row and of the losses of clm and qa, broken by hand in a good batch."""

from typing import Any

import numpy as np
import pytest

from tests.tools.shard_factory import BOS, EOS, MASK, PAD, UNK, mlm_schema, packed_rows
from textmill.pipelines.inspection.checks.row_checks import (
    count,
    example_names,
    example_problems,
    row_problems,
)
from textmill.pipelines.tasks.clm import Clm
from textmill.pipelines.tasks.qa import Qa
from textmill.pipelines.tasks.task import MOST_PROBLEMS
from textmill.schemas.format.features import positions_from_segments

WRAP: dict[str, Any] = {"prefix": (BOS,), "suffix": (EOS,)}


def _columns(**changes):
    """Two rows worked by hand: three slots, of which row 0 uses two and row 1 one."""
    columns = {
        # <s> 10 _ 12 </s> <s> 20 _ </s> pad pad     /     <s> _ 31 </s> pad ...
        "input_ids": [
            [BOS, 10, MASK, 12, EOS, BOS, 20, 44, EOS, PAD, PAD],
            [BOS, MASK, 31, EOS, PAD, PAD, PAD, PAD, PAD, PAD, PAD],
        ],
        "segment_ids": [[1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0], [1, 1, 1, 1] + [0] * 7],
        "masked_positions": [[2, 7, 0], [1, 0, 0]],
        "masked_ids": [[11, 21, 0], [30, 0, 0]],
        "masked_weights": [[1, 1, 0], [1, 0, 0]],
    }
    dtypes = {"segment_ids": np.uint8, "masked_weights": np.uint8}
    return {name: np.array(v, dtypes.get(name, np.uint16)) for name, v in columns.items()}


SCHEMA = mlm_schema(max_length=11, max_masked=3)


def test_good_rows_have_no_problem_and_are_counted():
    columns = _columns()
    assert row_problems(columns, SCHEMA, **WRAP) == []
    assert count(columns) == {"rows": 2, "tokens_in_rows": 13, "segments": 3, "masked": 3}
    empty = {name: values[:0] for name, values in columns.items()}
    assert row_problems(empty, SCHEMA, **WRAP) == []
    assert count(empty) == {"rows": 0, "tokens_in_rows": 0, "segments": 0, "masked": 0}


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("segment_ids", 0, 2, "segment_ids[0] is 2: a row begins with segment 1"),
        ("segment_ids", 0, 0, "segment_ids[0] is 0: a row begins with segment 1"),
        ("segment_ids", 2, 0, "segment_ids[3] is 1 after 0: segments count up by one, and"),
        ("segment_ids", 3, 3, "segment_ids[3] is 3 after 1: segments count up"),
        ("segment_ids", 3, 2, "the segment that begins at 3 has id 2 at 3, not 0 in the unmasked"),
        ("segment_ids", 9, 1, "segment_ids[9] is 1 after 0"),
        ("input_ids", 2, 50, "input_ids[2] is 50, not below the vocabulary's 50"),
        ("input_ids", 6, 10, "input_ids[6] is 10 in padding, not 1"),
        ("input_ids", 1, UNK, "input_ids[1] is 3 at a masked position: neither the mask token nor"),
        ("input_ids", 0, 9, "the segment that begins at 0 has id 9 at 0, not 0 in the unmasked"),
        ("input_ids", 3, 9, "the segment that ends at 3 has id 9 at 3, not 2 in the unmasked row"),
        ("masked_weights", 0, 2, "masked_weights[0] is 2, not 0 or 1"),
        ("masked_weights", 2, 1, "masked_weights[2] is 1 after 0: slots in use come first"),
        ("masked_weights", 0, 0, "slot 0 is empty, but masked_positions has 1 and masked_ids 30"),
        ("masked_positions", 2, 7, "slot 2 is empty, but masked_positions has 7 and masked_ids 0"),
        ("masked_ids", 1, 30, "slot 1 is empty, but masked_positions has 0 and masked_ids 30"),
        ("masked_positions", 0, 4, "masked_positions[0] is 4, a position without a token"),
        ("masked_positions", 0, 11, "masked_positions[0] is 11, a position without a token"),
        ("masked_ids", 0, 50, "masked_ids[0] is 50, not below the vocabulary's 50"),
        ("masked_ids", 0, EOS, "masked_ids[0] is 2, a special token, which is never masked"),
    ],
)
def test_what_is_broken_in_row_1_is_named(name, place, value, message):
    columns = _columns()
    columns[name][1, place] = value
    problems = row_problems(columns, SCHEMA, **WRAP)
    assert {problem.row for problem in problems} == {1}
    assert any(problem.message.startswith(message) for problem in problems), problems


def test_positions_of_masks_ascend():
    for second in (2, 1):
        columns = _columns()
        columns["masked_positions"][0, 1] = second
        (problem,) = (p for p in row_problems(columns, SCHEMA, **WRAP) if "ascend" in p.message)
        assert problem.row == 0
        assert problem.message == f"masked_positions[1] is {second} after 2: they ascend"


def test_packing_none_allows_one_segment_and_concat_cut_ones():
    schema = mlm_schema(max_length=11, max_masked=3, packing="none")
    (problem, *_) = row_problems(_columns(), schema, **WRAP)
    message = "segment_ids[5] is 2, but packing=none allows one segment"
    assert (problem.row, problem.message) == (0, message)
    schema = mlm_schema(max_length=11, max_masked=3, packing="concat")
    columns = _columns()
    columns["input_ids"][1, 0] = 9
    assert row_problems(columns, schema, **WRAP) == []


def test_masks_are_undone_before_ends_are_looked_at():
    schema = mlm_schema(max_length=11, max_masked=3, all_special_ids=(0, 1, 2, 3, 4))
    columns = _columns()
    # The mask stands where </s> should, and hides that 21 stood there.
    columns["masked_positions"][0, 1] = 8
    columns["input_ids"][0, 8] = MASK
    messages = [p.message for p in row_problems(columns, schema, **WRAP)]
    assert messages == ["the segment that ends at 8 has id 21 at 8, not 2 in the unmasked row"]


def test_stored_positions_follow_from_segments():
    columns = _columns()
    columns["positions"] = positions_from_segments(columns["segment_ids"]).astype(np.uint16)
    assert row_problems(columns, SCHEMA, **WRAP) == []
    columns["positions"][0, 5] = 5
    (problem,) = row_problems(columns, SCHEMA, **WRAP)
    assert (problem.row, problem.message) == (0, "positions[5] is 5, not 0")


def test_rows_without_masks():
    schema = mlm_schema(static_masking=False, vocab_size=70_000)
    columns = packed_rows(schema, 50, seed=4)
    assert row_problems(columns, schema, **WRAP) == []
    columns["input_ids"][7, 3] = 70_000
    (problem,) = row_problems(columns, schema, **WRAP)
    message = "input_ids[3] is 70000, not below the vocabulary's 70000"
    assert (problem.row, problem.message) == (7, message)
    # Some of many equal problems are described.
    columns["segment_ids"][:, 0] = 0
    problems = [p for p in row_problems(columns, schema) if "begins with" in p.message]
    assert [problem.row for problem in problems] == list(range(MOST_PROBLEMS))


# Losses of clm and qa


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
