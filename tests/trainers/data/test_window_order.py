"""The windowed order: each row once an epoch, a few pieces at a time, from any position on."""

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from textmill.trainers.data.window_order import WindowOrder

SHARDS = st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any)
SIZES = {"shards": SHARDS, "piece_rows": st.integers(1, 9), "window_pieces": st.integers(1, 5)}


def test_pinned_order():
    """A different order would make a resumed run read other rows: it may never change."""
    order = WindowOrder([5, 3], piece_rows=2, window_pieces=2)
    assert order.first_P.tolist() == [0, 2, 4, 5, 7] and order.rows_P.tolist() == [2, 2, 1, 2, 1]
    assert order.shard_P.tolist() == [0, 0, 0, 1, 1]
    epochs, rows = order.epoch_and_row(np.arange(16), seed=3)
    assert epochs.tolist() == [0] * 8 + [1] * 8
    assert rows.tolist() == [7, 4, 3, 0, 2, 1, 5, 6, 6, 5, 2, 3, 0, 1, 4, 7]
    pieces, begins = order.epoch(0, seed=3)
    assert pieces.tolist() == [4, 2, 0, 1, 3] and begins.tolist() == [0, 1, 2, 4, 6, 8]


@given(**SIZES, seed=st.integers(-(2**40), 2**40), epoch=st.integers(0, 10**9))
def test_every_row_once_and_windows_hold_whole_pieces(
    shards, piece_rows, window_pieces, seed, epoch
):
    order = WindowOrder(shards, piece_rows, window_pieces)
    positions = np.arange(epoch * order.rows, (epoch + 1) * order.rows)
    epochs, rows = order.epoch_and_row(positions, seed=seed)
    assert (epochs == epoch).all()
    assert sorted(rows.tolist()) == list(range(sum(shards)))
    piece = order.piece_of(rows)
    window = [
        order.epoch(epoch, seed=seed).pieces.tolist().index(p) // window_pieces for p in piece
    ]
    assert window == sorted(window)
    assert (order.first_P[piece] <= rows).all()
    assert (rows < order.first_P[piece] + order.rows_P[piece]).all()


@given(**SIZES, start=st.integers(0, 300), count=st.integers(0, 100), stream=st.integers(0, 3))
def test_any_part_is_a_part_of_the_whole(shards, piece_rows, window_pieces, start, count, stream):
    order = WindowOrder(shards, piece_rows, window_pieces)
    whole = np.stack(order.epoch_and_row(np.arange(400), seed=9, stream=stream))
    fresh = pickle.loads(pickle.dumps(WindowOrder(shards, piece_rows, window_pieces)))
    part = np.stack(fresh.epoch_and_row(np.arange(start, start + count), seed=9, stream=stream))
    assert part.tolist() == whole[:, start : start + count].tolist()


@given(**SIZES, position=st.integers(0, 500), count=st.integers(1, 100))
def test_windows_from_a_position_are_those_of_its_rows(
    shards, piece_rows, window_pieces, position, count
):
    order = WindowOrder(shards, piece_rows, window_pieces)
    windows = [*order.windows_from(position, position + count, seed=1)]
    begins = [begin for begin, _ in windows]
    assert begins == sorted(set(begins)) and begins[0] <= position
    assert all(position < begin < position + count for begin in begins[1:])
    positions = np.arange(position, position + count)
    window = np.searchsorted(begins, positions, side="right") - 1
    assert {*window.tolist()} == {*range(len(windows))}
    for piece, number in zip(
        order.piece_of(order.epoch_and_row(positions, seed=1)[1]), window, strict=True
    ):
        assert piece in windows[number][1]
    endless = order.windows_from(position, seed=1)
    for begin, pieces in windows:
        found = next(endless)
        assert (found[0], found[1].tolist()) == (begin, pieces.tolist())


@given(**SIZES, seed=st.integers(0, 9), epoch=st.integers(0, 9), stream=st.integers(0, 2))
def test_offsets_are_the_inverse(shards, piece_rows, window_pieces, seed, epoch, stream):
    order = WindowOrder(shards, piece_rows, window_pieces)
    offsets = np.arange(order.rows)
    positions = offsets + epoch * order.rows
    rows = order.epoch_and_row(positions, seed=seed, stream=stream)[1]
    found = order.offsets_of(rows, epoch=epoch, seed=seed, stream=stream)
    assert found.tolist() == offsets.tolist()


def test_rows_of_different_epochs_seeds_and_streams_come_in_other_orders():
    order = WindowOrder([500, 500], piece_rows=10, window_pieces=4)
    first = order.epoch_and_row(np.arange(1000), seed=0)[1]
    for positions, seed, stream in ((np.arange(1000, 2000), 0, 0), (None, 1, 0), (None, 0, 1)):
        positions = np.arange(1000) if positions is None else positions
        other = order.epoch_and_row(positions, seed=seed, stream=stream)[1]
        assert (first == other).mean() < 0.02


def test_neighbours_part():
    """Rows that lie side by side come side by side as often as chance within a window has it."""
    order = WindowOrder([50_000, 50_000], piece_rows=100, window_pieces=50)
    rows = order.epoch_and_row(np.arange(100_000), seed=1)[1]
    side_by_side = (np.abs(np.diff(rows)) == 1).sum()
    assert 20 < side_by_side < 65  # 40 expected: twenty windows of 5,000 rows with two each
    halves = np.corrcoef(np.arange(100_000), rows)[0, 1]
    assert abs(halves) < 0.1
