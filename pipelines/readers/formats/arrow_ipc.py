"""Arrow IPC streams and files (Feather too) -> documents: runs of record batches a part.

A file is the stream between two marks, with a footer that nobody needs here: both are walked from
message to message, so a part is a range of bytes, and workers find their batches without the rest.
Format: https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format
"""

import contextlib
import io
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

import pyarrow as pa

from pipelines.readers.documents import Documents, no_documents
from pipelines.readers.formats.huggingface import class_names
from pipelines.readers.formats.role_columns import Classes, check_fields, take_roles
from pipelines.readers.source import Source
from pipelines.readers.stored import Part, part_digest
from schemas.errors import DataError, one_line

_FILE_MARK, _END_MARK = b"ARROW1\0\0", b"ARROW1"
_MESSAGE = b"\xff\xff\xff\xff"
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3  # MessageHeader in Arrow's Message.fbs
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3  # fields of a Message there
_MAPPED_BYTES = 64 << 20  # a batch this large is mapped into memory instead of read


@dataclass(frozen=True)
class _Message:
    kind: int
    start: int
    stop: int
    rows: int


def plan(raw: BinaryIO, part: Part, source: Source, classes: Classes | None = None) -> list[Part]:
    """Cuts a file between record batches.

    Args:
      raw: the file.
      part: all of it.
      source: whose roles' fields must be there; `block_bytes` are of a part, unless one batch is
        larger.
      classes: names of class numbers, if they are known better than from the file.

    Raises:
      DataError: no Arrow file, or cut short.
      UsageError: a field is not there, or is of a type that does not serve.
    """
    schema = _schema(raw, part)
    stored = class_names(schema)
    if classes is not None and classes != stored:
        part = replace(part, classes=tuple(sorted((f, tuple(n)) for f, n in classes.items())))
    check_fields(schema, source.roles, part.path, stored if classes is None else classes)
    messages = list(_walk(raw, part))
    if any(message.kind == _DICTIONARY for message in messages):
        return [part]  # later batches need what earlier ones said
    parts: list[Part] = []
    spans: list[tuple[int, int]] = [(0, messages[0].stop)]
    start = record = rows = 0
    for message in messages[1:]:
        if message.stop - start > source.block_bytes and rows:
            parts.append(
                replace(part, start=start, stop=message.start, record=record, spans=tuple(spans))
            )
            start, record, rows, spans = message.start, record + rows, 0, []
        spans.append((message.start, message.stop))
        rows += message.rows
    return [*parts, replace(part, start=start, record=record, spans=tuple(spans))]


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The documents of some record batches, in pieces of about `source.block_bytes`.

    Raises:
      DataError: a batch is damaged; names its first row.
    """
    roles, longest, chunk_bytes = source.roles, source.max_document_bytes, source.block_bytes
    digest = part_digest(raw, part)
    schema = _schema(raw, part)
    classes = stored_classes(raw, part)
    wanted = sorted({role.field.split(".")[0] for role in roles} | {role.field for role in roles})
    wanted = [name for name in wanted if schema.get_field_index(name) >= 0]
    record = part.record
    try:
        for batch in _batches(raw, part, schema):
            batch = batch.select(wanted)
            _check(batch)
            step = max(len(batch) * chunk_bytes // max(batch.nbytes, 1), 1)
            for first in range(0, len(batch), step):
                rows = batch.slice(first, step)
                place = record + first
                yield take_roles(rows, roles, part.path, place, classes=classes, longest=longest)
            record += len(batch)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise DataError(
            f"{part.path}: the record batch that begins with row {record:,} is damaged "
            f"({one_line(error)}): get the file again. A run never publishes a part of a file"
        ) from error
    yield replace(no_documents(roles), stored_bytes=part.bytes, digests=(digest,))


def stored_classes(raw: BinaryIO, part: Part) -> Classes:
    """Names of class numbers by field, as the file or what is known of it says."""
    return dict(part.classes) or class_names(_schema(raw, part))


def _batches(raw: BinaryIO, part: Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if not part.spans:  # with dictionaries, or compressed as a whole: from the start
        raw.seek(0)
        source = pa.PythonFile(raw, mode="r")
        if _begins_file(raw):
            reader = pa.ipc.open_file(source)
            yield from map(reader.get_batch, range(reader.num_record_batches))
        else:
            yield from pa.ipc.open_stream(source)
        return
    for start, stop in part.spans:
        if start == 0:
            continue
        message = pa.ipc.read_message(pa.BufferReader(_bytes(raw, start, stop)))
        yield pa.ipc.read_record_batch(message, schema)


def _bytes(raw: BinaryIO, start: int, stop: int) -> pa.Buffer:
    """Stored bytes; many of them are not copied into memory but mapped."""
    if stop - start >= _MAPPED_BYTES:
        with contextlib.suppress(io.UnsupportedOperation):  # fileno of a file in a store
            mapped = mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ)
            return pa.py_buffer(mapped).slice(start, stop - start)
    raw.seek(start)
    return pa.py_buffer(raw.read(stop - start))


def _check(batch: pa.RecordBatch) -> None:
    """Refuses offsets that lead out of their buffers; strings are looked at where they are used."""
    for column in batch.columns:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):
                raise


def _begins_file(raw: BinaryIO) -> bool:
    raw.seek(0)
    is_file = raw.read(len(_FILE_MARK)) == _FILE_MARK
    raw.seek(0)
    return is_file


def _schema(raw: BinaryIO, part: Part) -> pa.Schema:
    raw.seek(len(_FILE_MARK) if _begins_file(raw) else 0)
    try:
        schema = pa.ipc.read_schema(pa.PythonFile(raw, mode="r"))
        _ = schema.names  # which may be no UTF-8
        return schema
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise DataError(
            f"{part.path} is no Arrow stream or file ({one_line(error)}): get the file again, or "
            "give --input_format if it is of another format"
        ) from error


def _walk(raw: BinaryIO, part: Part) -> Iterator[_Message]:
    """The schema, dictionaries and batches of a stream that is complete."""
    place = 0
    if _begins_file(raw):
        place = len(_FILE_MARK)
        raw.seek(part.size - len(_END_MARK))
        if raw.read() != _END_MARK:
            raise _cut_short(part, part.size)
    while True:
        raw.seek(place)
        head = raw.read(8)
        if len(head) < 8 or head[:4] != _MESSAGE:
            raise _cut_short(part, place)
        [length] = struct.unpack_from("<i", head, 4)
        if not length:  # the mark at the end
            return
        if not 0 < length <= part.size - place:
            raise _cut_short(part, place)
        metadata = raw.read(length)
        try:
            kind, rows, body = _parse(metadata)
        except (struct.error, IndexError) as error:
            raise _cut_short(part, place) from error
        stop = place + len(head) + length + body
        if body < 0 or stop > part.size:
            raise _cut_short(part, place)
        yield _Message(kind, place, stop, rows)
        place = stop


def _cut_short(part: Part, place: int) -> DataError:
    return DataError(
        f"{part.path} has neither a whole message of Arrow's nor the mark of its end at byte "
        f"{place:,}: it was cut, or its writer was not closed; write it again. A run never "
        "publishes a part of a file"
    )


def _parse(metadata: bytes) -> tuple[int, int, int]:
    """Kind, rows and length of the body of a message: of a flatbuffer, three numbers."""
    [table] = struct.unpack_from("<I", metadata)
    kind = _field(metadata, table, _HEADER_TYPE)
    body = _field(metadata, table, _BODY_LENGTH)
    header = _field(metadata, table, _HEADER)
    rows = 0
    if kind and header and metadata[kind] == _BATCH:
        batch = header + struct.unpack_from("<I", metadata, header)[0]
        length = _field(metadata, batch, 0)
        rows = struct.unpack_from("<q", metadata, length)[0] if length else 0
    return (
        metadata[kind] if kind else 0,
        rows,
        struct.unpack_from("<q", metadata, body)[0] if body else 0,
    )


def _field(metadata: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table lies; 0 if it has its default."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    [size] = struct.unpack_from("<H", metadata, vtable)
    slot = 4 + 2 * number
    if slot >= size:
        return 0
    [offset] = struct.unpack_from("<H", metadata, vtable + slot)
    return table + offset if offset else 0
