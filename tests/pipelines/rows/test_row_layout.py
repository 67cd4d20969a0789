"""Segments go where packing says, and nowhere else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.rows.packing import RowLayout


def int64(*values):
    return np.array(values, np.int64)


@given(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=6), st.integers(0, 99))
def test_rows_hold_their_segments_in_order(lengths_by_row, seed):
    lengths = int64(*(length for row in lengths_by_row for length in row))
    bounds = np.append(0, np.cumsum([len(row) for row in lengths_by_row])).astype(np.int64)
    draw = np.random.default_rng(seed)
    starts, order = draw.integers(0, 100, len(lengths)), draw.permutation(len(lengths_by_row))
    values = np.arange(1000, 1105, dtype=np.uint32)
    layout = RowLayout(starts, lengths, (bounds[:-1][order], bounds[1:][order]), 20)
    column, numbers = layout.copy(values, 7), layout.number("uint8")
    assert (column.shape, column.dtype) == ((len(order), 20), np.uint32)
    assert (numbers.shape, numbers.dtype) == ((len(order), 20), np.uint8)
    for copied, numbered, row in zip(column.tolist(), numbers.tolist(), order, strict=True):
        due, due_numbers = [], []
        for number, i in enumerate(range(bounds[row], bounds[row + 1]), 1):
            due += values[starts[i] : starts[i] + lengths[i]].tolist()
            due_numbers += [number] * lengths[i]
        assert copied == due + [7] * (20 - len(due))
        assert numbered == due_numbers + [0] * (20 - len(due))


@pytest.mark.parametrize(
    ("starts", "lengths"),
    [([0, 0], [2, 3]), ([0], [-1]), ([4], [2]), ([-1], [2]), ([0], [1 << 62])],
)
def test_segments_that_do_not_fit_are_refused(starts, lengths):
    layout = RowLayout(int64(*starts), int64(*lengths), (int64(0), int64(len(starts))), 4)
    with pytest.raises(ValueError, match="do not fit rows of 4 positions, or 5 values"):
        layout.copy(np.zeros(5, np.uint16), 0)
    if lengths != [2]:  # numbers need no stream
        with pytest.raises(ValueError, match="do not fit rows of 4 positions$"):
            layout.number("uint8")
