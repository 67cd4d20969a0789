"""Pieces of documents and what is put around them, by hand and for any lengths."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.rows.ragged import cut, wrap


def ragged(documents):
    ids = np.array([i for d in documents for i in d], np.uint16)
    return ids, np.cumsum([0] + [len(d) for d in documents]).astype(np.int64)


def lists(stream, offsets):
    return [stream[a:b].tolist() for a, b in zip(offsets, offsets[1:], strict=False)]


def test_a_long_one_is_cut_from_its_start_on():
    ids, offsets = ragged([[5, 6, 7], [8], [9, 10, 11, 12]])
    pieces, whole = cut(offsets, 2)
    assert lists(ids, pieces) == [[5, 6], [7], [8], [9, 10], [11, 12]]
    assert whole.tolist() == [0, 0, 1, 2, 2]


def test_specials_of_several_tokens_and_of_none():
    assert lists(*wrap(*ragged([[5], [6, 7]]), (1, 2), (3, 4))) == [
        [1, 2, 5, 3, 4],
        [1, 2, 6, 7, 3, 4],
    ]
    assert lists(*wrap(*ragged([[5], [6, 7]]), (), ())) == [[5], [6, 7]]
    assert lists(*wrap(*ragged([]), (0,), (2,))) == []


@given(
    st.lists(st.lists(st.integers(10, 99), min_size=1, max_size=30), max_size=20),
    st.integers(1, 12),
)
def test_pieces_put_together_are_the_documents(documents, longest):
    ids, offsets = ragged(documents)
    offsets, whole = cut(offsets, longest)
    back = [[] for _ in documents]
    for document, piece in zip(whole, lists(*wrap(ids, offsets, (0,), (2,))), strict=True):
        assert piece[0] == 0 and piece[-1] == 2 and 3 <= len(piece) <= longest + 2
        back[document] += piece[1:-1]
    assert back == documents
