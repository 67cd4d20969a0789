import numpy as np
import pytest

from tests.tools.shard_factory import (
    mlm_schema,
    packed_rows,
    replace_file,
    routed_digests,
    write_mlm_set,
    write_set,
)
from textmill.pipelines.inspection.checks.row_checks import segment_lengths
from textmill.pipelines.inspection.checks.set_check import verify_dataset
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.row_documents import RowDocuments, encode_row_documents

SHARD, OTHER = "train-00000-of-00002", "train-00001-of-00002"
FILE = f"{SHARD}.documents"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A dataset whose every segment is a document."""
    directory = tmp_path_factory.mktemp("sets") / "set"
    write_mlm_set(directory)
    assert verify_dataset(str(directory)).problems == []
    return directory


@pytest.fixture
def parts(pristine):
    """What a file is made of: digests, bounds, document and first token of each segment."""
    documents = RowDocuments(str(pristine / FILE))
    row_S, document_S, first_S = documents.documents_of(np.arange(documents.rows))
    bounds = np.searchsorted(row_S, np.arange(documents.rows + 1))
    return [np.array(documents.digests), bounds, document_S.copy(), first_S.copy()]


@pytest.fixture
def problems(tmp_path):
    """A function: the problems of a dataset whose file of documents is another, with right sums."""

    def check(content):
        schema = mlm_schema()
        columns = {"train": packed_rows(schema, 40, 1), "validation": packed_rows(schema, 10, 2)}
        write_set(tmp_path / "set", schema, columns)
        replace_file(tmp_path / "set", FILE, content)
        found = verify_dataset(str(tmp_path / "set")).problems
        return [problem.removeprefix(f"{tmp_path}/set/") for problem in found]

    return check


def test_segment_lengths():
    counts, lengths = segment_lengths(np.array([[1, 1, 2, 0], [1, 2, 3, 3], [1, 1, 1, 1]]))
    assert counts.tolist() == [2, 3, 1]
    assert lengths.tolist() == [2, 1, 1, 1, 2, 4]


def test_a_row_fewer(parts, problems):
    digests, bounds, document_S, first_S = parts
    keep = bounds[-2]
    content = encode_row_documents(digests, bounds[:-1], document_S[:keep], first_S[:keep])
    assert problems(content) == [f"{FILE} has the documents of 19 rows, but there are 20"]


def test_segments_of_another_row(parts, problems):
    digests, bounds, document_S, first_S = parts
    bounds[1] += 1
    due = bounds[1] - bounds[0], bounds[1] - bounds[0] - 1
    assert problems(encode_row_documents(digests, bounds, document_S, first_S)) == [
        f"{FILE}: row 0 has {due[0]} documents, but {due[1]} segments"
    ]


def test_first_tokens(parts, problems):
    digests, bounds, document_S, first_S = parts
    first_S[4] = 7
    row = np.searchsorted(bounds, 4, side="right") - 1
    name = digests[document_S[4]].tobytes().hex()
    assert problems(encode_row_documents(digests, bounds, document_S, first_S)) == [
        f"{FILE}: row {row} has a segment of document {name} from token 7 on, but the segments "
        "before it end at 0"
    ]


def test_two_segments_of_one_document(parts, problems):
    """The second one begins where the first one ends, but stats.json counts two documents."""
    digests, bounds, document_S, first_S = parts
    columns = packed_rows(mlm_schema(), 40, 1)
    _, lengths = segment_lengths(columns["segment_ids"][:20])
    document_S[1], first_S[1] = document_S[0], lengths[0]
    count = len(digests)
    assert problems(encode_row_documents(digests, bounds, document_S, first_S)) == [
        f"{FILE} has {count - 1} documents, but stats.json counts {count}"
    ]


def test_digests(pristine, parts, problems):
    digests, *rest = parts
    schema = read_dataset(str(pristine)).schema
    digests[1] = digests[0]
    digests[3] = routed_digests(schema, OTHER, 1)[0]
    one, other = (digests[at].tobytes().hex() for at in (0, 3))
    found = problems(encode_row_documents(digests, *rest))
    assert found == [
        f"{FILE} has document {one} twice",
        f"{FILE} has document {other}, which belongs to {OTHER}",
    ]


def test_damage(parts, problems):
    content = encode_row_documents(*parts)
    assert problems(content[:-1])[0].startswith(f"{FILE} has {len(content) - 1:,} bytes, but its")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda list_R: None, []),
        (
            lambda list_R: list_R.put([0], list_R[5]),
            [": list 1 has 3 rows, not the 2 masked copies of one"],
        ),
        (
            lambda list_R: list_R.put([0, 1], list_R[[1, 0]]),
            [": row 3 is not a masked copy of the row whose list it has"],
        ),
    ],
)
def test_masked_copies(tmp_path, change, said):
    schema = mlm_schema(mask_copies=2, shards={"train": 1, "validation": 1})
    columns = {
        split: {name: np.repeat(values, copies, axis=0) for name, values in columns.items()}
        for split, copies in (("train", 2), ("validation", 1))
        for columns in [packed_rows(schema, 8, 3)]
    }
    shuffled = np.random.default_rng(0).permutation(16)
    columns["train"] = {name: values[shuffled] for name, values in columns["train"].items()}
    write_set(tmp_path / "set", schema, columns)
    name = "train-00000-of-00001.documents"
    documents = RowDocuments(str(tmp_path / "set" / name))
    list_R = documents.lists_of(np.arange(16)).copy()
    _, firsts = np.unique(list_R, return_index=True)
    row_S, document_S, first_S = documents.documents_of(firsts)
    change(list_R)
    bounds = np.searchsorted(row_S, np.arange(9))
    content = encode_row_documents(documents.digests, bounds, document_S, first_S, list_R)
    replace_file(tmp_path / "set", name, content)
    problems = verify_dataset(str(tmp_path / "set")).problems
    assert [problem.removeprefix(f"{tmp_path}/set/{name}") for problem in problems] == said
