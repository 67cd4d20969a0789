"""Features and parameters of every task by hand; positions and unmasking."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from textmill.schemas.errors import DataError
from textmill.schemas.format.features import (
    TASKS,
    check_parameters,
    max_masked_slots,
    positions_from_segments,
    smallest_unsigned,
    task_features,
    token_dtype,
    unmask,
)

INPUTS = [("input_ids", "uint16", (8,)), ("segment_ids", "uint8", (8,))]
WEIGHTS = [("loss_weights", "uint8", (8,))]
EXAMPLE = [("example_id", "uint32", (2,))]
QA = [*INPUTS, *WEIGHTS, *EXAMPLE, ("prompt_length", "uint16", ())]
FEATURES = {
    "chat": ("chat", {}, [*INPUTS, *WEIGHTS]),
    "clm": ("clm", {}, [*INPUTS, *WEIGHTS]),
    "qa": ("qa", {"qa_form": "causal"}, QA),
    "qa, prefix": ("qa", {"qa_form": "prefix"}, [*QA, ("prefix_mask", "uint8", (8,))]),
    "256 classes": (
        "classification",
        {"classes": range(256)},
        [*INPUTS, *EXAMPLE, ("label", "uint8", ())],
    ),
    "257 classes of pairs": (
        "classification",
        {"classes": range(257), "text_pair_field": "b"},
        [*INPUTS, *EXAMPLE, ("label", "uint16", ()), ("token_type_ids", "uint8", (8,))],
    ),
    "span_corruption": (
        "span_corruption",
        {"max_target_length": 6},
        [*INPUTS, ("target_ids", "uint16", (6,)), ("target_segment_ids", "uint8", (6,))],
    ),
    "tokens": ("tokens", {}, [("tokens", "uint16", (-1,))]),
}
STATIC_MASKS = [
    ("input_ids", "uint16", (128,)),
    ("masked_ids", "uint16", (19,)),
    ("masked_positions", "uint16", (19,)),
    ("masked_weights", "uint8", (19,)),
    ("segment_ids", "uint8", (128,)),
]
LONG = [("input_ids", "uint32", (512,)), ("segment_ids", "uint16", (512,))]


def columns_of(features):
    return [(feature.name, feature.dtype, feature.shape) for feature in features]


@pytest.mark.parametrize(("task", "parameters", "expected"), FEATURES.values(), ids=FEATURES)
def test_features_of_a_task(task, parameters, expected):
    features = task_features(task, max_length=8, vocab_size=300, parameters=parameters)
    assert columns_of(features) == sorted(expected)


def test_features_of_mlm():
    features = task_features("mlm", max_length=128, vocab_size=32_000, max_masked=19)
    assert columns_of(features) == STATIC_MASKS
    assert [feature.bytes for feature in features] == [256, 38, 38, 19, 128]
    assert columns_of(task_features("mlm", max_length=512, vocab_size=65_537)) == LONG
    with pytest.raises(ValueError, match="unknown task 'translation': one of .*mlm"):
        task_features("translation", max_length=8, vocab_size=9)


_PAIR = {"classes": ["a", "b"], "truncation": "head", "prefix_ids": [0], "suffix_ids": [8]}
_ENDS = {"prefix_ids": [1], "suffix_ids": []}
NEEDED = {
    "chat": {"chat_template": "x", "end_of_turn": "y", "train_on": "last", **_ENDS},
    "classification": _PAIR,
    "clm": {"prefix_ids": [], "suffix_ids": [2]},
    "mlm": {},
    "qa": {
        "bos": True,
        "max_answer_length": 1,
        "max_question_length": 65_536,
        "qa_form": "prefix",
        "qa_template": "x",
    },
    "span_corruption": {"max_target_length": 65_535, "sentinel_ids": [7, 8]},
    "tokens": _ENDS,
}
MORE = {"text_field": None, "label_field": "x", "stages": object(), "max_answer_length": 65_536}
IDS = {"bos": 1, "eos": 2}


@pytest.mark.parametrize("task", TASKS)
def test_parameters_that_a_task_needs(task):
    needed = NEEDED[task]
    check_parameters(task, needed, vocab_size=9, special_ids=IDS)
    check_parameters(task, {**MORE, **needed}, vocab_size=9, special_ids=IDS)
    for name in needed:
        others = {other: value for other, value in needed.items() if other != name}
        with pytest.raises(DataError, match=f"parameters lacks {name}, which {task} needs"):
            check_parameters(task, others, vocab_size=9, special_ids=IDS)


def test_pairs_of_texts_need_ids_between_them():
    pair = {**_PAIR, "text_pair_field": "b", "middle_ids": [2, 2]}
    check_parameters("classification", pair, vocab_size=9, special_ids={})
    del pair["middle_ids"]
    with pytest.raises(DataError, match="lacks middle_ids, which classification needs"):
        check_parameters("classification", pair, vocab_size=9, special_ids={})
    check_parameters(
        "clm", {**NEEDED["clm"], "text_pair_field": "b"}, vocab_size=9, special_ids=IDS
    )


@pytest.mark.parametrize(
    ("task", "name", "values", "remedy"),
    [
        ("chat", "chat_template", [3, None], "a text"),
        ("chat", "train_on", ["user"], "one of assistant, last, all"),
        (
            "classification",
            "classes",
            ["ab", ["a"], ["a", ""], ["a", 3], ["a", "a"]],
            "two or more",
        ),
        ("classification", "text_field", [3], "the name of a field"),
        ("classification", "prefix_ids", [3, "x", [9], [-1], [True]], "a list of ids below vocab"),
        ("clm", "prefix_ids", [[2], [1, 1]], r"\[\] or the id of bos"),
        ("tokens", "suffix_ids", [[1]], r"\[\] or the id of eos"),
        ("chat", "suffix_ids", [[1]], r"\[\] or the id of eos"),
        ("qa", "bos", [1], "true or false"),
        ("qa", "max_answer_length", [0, 65_537], "a number from 1 to 65536"),
        ("qa", "max_question_length", [0, 65_537], "a number from 1 to 65536"),
        ("qa", "qa_form", ["both"], "one of causal, prefix"),
        ("span_corruption", "max_target_length", [0, 65_536], "a number from 1 to 65535"),
        ("span_corruption", "sentinel_ids", [[7, 7]], "an id occurs twice"),
    ],
)
def test_a_wrong_parameter_is_refused_with_its_remedy(task, name, values, remedy):
    for value in values:
        parameters = {**NEEDED[task], name: value}
        with pytest.raises(DataError, match=rf"^parameters\.{name} is .*{remedy}"):
            check_parameters(task, parameters, vocab_size=9, special_ids=IDS)


def test_special_ids_that_a_task_needs():
    for task in ("qa", "span_corruption"):
        with pytest.raises(DataError, match=f"special_ids is .*: {task} needs eos"):
            check_parameters(task, NEEDED[task], vocab_size=9, special_ids={"bos": 1})
    with pytest.raises(DataError, match="special_ids is .*: rows begin with bos"):
        check_parameters("qa", NEEDED["qa"], vocab_size=9, special_ids={"eos": 2})
    without = {**NEEDED["qa"], "bos": False}
    check_parameters("qa", without, vocab_size=9, special_ids={"eos": 2})
    nothing = {"prefix_ids": [], "suffix_ids": []}
    check_parameters("clm", nothing, vocab_size=9, special_ids={})


def test_dtypes_change_where_an_id_does_not_fit():
    largest = (0, 255, 256, 65_535, 65_536)
    assert [*map(smallest_unsigned, largest)] == ["uint8", "uint8", "uint16", "uint16", "uint32"]
    assert (token_dtype(65_536), token_dtype(65_537)) == ("uint16", "uint32")
    with pytest.raises(ValueError, match="4294967296"):
        smallest_unsigned(1 << 32)


def test_max_masked_slots():
    slots = {(128, 0.15): 19, (512, 0.15): 77, (4, 0.01): 1, (10, 0.25): 2}
    assert {given: max_masked_slots(*given) for given in slots} == slots


@given(
    hnp.arrays(
        st.sampled_from([np.uint8, np.uint16, np.int64]),
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=20),
        elements=st.integers(0, 3),
    )
)
@example(np.array([[1, 1, 1, 2, 2, 0], [1, 2, 3, 4, 5, 6], [0] * 6]))
def test_positions_count_on_within_runs_of_equal_segments(segment_ids):
    positions = positions_from_segments(segment_ids)
    assert positions.dtype == np.int32
    for row, got in zip(segment_ids.tolist(), positions.tolist(), strict=True):
        place = 0
        for i, segment in enumerate(row):
            place = place + 1 if i and segment == row[i - 1] else 0
            assert got[i] == (place if segment else 0)


def test_unmask_puts_back_slots_in_use_only():
    row = {
        "input_ids": np.array([[0, 4, 12, 9, 2], [0, 7, 8, 2, 1]], np.uint16),
        "masked_positions": np.array([[1, 3], [0, 0]], np.uint16),
        "masked_ids": np.array([[11, 13], [0, 0]], np.uint16),
        "masked_weights": np.array([[1, 1], [0, 0]], np.uint8),
    }
    assert unmask(row).tolist() == [[0, 11, 12, 13, 2], [0, 7, 8, 2, 1]]
    assert row["input_ids"][0, 1] == 4  # a copy
    plain = {"input_ids": row["input_ids"]}
    unmask(plain)[0, 0] = 9
    assert row["input_ids"][0, 0] == 0
