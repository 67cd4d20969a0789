"""The permutation is a bijection for any number of rows, and looks like a shuffle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textmill.trainers.data.row_order import epoch_and_row, find_places, permute


@given(rows=st.integers(1, 3000), seed=st.integers(-(2**40), 2**40), epoch=st.integers(0, 10**9))
def test_every_row_once(rows, seed, epoch):
    order = permute(np.arange(rows), rows=rows, key=(seed, epoch))
    assert sorted(order.tolist()) == list(range(rows))


@given(rows=st.integers(1, 2**62), place=st.integers(0), seed=st.integers(0, 2**32))
def test_any_size_stays_inside(rows, place, seed):
    places = np.unique(np.array([0, place % rows, rows - 1]))
    order = permute(places, rows=rows, key=(seed, 0))
    assert ((0 <= order) & (order < rows)).all()
    assert len(set(order.tolist())) == len(places)


@given(rows=st.integers(1, 2**62), place=st.integers(0), seed=st.integers(0, 2**32))
def test_places_are_found_again(rows, place, seed):
    places = np.array([0, place % rows, rows - 1])
    order = permute(places, rows=rows, key=(seed, 1))
    assert find_places(order, rows=rows, key=(seed, 1)).tolist() == places.tolist()
    found = find_places(places, rows=rows, key=(seed,))
    assert permute(found, rows=rows, key=(seed,)).tolist() == places.tolist()


@given(rows=st.integers(1, 500), seed=st.integers(0, 2**32))
def test_the_place_of_every_row(rows, seed):
    order = permute(np.arange(rows), rows=rows, key=(seed,))
    assert find_places(order, rows=rows, key=(seed,)).tolist() == list(range(rows))


@given(rows=st.integers(1, 2**62), place=st.integers(0), seed=st.integers(0, 2**32))
def test_hashes_of_tables_are_those_that_are_computed(rows, place, seed):
    places = np.array([0, place % rows, rows - 1])
    orders = []
    for size in (0, 5000):  # no tables, and those of up to 25 million rows
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("textmill.trainers.data.row_order._TABLE", size)
            order = permute(places, rows=rows, key=(seed, 1))
            assert find_places(order, rows=rows, key=(seed, 1)).tolist() == places.tolist()
            orders.append(order.tolist())
    assert orders[0] == orders[1]


def test_pinned_order():
    """A different order would make a resumed run read other rows: it may never change."""
    epochs, rows = epoch_and_row(np.arange(14), rows=7, seed=3)
    assert epochs.tolist() == [0] * 7 + [1] * 7
    assert rows.tolist() == [3, 4, 0, 5, 2, 6, 1, 4, 1, 6, 5, 2, 3, 0]
    assert rows.dtype == np.int64


@given(start=st.integers(0, 200), count=st.integers(0, 100), rows=st.integers(1, 60))
def test_any_piece_is_a_piece_of_the_whole(start, count, rows):
    whole_epochs, whole_rows = epoch_and_row(np.arange(300), rows=rows, seed=9)
    epochs, indices = epoch_and_row(np.arange(start, start + count), rows=rows, seed=9)
    assert epochs.tolist() == whole_epochs[start : start + count].tolist()
    assert indices.tolist() == whole_rows[start : start + count].tolist()


@pytest.mark.parametrize("rows", [97, 1000, 1024])
def test_looks_like_a_shuffle(rows):
    """Row index and place are uncorrelated, and each row lands anywhere (chi-square of cells)."""
    orders = np.stack([permute(np.arange(rows), rows=rows, key=(0, e)) for e in range(200)])
    correlations = [np.corrcoef(order, np.arange(rows))[0, 1] for order in orders]
    assert abs(np.mean(correlations)) < 4 / np.sqrt(200 * rows)
    assert np.std(correlations) == pytest.approx(1 / np.sqrt(rows), rel=0.3)
    cells = np.zeros((8, 8))
    np.add.at(cells, (np.arange(rows) * 8 // rows, orders * 8 // rows), 1)
    share = np.bincount(np.arange(rows) * 8 // rows) / rows
    expected = 200 * rows * np.outer(share, share)
    chi_square = ((cells - expected) ** 2 / expected).sum()
    assert chi_square < 90  # 49 degrees of freedom: 99.97 % of random permutations stay below


def test_neighbours_part():
    """Rows that lie side by side do not come side by side more often than by chance."""
    order = permute(np.arange(100_000), rows=100_000, key=(1, 0))
    side_by_side = (np.abs(np.diff(order)) == 1).sum()
    assert side_by_side < 12  # 2 expected
