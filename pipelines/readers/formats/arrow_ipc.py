"""Arrow IPC streams and files (Feather too) -> documents; a part is a run of record batches.

A file is a stream between two marks, with a footer that is not needed. Planning walks from message
to message, so a part is a range of bytes, and workers find their batches without reading others.
"""

import contextlib
import io
import mmap
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

import pyarrow as pa

from textmill.pipelines.readers.documents import Documents, no_documents
from textmill.pipelines.readers.formats.huggingface import class_names
from textmill.pipelines.readers.formats.role_columns import Classes, check_fields, take_roles
from textmill.pipelines.readers.sources import Source
from textmill.pipelines.readers.stored import Part, read_once
from textmill.schemas.errors import DataError, flag, one_line

_FILE_MARK, _END_MARK = b"ARROW1\0\0", b"ARROW1"
_DICTIONARY, _BATCH = "dictionary", "record batch"
_NO_COLUMNS = pa.schema([])  # for counting the rows of a batch
_MAPPED_BYTES = 64 << 20  # a larger batch is mapped into memory instead of read


def plan(raw: BinaryIO, part: Part, source: Source, classes: Classes | None = None) -> list[Part]:
    """Checks the fields of a file, and cuts it between record batches.

    Raises:
      DataError: it is not an Arrow file, or is cut short.
      UsageError: a field is missing, or has an unsuitable type.
    """
    schema = _schema(raw, part)
    stored = class_names(schema)
    if classes is not None and classes != stored:
        part = replace(part, classes=tuple(sorted((f, tuple(n)) for f, n in classes.items())))
    check_fields(schema, source.roles, part.path, stored if classes is None else classes)
    messages = list(_walk(raw, part))
    if any(kind == _DICTIONARY for kind, *_ in messages):
        return [part]  # later batches need earlier dictionaries
    parts: list[Part] = []
    begin = record = rows = 0  # begin, first record and rows of the next part
    spans: list[tuple[int, int]] = []
    for _, start, stop, batch_rows in messages:
        if stop - begin > source.block_bytes and rows:
            parts.append(replace(part, start=begin, stop=start, record=record, spans=tuple(spans)))
            begin, record, rows, spans = start, record + rows, 0, []
        spans.append((start if spans or begin else 0, stop))
        rows += batch_rows
    return [*parts, replace(part, start=begin, record=record, spans=tuple(spans))]


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The documents of some record batches, in pieces of about `source.block_bytes`.

    Raises:
      DataError: a batch is damaged; names its first row.
    """
    roles, longest, chunk_bytes = source.roles, source.max_document_bytes, source.block_bytes
    # A copy of a local file, whose batches are not decompressed, takes three times the time.
    with read_once(raw, part, copies_local=False) as (raw, digest):
        schema = _schema(raw, part)
        classes = stored_classes(raw, part)
        wanted = sorted(
            {role.field.split(".")[0] for role in roles} | {role.field for role in roles}
        )
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
                    yield take_roles(
                        rows, roles, part.path, place, classes=classes, longest=longest
                    )
                record += len(batch)
        except (pa.ArrowException, OSError, EOFError) as error:
            raise DataError(
                f"{part.path}: the record batch that begins with row {record:,} is damaged "
                f"({one_line(error)}): get the file again; nothing was published"
            ) from error
        yield replace(no_documents(roles), stored_bytes=part.bytes, digests=(digest,))


def stored_classes(raw: BinaryIO, part: Part) -> Classes:
    """Names of class numbers by field, from the plan or from the file."""
    return dict(part.classes) or class_names(_schema(raw, part))


def _batches(raw: BinaryIO, part: Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if not part.spans:  # files with dictionaries, or compressed as a whole, are read from the start
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
    """Stored bytes; a large range is mapped into memory instead of copied."""
    if stop - start >= _MAPPED_BYTES:
        with contextlib.suppress(io.UnsupportedOperation):  # a file in an object store
            return _map(raw).slice(start, stop - start)
    raw.seek(start)
    return pa.py_buffer(raw.read(stop - start))


def _map(raw: BinaryIO) -> pa.Buffer:
    """Maps a file into memory; raises UnsupportedOperation for a file in an object store."""
    return pa.py_buffer(mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ))


def _check(batch: pa.RecordBatch) -> None:
    """Raises ArrowInvalid for offsets outside their buffers; UTF-8 is checked by the roles."""
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
        _ = schema.names  # raises if a name is not UTF-8
        return schema
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise DataError(
            f"{part.path} is not an Arrow stream or file ({one_line(error)}): get the file again, "
            f"or give {flag('input_format')} if it has a different format"
        ) from error


def _walk(raw: BinaryIO, part: Part) -> Iterator[tuple[str, int, int, int]]:
    """Yields kind, start, stop and rows of each message; an incomplete stream is an error."""
    place = len(_FILE_MARK) if _begins_file(raw) else 0
    if place:
        raw.seek(part.size - len(_END_MARK))
        if raw.read() != _END_MARK:
            raise _cut_short(part, part.size)
    try:
        file = pa.BufferReader(_map(raw))  # does not read message bodies
    except io.UnsupportedOperation:
        file = pa.PythonFile(raw, mode="r")
    file.seek(place)
    messages = pa.ipc.MessageReader.open_stream(file)
    try:
        while True:
            start = place
            message = messages.read_next_message()
            place, rows = file.tell(), 0
            if message.type == _BATCH:
                rows = pa.ipc.read_record_batch(message, _NO_COLUMNS).num_rows
            yield message.type, start, place, rows
            if message.type == _DICTIONARY:
                return
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise _cut_short(part, place) from error
    except StopIteration:
        if file.tell() == place:  # the end mark is missing
            raise _cut_short(part, place) from None


def _cut_short(part: Part, place: int) -> DataError:
    return DataError(
        f"{part.path} has neither a complete Arrow message nor an end mark at byte {place:,}: it "
        "was cut off, or its writer was not closed; write it again; nothing was published"
    )
