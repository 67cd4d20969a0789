"""Whole documents in each format: back as they were, and by hand as its readers want them."""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.shard_factory import mlm_schema
from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.writers import shard_files
from textmill.pipelines.writers.document_formats import (
    document_codec,
    document_rows,
)
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.format.features import task_features
from textmill.schemas.format.records import DOCUMENT_FORMATS

END = 2
NAME = "train-00000-of-00001"


def schema_of(vocab_size=300, max_length=12, formats=("npy",)):
    plain = mlm_schema(packing="none", static_masking=False, mask_rate=0.0, max_length=max_length)
    return replace(
        plain,
        vocab_size=vocab_size,
        task="tokens",
        parameters={"prefix_ids": [], "suffix_ids": [END]},
        features=task_features("tokens", max_length=max_length, vocab_size=vocab_size),
        file_formats=tuple(formats),
        fingerprint="",
    )


def ragged(documents, dtype="uint16"):
    ids = np.array([i for document in documents for i in document], dtype)
    return Ragged.of(ids, [len(document) for document in documents])


def lists(documents):
    values, offsets = documents
    return [values[a:b].tolist() for a, b in zip(offsets, offsets[1:], strict=False)]


def written(folder, documents, schema):
    """Path of each file, by its ending."""
    files = shard_files.write_documents(documents, str(folder), NAME, schema)
    assert {file.rows for file in files} == {len(documents.offsets) - 1}
    return {f.path.split(".", 1)[1]: str(folder / shard_files.staged_name(f)) for f in files}


def documents_of(vocab_size):
    token = st.integers(0, vocab_size - 1).filter(lambda token: token != END)
    return st.lists(st.lists(token, max_size=30).map(lambda ids: [*ids, END]), max_size=12)


@pytest.mark.parametrize("name", DOCUMENT_FORMATS)
@pytest.mark.parametrize("vocab_size", [300, 65_536, 1 << 24])
@given(data=st.data())
def test_documents_come_back(name, vocab_size, data, tmp_path_factory):
    schema = schema_of(vocab_size, formats=[name])
    dtype = "uint16" if vocab_size <= 1 << 16 else "uint32"
    if name == "llmc" and dtype == "uint32":
        with pytest.raises(UsageError, match="holds ids of 16 bits"):
            document_codec(name).refuse(schema)
        return
    documents = data.draw(documents_of(vocab_size))
    paths = written(tmp_path_factory.mktemp("files"), ragged(documents, dtype), schema)
    found = document_codec(name).decode(paths, schema)
    assert sum(lists(found), []) == sum(documents, [])
    if name == "array_record":
        assert lists(found) == [d[i : i + 12] for d in documents for i in range(0, len(d), 12)]
    else:
        assert lists(found) == documents


def test_the_index_of_megatron_by_hand(tmp_path):
    schema = schema_of(formats=["megatron"])
    paths = written(tmp_path, ragged([[5, 6, END], [7, END]]), schema)
    assert Path(paths["megatron.bin"]).read_bytes() == struct.pack("<5H", 5, 6, END, 7, END)
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3)
    index += struct.pack("<2i", 3, 2) + struct.pack("<2q", 0, 6) + struct.pack("<3q", 0, 1, 2)
    assert Path(paths["megatron.idx"]).read_bytes() == index


def test_files_of_llmc_and_npy_by_hand(tmp_path):
    documents = ragged([[5, END], [7, END]])
    content = Path(
        written(tmp_path, documents, schema_of(formats=["llmc"]))["llmc.bin"]
    ).read_bytes()
    assert content[:12] == struct.pack("<3i", 20240520, 1, 4) and not any(content[12:1024])
    assert content[1024:] == struct.pack("<4H", 5, END, 7, END)
    paths = written(tmp_path, documents, schema_of(formats=["npy"]))
    assert Path(paths["ids.bin"]).read_bytes() == content[1024:]


@pytest.mark.slow
def test_a_record_is_an_example_of_tensorflow(tmp_path):
    example_pb2 = pytest.importorskip("tensorflow.core.example.example_pb2")
    module = pytest.importorskip("array_record.python.array_record_module")
    documents = [[5] * 7 + [100_000, 127, 128, 16_383, 16_384, END], [9, END]]
    schema = schema_of(1 << 20, formats=["array_record"])
    paths = written(tmp_path, ragged(documents, "uint32"), schema)
    reader = module.ArrayRecordReader(paths["array_record"])
    examples = [example_pb2.Example.FromString(record) for record in reader.read_all()]
    found = [list(e.features.feature["tokens"].int64_list.value) for e in examples]
    assert found == [documents[0][:12], documents[0][12:], documents[1]]
    assert [e.SerializeToString() for e in examples] == reader.read_all()


@pytest.mark.parametrize("name", DOCUMENT_FORMATS)
@pytest.mark.parametrize("damage", ["cut", "longer", "empty", "zeros"])
def test_damage_is_told_or_changes_the_ids(tmp_path, name, damage):
    """`verify` compares what is left with the counts; nothing worse than a DataError may come."""
    schema = schema_of(formats=[name])
    documents = [[5, 6, END]] * 50
    for ending in DOCUMENT_FORMATS[name].endings:
        folder = tmp_path / ending
        folder.mkdir()
        paths = written(folder, ragged(documents), schema)
        content = Path(paths[ending]).read_bytes()
        zeros = bytes(len(content))
        damaged = {"cut": content[:-1], "longer": content + b"\1\1", "empty": b"", "zeros": zeros}
        Path(paths[ending]).write_bytes(damaged[damage])
        try:
            assert lists(document_codec(name).decode(paths, schema)) != documents
        except DataError as error:
            assert ending in str(error)


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(1, 6))
def test_documents_as_rows(lengths, step):
    documents = Ragged.of(np.arange(sum(lengths), dtype=np.uint16), lengths)
    rows, due = [], 0
    for start, columns in document_rows(documents, range(0, len(lengths), step)):
        assert start == due and len(columns["tokens"]) <= step
        due += len(columns["tokens"])
        for ids, segments in zip(columns["tokens"], columns["segment_ids"], strict=True):
            assert sorted(segments.tolist(), reverse=True) == segments.tolist()
            rows.append(ids[segments == 1].tolist())
    assert rows == lists(documents)
    with pytest.raises(
        DataError, match=rf"holds {len(lengths)} documents, fewer than MANIFEST.jso"
    ):
        list(document_rows(documents, range(0, len(lengths) + 1, 1)))
