"""Classes without a flag: folders, names in files, or all labels read once."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from textmill.pipelines.readers.documents import Role
from textmill.pipelines.readers.label_values import MOST, find_labels, sort_labels
from textmill.pipelines.readers.sources import Source, plan_blocks
from textmill.schemas.errors import DataError, UsageError

LABEL = Role("label", "label", "label")
ROLES = (Role("text", "string", "text"), LABEL)


def found_in(*paths, said=None, **options):
    source = Source(tuple(map(str, paths)), roles=ROLES, **options)
    lines = [] if said is None else said
    return find_labels(plan_blocks(source), source, LABEL, lines.append)


def write_lines(path, labels):
    path.write_text("".join(json.dumps({"text": "a", "label": x}) + "\n" for x in labels))
    return path


def test_folders_are_classes_and_no_file_is_read(tmp_path):
    for folder in ("pos", "neg", "so so"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.txt").write_bytes(b"\xff")
    said = []
    assert found_in(tmp_path, said=said) == ("neg", "pos", "so so")
    assert said == ["3 classes: neg, pos, so so"]


@pytest.mark.parametrize("block_bytes", [40, 16 << 20])
def test_labels_are_read_once_and_sorted_and_it_says_so(tmp_path, block_bytes):
    path = write_lines(tmp_path / "a.jsonl", [1, 10, 2, True, 1, 2] * 20)
    said = []
    assert found_in(path, said=said, block_bytes=block_bytes) == ("1", "10", "2", "true")
    assert said[0].startswith("reading field 'label' of all documents to find the classes")
    assert sort_labels(["10", "9", "-1"]) == ["-1", "9", "10"]
    assert sort_labels(["10", "9", "b"]) == ["10", "9", "b"]


def test_names_that_files_carry_keep_their_numbers(tmp_path):
    info = {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["pos", "neg"]}}}}
    metadata = {b"huggingface": json.dumps(info).encode()}
    schema = pa.schema([("text", pa.string()), ("label", pa.int64())], metadata=metadata)
    table = pa.table({"text": ["a"], "label": [1]}, schema=schema)
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.OSFile(str(tmp_path / "b.arrow"), "wb") as file, pa.ipc.new_file(file, schema) as out:
        out.write_table(table)
    said = []
    assert found_in(tmp_path / "a.parquet", tmp_path / "b.arrow", said=said) == ("pos", "neg")
    assert said == []
    write_lines(tmp_path / "c.jsonl", ["other"])
    assert found_in(tmp_path, said=said) == ("neg", "other", "pos")
    pq.write_table(pa.table({"text": ["", "b"], "label": ["y", "x"]}), tmp_path / "d.parquet")
    assert found_in(tmp_path / "d.parquet") == ("x", "y")


def test_what_looks_like_no_label_and_none_at_all_are_refused(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", ["x" * 50 + str(n) for n in range(MOST + 1)])
    message = "--label_field=label is probably no label.*more than 1,000.*'x{40}\\.\\.\\.'"
    for block_bytes in (200, 16 << 20):
        with pytest.raises(UsageError, match=message):
            found_in(path, block_bytes=block_bytes)
    assert len(found_in(write_lines(path, range(MOST)))) == MOST
    with pytest.raises(DataError, match="no document has a label: field 'label'"):
        found_in(write_lines(path, [None, ""]))
