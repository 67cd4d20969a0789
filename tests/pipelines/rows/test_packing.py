"""Packing: no token is lost whatever the lengths, and segments go where packing says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textmill.pipelines.rows.packing import RowLayout, best_fit, fill, pack, try_ways


def packed(lengths, max_length, method="best_fit"):
    return pack(np.concatenate(([0], np.cumsum(lengths))).astype(np.int64), max_length, method)


def layout(packing):
    """Rows as lists of (offset in the row, length)."""
    rows = [[] for _ in range(packing.rows)]
    for row, offset, length in zip(packing.row_S, packing.offset_S, packing.length_S, strict=True):
        rows[row].append((int(offset), int(length)))
    return rows


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
    if method != "best_fit":
        assert tokens == sorted(tokens)
        assert packing.rows == (len(lengths) if method == "none" else -(-total // 16))
    for row in layout(packing):
        ends = [0] + [offset + length for offset, length in row]
        assert [offset for offset, _ in row] == ends[:-1]
        assert 0 < ends[-1] <= 16
    if method == "best_fit":
        # Never more rows than opening a row only when nothing fits can give: two rows that are
        # each half empty or less would have been one.
        half_empty = [row for row in layout(packing) if sum(n for _, n in row) <= 8]
        assert len(half_empty) <= 1


def best_fit_decreasing(lengths, capacity):
    """Places left free in each row."""
    rows = []
    for length in sorted(lengths, reverse=True):
        fitting = [(free, row) for row, free in enumerate(rows) if free >= length]
        if fitting:
            rows[min(fitting)[1]] -= length
        else:
            rows.append(capacity - length)
    return rows


def fewest_rows(lengths, capacity):
    """By trying all: of each subset, the fewest rows, and then the fewest places in the last."""
    best = [(1, 0)] + [(len(lengths) + 1, 0)] * (2 ** len(lengths) - 1)
    for chosen in range(len(best)):
        rows, used = best[chosen]
        for i, length in enumerate(lengths):
            more = (rows, used + length) if used + length <= capacity else (rows + 1, length)
            if not chosen >> i & 1:
                best[chosen | 1 << i] = min(best[chosen | 1 << i], more)
    return best[-1][0]


# A row of 100 or 512 positions, segments, and the rows that best fit and each search need.
SEARCHES = {
    "whole": (100, "7 9 12 13 16 18 20 20 23 25 27 29 29 31 31 31 31 31 32 32 32", [6, 5]),
    "1 left": (
        512,
        "71 71 71 87 87 91 91 106 106 106 109 109 109 128 128 128 128 129 129 160 171 230",
        [6, 6, 5],
    ),
    "8 left": (
        512,
        "24 47 95 103 103 104 104 109 109 138 139 152 156 164 176 185 192 192 203 205 214 219 221"
        " 228 233 245 250 255",
        [10, 10, 10, 9],
    ),
    "16 left": (
        512,
        "43 43 55 55 55 55 55 55 55 89 89 89 89 89 387 387 387 387 475 475 475 475 475",
        [11, 11, 11, 11, 10],
    ),
    "most left first": (512, "85 85 153 197 197 243 243 243 243 245", [5, 5, 5, 5, 5, 4]),
}


def histogram(lengths, max_length):
    """Segments of each length, and the lengths in the order in which a search tries them."""
    count_L = np.bincount(lengths, minlength=max_length + 1)
    order_D = np.argsort(-count_L * np.arange(max_length + 1), kind="stable")
    return count_L, order_D[: np.count_nonzero(count_L)]


@pytest.mark.parametrize(("max_length", "lengths", "rows"), SEARCHES.values(), ids=SEARCHES)
def test_each_search_finds_the_fewest_rows_where_those_before_do_not(max_length, lengths, rows):
    segments = np.array(lengths.split(), int)
    ways = try_ways(histogram(segments, max_length)[0])
    assert [number for number, _ in ways] == rows
    assert packed(segments, max_length).rows == rows[-1] == -(-segments.sum() // max_length)


def test_a_row_is_repeated_with_neighbours_of_equal_length():
    packing = packed([4] * 8 + [3] * 16, 10)
    assert packing.segment_S.reshape(8, 3).tolist() == [
        [row, 8 + 2 * row, 9 + 2 * row] for row in range(8)
    ]


def test_searches_end_with_their_steps():
    """The rows after them are filled with the longest that fit."""
    count_L, order_D = histogram(np.array(SEARCHES["whole"][1].split(), int), 100)
    rows = [fill(count_L, order_D, 0, False, steps)[0] for steps in (0, 1, 78, 79, 400)]
    assert rows == [6, 6, 6, 5, 5]
    count_L, order_D = histogram([4] * 8 + [3] * 16, 10)
    rows = [fill(count_L, order_D, 0, True, steps)[0] for steps in (0, 1, 10, 11, 99)]
    assert rows == [10, 9, 9, 8, 8]


@pytest.mark.parametrize(("max_length", "first"), [(9, 5), (10, 3)])
def test_most_tokens_go_first_once_the_longest_is_at_most_half_a_row(max_length, first):
    count_L, order_D = histogram([5] + [3] * 6, max_length)
    _, parts = fill(count_L, order_D, 0, True, 99)
    assert parts[0, 2] == first


@given(st.lists(st.integers(1, 12), min_size=1, max_size=9), st.integers(12, 30))
def test_best_fit_needs_one_row_more_than_the_fewest_at_most(lengths, max_length):
    assert packed(lengths, max_length).rows - fewest_rows(lengths, max_length) in (0, 1)


@given(st.lists(st.integers(1, 40), max_size=150), st.randoms(use_true_random=False))
def test_best_fit_never_needs_more_rows_than_best_fit_decreasing_in_any_order(lengths, random):
    rows = packed(lengths, 40).rows
    assert rows <= len(best_fit_decreasing(lengths, 40))
    random.shuffle(lengths)
    assert packed(lengths, 40).rows == rows


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=200),
    st.integers(0, 20),
    st.booleans(),
    st.integers(0, 5000),
)
def test_a_search_takes_every_segment_once_wherever_its_steps_end(lengths, slack, most_left, steps):
    count_L = np.bincount(lengths, minlength=301)
    rows, parts = fill(count_L, np.unique(lengths), slack, most_left, steps)
    segments, used = np.zeros_like(count_L), np.zeros(rows, int)
    for first, number, length, times in parts.tolist():
        segments[length] += number * times
        used[first : first + number] += length * times
    assert segments.tolist() == count_L.tolist()
    assert 0 < used.min() and used.max() <= 300


def drawn(low, high, size=70_000):
    return np.random.default_rng(0).integers(low, high, size)


@pytest.mark.parametrize(
    ("lengths", "max_length"),
    [
        (np.full(70_000, 200), 512),
        (drawn(0, 2) * 4 + 3, 128),
        (2 ** drawn(0, 16), 65535),
        (drawn(1, 2049), 2048),
        (drawn(1, 65536), 65535),
        (1 + np.random.default_rng(0).permutation(65535), 65535),
    ],
    ids=["equal", "two", "powers", "uniform", "uniform long", "each once"],
)
def test_odd_lengths_are_packed_whole_and_in_order(lengths, max_length):
    packing = packed(lengths, max_length)
    assert sorted(packing.segment_S) == list(range(len(lengths)))
    assert packing.length_S.tolist() == lengths[packing.segment_S].tolist()
    used_R = np.add.reduceat(packing.length_S, packing.bounds[:-1])
    assert used_R.max() <= max_length
    in_one_row = np.diff(packing.row_S) == 0
    assert in_one_row.sum() == len(lengths) - packing.rows
    assert (np.diff(packing.segment_S)[in_one_row] > 0).all()


@pytest.mark.parametrize("size", [200, 2_000, 20_000, 200_000])
def test_short_documents_leave_hardly_more_than_a_thousandth_of_the_places(size):
    """Lengths are those of SQuAD's questions; best-fit decreasing leaves ten times as many."""
    lengths = np.random.default_rng(size).lognormal(np.log(14), 0.3, size).astype(np.int64) + 1
    fewest = -(-lengths.sum() // 128)
    assert packed(lengths, 128).rows <= fewest * 1.001
    if size >= 20_000:
        assert best_fit(np.bincount(lengths, minlength=129))[0] > fewest * 1.005


# ---- rows of a packing ----


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
