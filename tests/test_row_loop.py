"""Segments go where packing says, and nowhere else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.row_loop import copied, repeated

STREAM = np.array([5, 6, 7, 8, 9], np.uint16)


def int64(*values):
    return np.array(values, np.int64)


def test_worked_by_hand():
    starts, lengths, rows = int64(1, 0, 4, 3), int64(2, 1, 0, 2), int64(0, 0, 0, 2)
    column = copied(STREAM, starts, lengths, rows, (3, 4), 1)
    assert column.tolist() == [[6, 7, 5, 1], [1, 1, 1, 1], [8, 9, 1, 1]]
    assert column.dtype == np.uint16
    numbers = repeated(np.array([1, 2, 3, 1], np.uint8), lengths, rows, (3, 4))
    assert numbers.tolist() == [[1, 1, 2, 0], [0, 0, 0, 0], [1, 1, 0, 0]]
    assert numbers.dtype == np.uint8


def test_no_segments():
    assert copied(STREAM, int64(), int64(), int64(), (2, 3), 9).tolist() == [[9, 9, 9]] * 2
    assert repeated(STREAM[:0], int64(), int64(), (0, 3)).shape == (0, 3)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=6), st.integers(0, 99))
def test_rows_hold_their_segments_in_order(lengths_by_row, seed):
    lengths = int64(*(length for row in lengths_by_row for length in row))
    rows = np.repeat(np.arange(len(lengths_by_row)), [len(row) for row in lengths_by_row])
    starts = np.random.default_rng(seed).integers(0, 100, len(lengths))
    values = np.arange(1000, 1105, dtype=np.uint32)
    column = copied(values, starts, lengths, rows, (len(lengths_by_row), 20), 7)
    for number, row in enumerate(column):
        mine = np.flatnonzero(rows == number)
        parts = [values[starts[i] : starts[i] + lengths[i]] for i in mine]
        expected = np.concatenate([np.zeros(0, np.uint32), *parts])
        assert row.tolist() == expected.tolist() + [7] * (20 - len(expected))


@pytest.mark.parametrize(
    ("starts", "lengths", "rows", "message"),
    [
        ([0, 0], [2, 3], [0, 0], "do not fit 2 rows of 4 places"),
        ([0], [1], [2], "do not fit"),
        ([0], [-1], [0], "do not fit"),
        ([4], [2], [0], "beyond the 5 values"),
        ([-1], [2], [0], "beyond the 5 values"),
    ],
)
def test_what_does_not_fit_is_refused(starts, lengths, rows, message):
    with pytest.raises(ValueError, match=message):
        copied(STREAM, int64(*starts), int64(*lengths), int64(*rows), (2, 4), 0)
    if "values" not in message:
        with pytest.raises(ValueError, match=message):
            repeated(int64(*starts), int64(*lengths), int64(*rows), (2, 4))
