"""Documents -> segments: pieces wrapped in specials, by hand and for any lengths."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.tasks import mlm_segments


def segments(documents, longest, prefix=(0,), suffix=(2,)):
    ids = np.array([i for d in documents for i in d], np.uint16)
    offsets = np.cumsum([0] + [len(d) for d in documents]).astype(np.int64)
    made = mlm_segments(ids, offsets, prefix, suffix, longest)
    cut = [made.stream[a:b].tolist() for a, b in zip(made.offsets, made.offsets[1:], strict=False)]
    return cut, made


def test_a_long_document_is_cut_and_every_piece_wrapped():
    cut, made = segments([[5, 6, 7], [8]], 4)
    assert cut == [[0, 5, 6, 2], [0, 7, 2], [0, 8, 2]]
    assert made.document_S.tolist() == [0, 0, 1]
    assert made.specials_added == 6


def test_whole_documents_for_a_stream():
    cut, _ = segments([[5, 6, 7], [8]], None)
    assert cut == [[0, 5, 6, 7, 2], [0, 8, 2]]


def test_templates_of_several_specials_and_of_none():
    assert segments([[5]], 9, prefix=(1, 2), suffix=(3, 4))[0] == [[1, 2, 5, 3, 4]]
    assert segments([[5, 6, 7]], 2, prefix=(), suffix=())[0] == [[5, 6], [7]]


@given(
    st.lists(st.lists(st.integers(10, 99), min_size=1, max_size=30), max_size=20),
    st.integers(3, 12),
)
def test_pieces_put_together_are_the_documents(documents, longest):
    cut, made = segments(documents, longest)
    back = [[] for _ in documents]
    for document, piece in zip(made.document_S, cut, strict=True):
        assert piece[0] == 0 and piece[-1] == 2 and len(piece) <= longest
        back[document] += piece[1:-1]
    assert back == documents
