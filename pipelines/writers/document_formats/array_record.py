"""A document a record of ArrayRecord: a tf.train.Example with the int64_list `tokens`.

A document of more than max_length tokens is cut every max_length, and its pieces are records that
follow one another: no token is lost, and a loader that packs or truncates to max_length finds
nothing to truncate. The records are written by the library, one chunk each, so that any of them is
read by itself.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np
from array_record.python import (
    array_record_module,  # pyright: ignore[reportAttributeAccessIssue]
)

from pipelines.rows.ragged import Ragged, cut
from schemas.errors import DataError
from schemas.features import token_dtype
from schemas.records import varint
from schemas.sidecar import Schema

TELLS_DOCUMENTS = False
_OPTIONS = "group_size:1,uncompressed,max_parallelism:1"
_READ = "readahead_buffer_size:0,max_parallelism:0"
_KEY = b"\x0a\x06tokens"  # of the one entry of tf.train.Features
_AT_ONCE, _TOKENS_AT_ONCE = 4096, 1 << 20  # records that are read, tokens that are written
_LONGEST = 5  # bytes of a varint of 32 bits


def refuse(schema: Schema) -> None:
    """Refuses nothing: any ids and any documents go into it."""


def encode(documents: Ragged, schema: Schema) -> Mapping[str, Iterator[np.ndarray | bytes]]:
    """The file as the library writes it."""
    return {"array_record": _file(_records(documents, schema.max_length))}


def _file(records: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes of a file of records; the library writes to a path only."""
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        path = os.path.join(folder, "records")
        writer = array_record_module.ArrayRecordWriter(path, _OPTIONS)
        for record in records:
            writer.write(record)
        writer.close()
        with open(path, "rb") as file:
            yield from iter(lambda: file.read(1 << 20), b"")


def _records(documents: Ragged, longest: int) -> Iterator[bytes]:
    """A tf.train.Example for each piece of the documents."""
    offsets, _ = cut(documents.offsets, longest)
    every = np.arange(0, offsets[-1], _TOKENS_AT_ONCE)
    batches = [*np.unique(np.searchsorted(offsets, every)).tolist(), len(offsets) - 1]
    for first, last in zip(batches[:-1], batches[1:], strict=True):
        start = offsets[first]
        some = Ragged(documents.values[start : offsets[last]], offsets[first : last + 1] - start)
        stream, bounds = _varints(some)
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            yield _head(end - begin) + stream[begin:end].tobytes()


@lru_cache(1 << 12)
def _head(size: int) -> bytes:
    """What stands before so many bytes of packed varints: the heads of six nested fields."""
    head = b""
    for number in (1, 3, 2):  # Int64List.value, Feature.int64_list, value of the entry
        head = _field(number, size, head)
    head = _KEY + head
    for _ in ("Features.feature", "Example.features"):
        head = _field(1, size, head)
    return head


def _field(number: int, size: int, head: bytes) -> bytes:
    """A field of `head` and as many bytes, which follow it."""
    return bytes((number << 3 | 2,)) + varint(size + len(head)) + head


def _varints(pieces: Ragged) -> tuple[np.ndarray, np.ndarray]:
    """The ids of pieces as varints, uint8 [n], and where each piece begins in them."""
    values = pieces.values
    width = np.ones(len(values), np.int64)
    for bits in range(7, 32, 7):
        width += (values >> bits) > 0
    ends = np.append(0, np.cumsum(width))
    out = np.empty(ends[-1], np.uint8)
    for byte in range(int(width.max(initial=0))):
        more = np.flatnonzero(width > byte)
        group = (values[more] >> (7 * byte)).astype(np.uint8) & 0x7F
        out[ends[more] + byte] = group | np.where(width[more] > byte + 1, 0x80, 0).astype(np.uint8)
    return out, ends[pieces.offsets]


def decode(paths: Mapping[str, str], schema: Schema) -> Ragged:
    """The records, each with at most max_length tokens."""
    path = paths["array_record"]
    try:
        reader = array_record_module.ArrayRecordReader(path, _READ)
        if not reader.ok():  # it says what is wrong when it is closed
            reader.close()
            raise DataError(f"{path} is no whole ArrayRecord file")
        count = reader.num_records()
        records = [
            record
            for start in range(0, count, _AT_ONCE)
            for record in reader.read(start, min(start + _AT_ONCE, count))
        ]
        reader.close()
    except (RuntimeError, ValueError, IndexError) as error:
        raise DataError(f"{path} is no whole ArrayRecord file: {error}") from error
    packed = [_packed(record, path) for record in records]
    values, bounds = _values(np.frombuffer(b"".join(packed), np.uint8), path)
    offsets = np.searchsorted(bounds, np.append(0, np.cumsum([len(each) for each in packed])))
    lengths = np.diff(offsets)
    if lengths.min(initial=1) < 1 or lengths.max(initial=1) > schema.max_length:
        raise DataError(f"{path} has a record of no token, or of more than {schema.max_length:,}")
    if values.max(initial=0) < schema.vocab_size:  # others are for `verify` to tell of
        values = values.astype(token_dtype(schema.vocab_size))
    return Ragged(values, offsets)


def _packed(record: bytes, path: str) -> bytes:
    """The varints of a record, which must be an Example as `_records` gives it."""
    size = len(record)
    for _ in range(4):  # the lengths in the head take fewer bytes, the fewer bytes follow
        size = max(0, len(record) - len(_head(size)))
    packed = record[len(record) - size :]
    if _head(size) + packed != record:
        raise DataError(f"{path} has a record that is no tf.train.Example of tokens alone")
    return packed


def _values(stream: np.ndarray, path: str) -> tuple[np.ndarray, np.ndarray]:
    """The numbers that varints spell, uint64 [n], and int64 [n + 1] where each begins."""
    ends = np.flatnonzero(stream < 0x80) + 1
    bounds = np.append(0, ends)
    width = np.diff(bounds)
    if (len(stream) and stream[-1] >= 0x80) or width.max(initial=0) > _LONGEST:
        raise DataError(f"{path} has a token that is no number of 32 bits")
    values = np.zeros(len(width), np.uint64)
    for byte in range(int(width.max(initial=0))):
        more = np.flatnonzero(width > byte)
        group = (stream[bounds[more] + byte] & 0x7F).astype(np.uint64)
        values[more] |= group << np.uint64(7 * byte)
    return values, bounds
