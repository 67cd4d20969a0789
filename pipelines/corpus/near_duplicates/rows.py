"""Rows of fixed width that the stages of the job hand on to each other, as bytes. Pure.

Each is a numpy record without gaps, so that all rows of a batch are one buffer. Digests are 16
bytes: V16, which numpy sorts and compares as bytes.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from pipelines.rows.example_batch import from_stream

DIGEST = "V16"
# A document in one bucket; `place` is its block and its row in it.
MEMBER = np.dtype(
    [
        ("key", "<u8"),
        ("digest", DIGEST),
        ("length", "<u4"),
        ("level", "u1"),
        ("sketch", "<u8", (4,)),
        ("place", "<i8"),
    ]
)
# "Send the set of this row of your block to that partition, where it is the higher one of a pair;
# or, if `higher` names another document, where it is to be compared with that."
ASK = np.dtype(
    [("to", "<u4"), ("row", "<u4"), ("digest", DIGEST), ("level", "u1"), ("higher", DIGEST)]
)
# A verified pair; `state` is said in `rounds`.
EDGE = np.dtype(
    [
        ("higher", DIGEST),
        ("lower", DIGEST),
        ("similarity", "<f8"),
        ("higher_level", "u1"),
        ("lower_level", "u1"),
        ("state", "u1"),
    ]
)
_ROWS = "rows"


def digest_column(digests: np.ndarray) -> np.ndarray:
    """uint8 [n, 16] -> V16 [n], without a copy."""
    return np.ascontiguousarray(digests).view(DIGEST).reshape(len(digests))


def digest_bytes(digests: np.ndarray) -> np.ndarray:
    """V16 [n] -> uint8 [n, 16]."""
    return np.ascontiguousarray(digests).view(np.uint8).reshape(-1, 16)


def partition_of(digests: np.ndarray, partitions: int) -> np.ndarray:
    """Where documents are dealt with, by the first 32 bits of their digests: int64 [n]."""
    first = digest_bytes(digests)[:, :4].copy().view(">u4").reshape(-1).astype(np.int64)
    return first * partitions >> 32


def to_batch(rows: np.ndarray, **columns: pa.Array) -> pa.RecordBatch:
    """Rows as a batch of one column, with others beside it."""
    buffer = pa.py_buffer(np.ascontiguousarray(rows).view(np.uint8))
    packed = pa.Array.from_buffers(pa.binary(rows.dtype.itemsize), len(rows), [None, buffer])
    return pa.record_batch({_ROWS: packed, **columns})


def of_batch(batch: pa.RecordBatch, dtype: np.dtype) -> np.ndarray:
    """The rows of a batch, without a copy."""
    column = batch[_ROWS]
    stop = column.offset + len(column)  # the buffer may be longer
    return np.frombuffer(column.buffers()[1] or b"", dtype, stop)[column.offset :]


def of_streams(streams: Iterable[bytes], dtype: np.dtype) -> np.ndarray:
    """The rows of many batches."""
    parts = [of_batch(from_stream(stream), dtype) for stream in streams]
    return np.concatenate([np.zeros(0, dtype), *parts])


def by_key(rows: np.ndarray, keys: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Rows by key: (key, its rows) for each that is there."""
    order = np.argsort(keys, kind="stable")
    rows, keys = rows[order], keys[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    for start, stop in zip(starts, np.append(starts, len(keys))[1:], strict=True):
        yield int(keys[start]), rows[start:stop]


def distinct(rows: np.ndarray) -> np.ndarray:
    """Each row once, sorted by its bytes."""
    plain = np.ascontiguousarray(rows).view(f"V{rows.dtype.itemsize}")
    return np.unique(plain).view(rows.dtype)
