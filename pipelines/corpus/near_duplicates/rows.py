"""Rows of fixed width that steps send to each other. Pure.

A row is a numpy record without gaps, so the rows of a batch are one buffer. `take` picks records
five times as fast as an index.

The `place` of a document, int64, is its partition and its row there. Partitions are ranges of
hashes and sorted by hash, so places order documents as hashes do.

    place = partition << 32 | row

Files of older corpora are numbered from OLDER on, as partitions above those of the run.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from textmill.pipelines.rows.example_batch import from_stream
from textmill.pipelines.rows.ragged import Ragged

MEMBER = np.dtype(  # a document in one bucket; `length` is bytes of text
    [("key", "<u8"), ("place", "<i8"), ("length", "<u4"), ("sketch", "<u8", (4,))]
)
PAIR = np.dtype([("lower", "<i8"), ("higher", "<i8")])  # places of two documents to compare
ASK = np.dtype([("higher", "<i8"), ("to", "<u4")])  # request: send the set of `higher` to `to`
EDGE = np.dtype(  # a verified pair; `state` as in `resolve`
    [("higher", "<i8"), ("lower", "<i8"), ("similarity", "<f8"), ("state", "u1")]
)
# The row of a removed document in its partition, and the hash of its representative.
REMOVED = np.dtype([("row", "<u4"), ("representative", "V16"), ("similarity", "<f8")])
PLACE = np.dtype("<i8")
OLDER = 1 << 20
_ROWS, _SETS = "rows", "sets"
_ROWS_WAITING = 1 << 20


def places(partition: int, rows: np.ndarray) -> np.ndarray:
    """Rows of a partition -> places: int64 [n]."""
    return partition << 32 | rows.astype(np.int64)


def rows_of(places: np.ndarray) -> np.ndarray:
    """Places -> rows in their partition: int64 [n]."""
    return places & 0xFFFFFFFF


def signed_type(bands: int) -> np.dtype:
    """A signed document: its row, bytes of text, sketch, and the keys of its buckets."""
    fields = [("row", "<u4"), ("length", "<u4"), ("sketch", "<u8", (4,)), ("keys", "<u8", (bands,))]
    return np.dtype(fields)


def is_older(places: np.ndarray) -> np.ndarray:
    """Whether places are those of documents of older corpora: bool [n]."""
    return places >= OLDER << 32


def to_batch(rows: np.ndarray, sets: Ragged | None = None) -> pa.RecordBatch:
    """Rows as a batch of one column; with `sets`, a second column of a uint64 set for each row."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(rows).view(np.uint8))]
    kind = pa.binary(rows.dtype.itemsize)
    columns = {_ROWS: pa.Array.from_buffers(kind, len(rows), buffers)}
    if sets is not None:
        data = pa.py_buffer(np.ascontiguousarray(sets.values).view(np.uint8))
        buffers = [None, pa.py_buffer(sets.offsets * 8), data]
        columns[_SETS] = pa.Array.from_buffers(pa.large_binary(), len(rows), buffers)
    return pa.record_batch(columns)


def of_batch(batch: pa.RecordBatch, dtype: np.dtype) -> np.ndarray:
    """The rows of a batch, without a copy."""
    column = batch[_ROWS]
    stop = column.offset + len(column)  # the buffer may be longer
    return np.frombuffer(column.buffers()[1] or b"", dtype, stop)[column.offset :]


def sets_of(batch: pa.RecordBatch) -> tuple[np.ndarray, Ragged] | None:
    """Places and their sets, without a copy; None for a batch without sets."""
    if batch.num_columns == 1:
        return None
    column = batch[_SETS]
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64)[column.offset :][: len(column) + 1] // 8
    values = np.frombuffer(data or b"", "<u8")[bounds[0] : bounds[-1]]
    return of_batch(batch, PLACE), Ragged(values, bounds - bounds[0])


def take_rows(streams: list[bytes], dtype: np.dtype) -> np.ndarray:
    """The rows of many batches; empties the list, so that memory holds the rows only once."""
    parts = [of_batch(from_stream(stream), dtype) for stream in streams]
    streams.clear()
    rows = np.empty(sum(map(len, parts)), dtype)
    stop = len(rows)
    while parts:
        part = parts.pop()
        rows[stop - len(part) : stop] = part
        stop -= len(part)
    return rows


def by_key(rows: np.ndarray, keys: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Groups rows by key: (key, rows) for each key that occurs."""
    keys = keys.astype(np.min_scalar_type(keys.max(initial=0)))  # numpy radix-sorts up to 16 bits
    order = np.argsort(keys, kind="stable")
    rows, keys = rows.take(order), keys[order].astype(np.int64)
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    for start, stop in zip(starts, np.append(starts, len(keys))[1:], strict=True):
        yield int(keys[start]), rows[start:stop]


def batches_by_key(rows: np.ndarray, keys: np.ndarray) -> Iterable[tuple[int, pa.RecordBatch]]:
    """Groups rows by key, as batches."""
    return ((key, to_batch(some)) for key, some in by_key(rows, keys))


def differs(*columns: np.ndarray) -> np.ndarray:
    """Whether each row differs from the one before: [4, 4, 7] -> [True, False, True]."""
    differs = np.ones(len(columns[0]), bool)
    differs[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return differs


def distinct(rows: np.ndarray) -> np.ndarray:
    """The distinct rows, sorted by their fields."""
    names = rows.dtype.names or ()
    rows = rows.take(np.lexsort([rows[name] for name in reversed(names)]))
    return rows.take(np.flatnonzero(differs(*(rows[name] for name in names))))


def all_distinct(parts: Iterable[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """`distinct` of all parts together; memory grows with the number of distinct rows."""
    known, waiting, count = np.zeros(0, dtype), [], 0
    for rows in parts:
        waiting.append(rows)
        count += len(rows)
        if count > max(len(known), _ROWS_WAITING):
            known, waiting, count = distinct(np.concatenate([known, *waiting])), [], 0
    return distinct(np.concatenate([known, *waiting]))
