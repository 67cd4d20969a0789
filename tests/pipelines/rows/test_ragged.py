"""Ragged columns, pieces of documents and what is put around them: by hand, for any lengths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textmill.pipelines.rows.ragged import Ragged, cut, grow, insert, join_slices, wrap


def ragged(documents):
    ids = np.array([i for d in documents for i in d], np.uint16)
    return ids, np.cumsum([0] + [len(d) for d in documents]).astype(np.int64)


def lists(stream, offsets):
    return [stream[a:b].tolist() for a, b in zip(offsets, offsets[1:], strict=False)]


def test_columns_by_hand():
    column = Ragged.of(np.array([7, 8, 9], np.uint32), [1, 0, 2])
    assert column.offsets.tolist() == [0, 1, 1, 3] and column.offsets.dtype == np.int64
    assert column.lengths.tolist() == [1, 0, 2]
    turned = column.take(np.array([2, 0, 1]))
    assert lists(*turned) == [[8, 9], [7], []]
    assert lists(*Ragged.joined([column, turned])) == [[7], [], [8, 9], [8, 9], [7], []]
    assert Ragged.joined([column]) is column
    assert lists(*column.take(np.array([], int))) == lists(*Ragged.joined([])) == []
    assert Ragged.joined([]).values.dtype == np.uint32 and not Ragged.joined([]).values.size
    assert column.astype("uint8").values.dtype == np.uint8


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=2, max_size=2)))
def test_slices_of_a_pool_are_joined(slices):
    pool = np.arange(100, 115, dtype=np.uint16)
    starts, lengths = np.array(slices, np.int64).reshape(-1, 2, 2).transpose(2, 0, 1)
    expected = [[*pool[a : a + n], *pool[b : b + m]] for (a, n), (b, m) in slices]
    whole = join_slices(pool, starts, lengths)
    assert lists(*whole) == expected and whole.values.dtype == np.uint16


@pytest.mark.parametrize(("start", "length"), [(-1, 2), (3, 3), (0, -1), (6, 1), (1, 1 << 61)])
def test_slices_outside_the_pool_are_refused(start, length):
    with pytest.raises(IndexError, match="a slice is not inside the 5 values"):
        join_slices(np.zeros(5, np.uint16), np.array([[start]]), np.array([[length]]))


@given(st.integers(0, 9), st.lists(st.tuples(st.integers(0, 9), st.integers(10, 99))))
def test_ids_are_inserted_as_numpy_does(count, places):
    ids = np.arange(count, dtype=np.uint32)
    chosen = sorted((place, new) for place, new in places if place <= count)
    at, new = np.array(chosen, np.int64).reshape(-1, 2).T.copy()
    inserted = insert(ids, at, new)
    assert inserted.tolist() == np.insert(ids, at, new).tolist() and inserted.dtype == np.uint32


def test_an_array_grows_to_twice_the_room_that_it_needs():
    array = np.array([1, 2, 3], np.uint8)
    assert grow(array, 1, 2) is array
    larger = grow(array, 2, 2)
    assert larger.tolist() == [1, 2, 0, 0, 0, 0, 0, 0] and larger.dtype == np.uint8


@given(
    st.lists(st.lists(st.integers(10, 99), min_size=1, max_size=30), max_size=20),
    st.integers(1, 12),
    st.sampled_from([((0,), (2,)), ((1, 2), (3, 4)), ((), ())]),
)
def test_documents_are_cut_from_their_start_on_and_wrapped(documents, longest, specials):
    ids, offsets = ragged(documents)
    offsets, whole = cut(offsets, longest)
    due = [
        (number, [*specials[0], *document[start : start + longest], *specials[1]])
        for number, document in enumerate(documents)
        for start in range(0, len(document), longest)
    ]
    pieces = lists(*wrap(ids, offsets, *specials))
    assert list(zip(whole.tolist(), pieces, strict=True)) == due
