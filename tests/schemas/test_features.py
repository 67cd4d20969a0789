"""Positions and unmasking worked by hand; the features of a task."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from schemas.features import (
    max_masked_slots,
    positions_from_segments,
    smallest_unsigned,
    task_features,
    token_dtype,
    unmask,
)


def test_features_of_mlm_with_static_masks():
    features = task_features("mlm", max_length=128, vocab_size=32_000, max_masked=19)
    assert [(f.name, f.dtype, f.shape) for f in features] == [
        ("input_ids", "uint16", (128,)),
        ("masked_ids", "uint16", (19,)),
        ("masked_positions", "uint16", (19,)),
        ("masked_weights", "uint8", (19,)),
        ("segment_ids", "uint8", (128,)),
    ]
    assert [f.bytes for f in features] == [256, 38, 38, 19, 128]


def test_features_without_masks_and_with_a_large_vocabulary_and_long_rows():
    features = task_features("mlm", max_length=512, vocab_size=65_537)
    assert [(f.name, f.dtype, f.shape) for f in features] == [
        ("input_ids", "uint32", (512,)),
        ("segment_ids", "uint16", (512,)),
    ]


def test_unknown_task_names_those_there_are():
    with pytest.raises(ValueError, match="unknown task 'translation': one of .*mlm"):
        task_features("translation", max_length=8, vocab_size=9)


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [(0, "uint8"), (255, "uint8"), (256, "uint16"), (65_535, "uint16"), (65_536, "uint32")],
)
def test_smallest_unsigned(largest, dtype):
    assert smallest_unsigned(largest) == dtype


def test_smallest_unsigned_refuses_what_no_feature_holds():
    with pytest.raises(ValueError, match="4294967296"):
        smallest_unsigned(1 << 32)


def test_token_dtype_changes_where_the_largest_id_is_65535():
    assert token_dtype(65_536) == "uint16"
    assert token_dtype(65_537) == "uint32"


@pytest.mark.parametrize(
    ("length", "rate", "slots"), [(128, 0.15, 19), (512, 0.15, 77), (4, 0.01, 1), (10, 0.25, 2)]
)
def test_max_masked_slots(length, rate, slots):
    assert max_masked_slots(length, rate) == slots


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int64"])
def test_positions_worked_by_hand(dtype):
    segment_ids = np.array(
        [
            [1, 1, 1, 2, 2, 0],
            [1, 2, 3, 4, 5, 6],
            [1, 1, 1, 1, 1, 1],
            [0, 0, 0, 0, 0, 0],
        ],
        dtype,
    )
    positions = positions_from_segments(segment_ids)
    assert positions.dtype == np.int32
    assert positions.tolist() == [
        [0, 1, 2, 0, 1, 0],
        [0, 0, 0, 0, 0, 0],
        [0, 1, 2, 3, 4, 5],
        [0, 0, 0, 0, 0, 0],
    ]


@given(
    hnp.arrays(
        np.uint8,
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=20),
        elements=st.integers(0, 3),
    )
)
def test_positions_count_on_within_runs_of_equal_segments(segment_ids):
    positions = positions_from_segments(segment_ids)
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


def test_unmask_of_rows_without_masks_is_a_copy():
    row = {"input_ids": np.array([[5, 6]], np.uint16)}
    ids = unmask(row)
    ids[0, 0] = 9
    assert row["input_ids"].tolist() == [[5, 6]]
