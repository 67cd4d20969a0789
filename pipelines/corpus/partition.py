"""Partitions documents by hash, joins exact duplicates, sorts and stages each partition.

A partition is a range of hashes and becomes one file of the corpus. So the corpus is sorted from
file to file, and any split of the input into blocks gives the same partitions. `read_rows` reads
such a file again.

A batch has one row for each document, with the columns
    digest: binary(16), xxh3_128 of the text
    text, and the kept fields: large_string
    file, record: large_string and int64, the place of the document in the input (--keep_source)
    words: int64, number of words (separated by white space)
    copies: int64, number of equal documents that the row stands for
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.near_duplicates.rows import differs
from textmill.pipelines.readers.documents import Documents, Role, no_documents
from textmill.pipelines.readers.sources import MOST_DOCUMENT_BYTES, Source, plan_blocks, read_block
from textmill.pipelines.rows.example_batch import DIGEST_BYTES, from_stream
from textmill.pipelines.rows.routing import content_digests
from textmill.pipelines.rows.text_bytes import count_words
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.format.corpus_metadata import partition_of

COUNTED = ("words", "copies")
SOURCE = ("file", "record")


def make_batch(documents: Documents, *, keep_source: bool) -> pa.RecordBatch:
    """Makes a sorted batch from a piece of a block; equal documents are joined."""
    columns: dict[str, Any] = {"digest": binaries(content_digests(documents.text))}
    columns |= dict(zip(documents.columns.schema.names, documents.columns.columns, strict=True))
    if keep_source:
        paths = pa.array([path for path, _, _ in documents.files], pa.large_string())
        numbers = np.repeat(np.arange(len(paths)), [n for _, _, n in documents.files])
        columns |= {"file": paths.take(pa.array(numbers)), "record": pa.array(documents.offsets)}
    columns["words"] = pa.array(count_words(documents.text))
    columns["copies"] = pa.array(np.ones(len(documents.text), np.int64))
    return join_equal(pa.record_batch(columns))


def no_rows(
    roles: tuple[Role, ...], added: tuple[str, ...], *, keep_source: bool
) -> pa.RecordBatch:
    """An empty batch with the columns that rules add."""
    documents = no_documents(roles)
    columns = documents.columns
    for name in added:
        columns = columns.append_column(name, pa.array([], pa.float32()))
    return make_batch(replace(documents, columns=columns), keep_source=keep_source)


def join_equal(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Sorts a batch by hash, and joins equal documents into one row; their `copies` add up.

    The row keeps the fields of the smallest of them, compared field by field with empty fields
    last, so the result does not depend on the order of rows.
    """
    digests = digests_of(batch)
    halves = digests.view(">u8").reshape(-1, 2).astype(np.uint64)
    order = np.lexsort((halves[:, 1], halves[:, 0]))
    is_new = differs(*halves[order].T)
    if is_new.all():
        return batch.take(pa.array(order))
    starts = np.flatnonzero(is_new)
    copies = np.add.reduceat(batch["copies"].to_numpy()[order], starts)
    others = [name for name in batch.schema.names if name not in ("digest", "text", *COUNTED)]
    chosen = order[starts]
    if others:
        stops = np.append(starts[1:], len(order))
        for group in np.flatnonzero(stops - starts > 1).tolist():
            rows = order[starts[group] : stops[group]]
            fields = batch.select(others).take(pa.array(rows)).to_pylist()
            keys = [[(value == "", value) for value in own.values()] for own in fields]
            chosen[group] = rows[keys.index(min(keys))]
    taken = batch.take(pa.array(chosen))
    return taken.set_column(
        taken.schema.get_field_index("copies"), taken.schema.field("copies"), pa.array(copies)
    )


def cut_batch(batch: pa.RecordBatch, partitions: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cuts a sorted batch into (partition, rows)."""
    numbers = partition_of(digests_of(batch), partitions)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    for start, stop in zip(starts, np.append(starts, len(numbers))[1:], strict=True):
        yield int(numbers[start]), batch.slice(int(start), int(stop - start))


def gather(streams: Sequence[bytes], first: pa.RecordBatch) -> pa.RecordBatch:
    """Joins a batch, which may be empty, and all batches received for the same partition."""
    return join_equal(pa.concat_batches([first, *map(from_stream, streams)]))


def with_one_copy(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Sets `copies` to 1."""
    place = batch.schema.get_field_index("copies")
    return batch.set_column(place, "copies", pa.array(np.ones(len(batch), np.int64)))


def digests_of(batch: pa.RecordBatch) -> np.ndarray:
    """The hashes of a batch's documents: uint8 [n, 16]."""
    column = batch["digest"]
    data = np.frombuffer(column.buffers()[1] or b"", np.uint8).reshape(-1, DIGEST_BYTES)
    return data[column.offset : column.offset + len(column)]


def find_rows(batch: pa.RecordBatch, digests: np.ndarray) -> np.ndarray:
    """The rows of a partition with these hashes: uint8 [n, 16] -> int64 [n].

    Raises:
      DataError: the partition lacks a hash.
    """
    rows = pc.index_in(binaries(digests), value_set=batch["digest"])
    if rows.null_count:
        raise DataError("the runner delivered a hash to a partition that does not have it")
    return rows.to_numpy().astype(np.int64)


def binaries(digests: np.ndarray) -> pa.Array:
    """The column `digest` of hashes: uint8 [n, 16]."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(digests))]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(DIGEST_BYTES), len(digests), buffers)


def stage_partition(scratch: str, number: int, batch: pa.RecordBatch, stage: str = "") -> None:
    """Writes a partition for the steps that need its text; a second attempt writes the same bytes.

    `stage` names a later state, which does not replace the earlier one: the runner may repeat a
    step that reads the earlier one.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    store.write_file(_path(scratch, number, stage), sink.getvalue().to_pybytes())


def read_partition(scratch: str, number: int, stage: str = "") -> pa.RecordBatch:
    """Reads a staged partition: all columns, in the order of hashes.

    Raises:
      DataError: the file is gone.
    """
    path = _path(scratch, number, stage)
    try:
        source = pa.py_buffer(store.read(path)) if store.is_url(path) else pa.memory_map(path)
    except FileNotFoundError as error:
        raise DataError(f"{path} was deleted while the run used it; run again") from error
    return pa.ipc.open_file(source).get_batch(0)


def _path(scratch: str, number: int, stage: str) -> str:
    return os.path.join(scratch, f"partition-{number:05d}{stage}.arrow")


def read_rows(path: str, rows: int, columns: tuple[str, ...]) -> Iterator[Documents]:
    """Yields the rows of one file of a corpus, in pieces; the first column has no empty value.

    Raises:
      DataError, UsageError: the file cannot be read, or lacks a column.
    """
    if not rows:
        return
    kept = tuple(Role(name, "field", name) for name in columns[1:])
    roles = (Role(columns[0], "string", columns[0]), *kept)
    source = Source((path,), roles=roles, max_document_bytes=MOST_DOCUMENT_BYTES)
    for block in plan_blocks(source):
        yield from read_block(block, source)
