import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textmill.pipelines.tasks.task import Task, task_class
from textmill.schemas.errors import DataError
from textmill.schemas.format.digests import Digests
from textmill.schemas.format.features import TASKS
from textmill.schemas.format.row_documents import (
    ROUTED_BY_DIGEST,
    RowDocuments,
    encode_row_documents,
    largest_row_documents,
)

A, B, C, D = (bytes([number]) * 16 for number in b"abcd")
DIGESTS = np.frombuffer(A + B + C + D, np.uint8).reshape(-1, 16)
# Rows C[0:], A[0:]; A[7:]; A[14:], D[0:]; of D and not of B there are tokens.
CUT = (DIGESTS, [0, 2, 3, 5], [2, 0, 0, 0, 3], [0, 0, 7, 14, 0])
HEAD = struct.Struct("<8s5Q4B4x")


def encoded(digests, bounds, documents, firsts, lists=None):
    bounds, documents, firsts = (np.array(v, np.int64) for v in (bounds, documents, firsts))
    lists = None if lists is None else np.array(lists)
    return encode_row_documents(digests, bounds, documents, firsts, lists)


def opened(tmp_path, content):
    path = tmp_path / "train-00000-of-00001.documents"
    path.write_bytes(content)
    return RowDocuments(str(path))


def listed(documents, rows):
    """(index of the row, digest, first token) of each segment."""
    row_S, document_S, first_S = documents.documents_of(np.array(rows, np.int64))
    digests = (documents.digests[document].tobytes() for document in document_S)
    return list(zip(row_S.tolist(), digests, first_S.tolist(), strict=True))


def test_bytes_of_cut_documents(tmp_path):
    """Counts - 1, indices and first tokens in sevenths take a byte each."""
    head = HEAD.pack(b"TMrowdoc", 3, 3, 5, 3, 7, 1, 1, 1, 1)
    assert encoded(*CUT) == head + C + A + D + bytes([1, 0, 1, 0, 1, 1, 1, 2, 0, 0, 1, 2, 0])
    documents = opened(tmp_path, encoded(*CUT))
    assert documents.rows == 3
    assert listed(documents, [2, 0]) == [(0, A, 14), (0, D, 0), (1, C, 0), (1, A, 0)]
    assert listed(documents, []) == []
    assert [documents.rows_of(digest).tolist() for digest in (A, B, C, D)] == [
        [0, 1, 2],
        [],
        [0],
        [2],
    ]


def test_whole_documents_take_their_digests_alone(tmp_path):
    """A document a row, each in one segment."""
    content = encoded(DIGESTS, [0, 1, 2], [3, 1], [0, 0])
    assert content == HEAD.pack(b"TMrowdoc", 2, 2, 2, 2, 1, 1, 0, 1, 0) + D + B
    documents = opened(tmp_path, content)
    assert listed(documents, [0, 1]) == [(0, D, 0), (1, B, 0)]
    assert documents.rows_of(B).tolist() == [1]


def test_masked_copies_have_one_list(tmp_path):
    documents = opened(tmp_path, encoded(*CUT, [2, 0, 1, 1, 0, 2]))
    assert documents.rows == 6
    assert documents.lists_of(np.arange(6)).tolist() == [2, 0, 1, 1, 0, 2]
    assert listed(documents, [5, 3]) == [(0, A, 14), (0, D, 0), (1, A, 7)]
    assert documents.rows_of(D).tolist() == [0, 5]
    assert documents.rows_of(A).tolist() == [0, 1, 2, 3, 4, 5]


def test_rows_with_any_of_some_documents(tmp_path):
    """A row that holds a document twice counts once."""
    documents = opened(tmp_path, encoded(*CUT))
    assert documents.find_documents(Digests(B + D + A)) == {A: [0, 1, 2], D: [2]}
    assert documents.find_documents(Digests(B)) == {}
    documents = opened(tmp_path, encoded(*CUT, [2, 0, 1, 1, 0, 2]))
    assert documents.find_documents(Digests(D + C)) == {C: [1, 4], D: [0, 5]}
    twice = opened(tmp_path, encoded(DIGESTS, [0, 3], [1, 0, 1], [0, 0, 5]))
    assert twice.find_documents(Digests(B)) == {B: [0]}


def test_no_rows(tmp_path):
    documents = opened(tmp_path, encoded(DIGESTS[:0], [0], [], []))
    assert (documents.rows, len(documents.digests), listed(documents, [])) == (0, 0, [])
    assert documents.rows_of(A).tolist() == []


@given(st.data())
def test_all_that_is_written_is_read(tmp_path_factory, data):
    counts = data.draw(st.lists(st.integers(1, 4), max_size=6))
    segments = sum(counts)
    draw = st.lists(st.integers(0, 3), min_size=segments, max_size=segments)
    owners = data.draw(draw)
    step = data.draw(st.sampled_from([1, 126, 1 << 29]))
    firsts = [step * data.draw(st.integers(0, 3)) for _ in owners]
    own = st.lists(st.integers(0, len(counts) - 1)) if counts else st.none()
    lists = data.draw(st.none() | own)
    content = encoded(DIGESTS, np.append(0, np.cumsum(counts)), owners, firsts, lists)
    rows = range(len(counts)) if lists is None else lists
    bounds = np.append(0, np.cumsum(counts)).astype(int).tolist()
    due = [
        (row, (A, B, C, D)[owners[at]], firsts[at])
        for row, one in enumerate(rows)
        for at in range(bounds[one], bounds[one + 1])
    ]
    if lists is not None and len(lists) <= len(counts):
        return  # such files do not occur
    assert len(content) <= largest_row_documents(len(rows), segments, len({*owners}))
    documents = opened(tmp_path_factory.mktemp("documents"), content)
    assert listed(documents, range(len(rows))) == due
    rows_of = {digest: sorted({r for r, d, _ in due if d == digest}) for digest in (A, B, C, D)}
    for digest, rows in rows_of.items():
        assert documents.rows_of(digest).tolist() == rows
    held = {digest: rows for digest, rows in rows_of.items() if rows and digest != C}
    assert documents.find_documents(Digests(A + B + D)) == held


def test_rows_outside(tmp_path):
    documents = opened(tmp_path, encoded(*CUT))
    for row in (-1, 3):
        with pytest.raises(IndexError, match="documents has 3 rows"):
            documents.documents_of(np.array([row]))


def changed(number, value, *, content=None):
    """The content with a different value in its head."""
    content = encoded(*CUT) if content is None else content
    values = list(HEAD.unpack_from(content))
    values[number] = value
    return HEAD.pack(*values) + content[HEAD.size :]


ENDLESS = HEAD.pack(b"TMrowdoc", 1 << 32, 1 << 32, 1 << 32, 1, 1, 1, 0, 0, 0) + A
WHOLE = "its counts take"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "does not begin as such a file does"),
        (encoded(*CUT)[:40], "does not begin as such a file does"),
        (changed(0, b"TMrowdox"), "does not begin as such a file does"),
        (encoded(*CUT)[:-1], WHOLE),
        (encoded(*CUT) + b"\0", WHOLE),
        (changed(4, 1 << 60), WHOLE),
        (changed(3, 6), WHOLE),
        (changed(2, 4), WHOLE),
        (changed(1, 2, content=changed(6, 0)), "3 lists of 5 segments for 2 rows"),
        (changed(1, (1 << 64) - 1), WHOLE),
        (changed(6, 0, content=changed(1, 1 << 40)), "of 5 segments for 1,099,511,627,776 rows"),
        (changed(5, 0), r"numbers of \[1, 1, 1, 1\] bytes in units of 0"),
        (changed(5, 1 << 40), "bytes in units of 1099511627776"),
        (changed(6, 5), r"numbers of \[5, 1, 1, 1\] bytes"),
        (encoded(*CUT)[:104] + b"\xff" + encoded(*CUT)[105:], "has lists of 259 segments, but"),
        (ENDLESS, "has 4,294,967,296 lists of 4,294,967,296 segments"),
    ],
)
def test_damaged_files(tmp_path, content, said):
    with pytest.raises(DataError, match=said) as error:
        opened(tmp_path, content).documents_of(np.arange(3))
    assert "train-00000-of-00001.documents " in str(error.value)


def test_damaged_indices(tmp_path):
    content = encoded(*CUT)
    documents = opened(tmp_path, content[:107] + b"\x09" + content[108:])
    with pytest.raises(DataError, match="refers to document 9 of 3: it is damaged; copy or"):
        documents.documents_of(np.arange(3))
    with pytest.raises(DataError, match="refers to document 9 of 3"):
        documents.rows_of(A)
    content = encoded(*CUT, [0, 1, 2, 0])
    documents = opened(tmp_path, content[:104] + b"\x03" + content[105:])
    with pytest.raises(DataError, match="refers to list 3 of 3"):
        documents.documents_of(np.arange(4))


def test_missing_files(tmp_path):
    with pytest.raises(DataError, match="gone.documents is missing, although the manifest"):
        RowDocuments(str(tmp_path / "gone.documents"))
    with pytest.raises(DataError, match="Is a directory; check"):
        RowDocuments(str(tmp_path))


def test_tasks_that_route_by_the_digests_of_rows():
    own = {name for name in TASKS if task_class(name).routed_by is Task.routed_by}
    assert {*ROUTED_BY_DIGEST} == own - {"tokens"}  # which has no rows
