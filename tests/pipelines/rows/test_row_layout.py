"""Segments go where packing says, and nowhere else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.rows.packing import RowLayout

STREAM = np.array([5, 6, 7, 8, 9], np.uint16)


def int64(*values):
    return np.array(values, np.int64)


def test_worked_by_hand():
    starts, lengths, spans = int64(1, 0, 4, 3), int64(2, 1, 0, 2), (int64(0, 3, 3), int64(3, 3, 4))
    layout = RowLayout(starts, lengths, spans, 4)
    column = layout.copy(STREAM, 1)
    assert column.tolist() == [[6, 7, 5, 1], [1, 1, 1, 1], [8, 9, 1, 1]]
    assert column.dtype == np.uint16
    numbers = layout.number("uint8")
    assert numbers.tolist() == [[1, 1, 2, 0], [0, 0, 0, 0], [1, 1, 0, 0]]
    assert numbers.dtype == np.uint8


def test_rows_may_be_taken_in_any_order():
    starts, lengths, spans = int64(1, 0, 3), int64(2, 1, 2), (int64(2, 0), int64(3, 2))
    layout = RowLayout(starts, lengths, spans, 3)
    assert layout.copy(STREAM, 0).tolist() == [[8, 9, 0], [6, 7, 5]]
    assert layout.number("uint8").tolist() == [[1, 1, 0], [1, 1, 2]]


def test_no_segments():
    none = int64(0, 0), int64(0, 0)
    assert RowLayout(int64(), int64(), none, 3).copy(STREAM, 9).tolist() == [[9, 9, 9]] * 2
    no_rows = RowLayout(int64(), int64(), (int64(), int64()), 3)
    assert no_rows.number("uint8").shape == no_rows.copy(STREAM, 9).shape == (0, 3)


@given(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=6), st.integers(0, 99))
def test_rows_hold_their_segments_in_order(lengths_by_row, seed):
    lengths = int64(*(length for row in lengths_by_row for length in row))
    bounds = np.append(0, np.cumsum([len(row) for row in lengths_by_row])).astype(np.int64)
    starts = np.random.default_rng(seed).integers(0, 100, len(lengths))
    values = np.arange(1000, 1105, dtype=np.uint32)
    column = RowLayout(starts, lengths, (bounds[:-1], bounds[1:]), 20).copy(values, 7)
    for number, row in enumerate(column):
        mine = range(bounds[number], bounds[number + 1])
        parts = [values[starts[i] : starts[i] + lengths[i]] for i in mine]
        expected = np.concatenate([np.zeros(0, np.uint32), *parts])
        assert row.tolist() == expected.tolist() + [7] * (20 - len(expected))


@pytest.mark.parametrize(
    ("starts", "lengths"),
    [([0, 0], [2, 3]), ([0], [-1]), ([4], [2]), ([-1], [2]), ([0], [1 << 62])],
)
def test_segments_that_do_not_fit_are_refused(starts, lengths):
    layout = RowLayout(int64(*starts), int64(*lengths), (int64(0), int64(len(starts))), 4)
    with pytest.raises(ValueError, match="do not fit rows of 4 positions, or 5 values"):
        layout.copy(STREAM, 0)
    if lengths != [2]:  # numbers need no stream
        with pytest.raises(ValueError, match="do not fit rows of 4 positions$"):
            layout.number("uint8")
