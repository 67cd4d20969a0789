"""Packing: worked by hand, and no token lost whatever the lengths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.rows.packing import pack


def packed(lengths, max_length, method="best_fit"):
    return pack(np.concatenate(([0], np.cumsum(lengths))).astype(np.int64), max_length, method)


def layout(packing):
    """Rows as lists of (offset in the row, length)."""
    rows = [[] for _ in range(packing.rows)]
    for row, offset, length in zip(packing.row_S, packing.offset_S, packing.length_S, strict=True):
        rows[row].append((int(offset), int(length)))
    return rows


def test_best_fit_fills_the_fullest_row_that_takes_a_segment():
    # 7 opens a row (3 free), 6 another (4 free); 4 fits the second exactly, 3 the first.
    assert layout(packed([3, 6, 4, 7], 10)) == [[(0, 7), (7, 3)], [(0, 6), (6, 4)]] or layout(
        packed([3, 6, 4, 7], 10)
    ) == [[(0, 3), (3, 7)], [(0, 6), (6, 4)]]


def test_concat_cuts_the_stream():
    packing = packed([5, 4], 4, "concat")
    assert packing.start_S.tolist() == [0, 4, 5, 8]
    assert packing.length_S.tolist() == [4, 1, 3, 1]
    assert packing.row_S.tolist() == [0, 1, 1, 2]
    assert packing.offset_S.tolist() == [0, 0, 1, 0]
    assert packing.rows == 3


def test_none_gives_each_segment_a_row():
    assert layout(packed([2, 3], 4, "none")) == [[(0, 2)], [(0, 3)]]


def test_nothing_packs_into_no_rows():
    for method in ("best_fit", "concat", "none"):
        assert packed([], 8, method).rows == 0


def test_a_segment_longer_than_a_row_is_a_defect_of_the_caller():
    with pytest.raises(ValueError, match="9 tokens does not fit a row of 8"):
        packed([3, 9], 8)


@given(st.lists(st.integers(1, 16), max_size=200), st.sampled_from(["best_fit", "none", "concat"]))
def test_every_token_lies_in_one_place(lengths, method):
    packing = packed(lengths, 16, method)
    total = sum(lengths)
    tokens = [
        place
        for start, length in zip(packing.start_S, packing.length_S, strict=True)
        for place in range(start, start + length)
    ]
    assert sorted(tokens) == list(range(total))
    for row in layout(packing):
        ends = [0] + [offset + length for offset, length in row]
        assert [offset for offset, _ in row] == ends[:-1]
        assert 0 < ends[-1] <= 16
    if method == "best_fit":
        # Never more rows than opening a row only when nothing fits can give: two rows that are
        # each half empty or less would have been one.
        half_empty = [row for row in layout(packing) if sum(n for _, n in row) <= 8]
        assert len(half_empty) <= 1


def first_fit_decreasing(lengths, capacity):
    rows = []
    for length in sorted(lengths, reverse=True):
        for i, used in enumerate(rows):
            if used + length <= capacity:
                rows[i] += length
                break
        else:
            rows.append(length)
    return len(rows)


@given(st.lists(st.integers(1, 40), max_size=150))
def test_best_fit_needs_hardly_more_rows_than_first_fit_decreasing(lengths):
    assert packed(lengths, 40).rows <= first_fit_decreasing(lengths, 40) + 1
