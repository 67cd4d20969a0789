"""Parquet -> documents; a part is a row group, and only needed columns are read."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from textmill.pipelines.readers.documents import Documents, Role, no_documents
from textmill.pipelines.readers.formats.huggingface import class_names
from textmill.pipelines.readers.formats.role_columns import Classes, check_fields, take_roles
from textmill.pipelines.readers.sources import Source
from textmill.pipelines.readers.stored import Part, read_once
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.errors import DataError, flag, one_line

_BUFFER_BYTES = 1 << 20  # bytes of a column read at once: row groups may be larger than memory
_MOST_ROWS = 1 << 14  # rows decoded at once
# Bytes decoded at once if each row had the longest value of its dictionary: 500 stored bytes may
# decode to gigabytes.
_MOST_BYTES = 128 << 20
_FOOTER_TAIL = 8  # bytes of the footer's length, and of PAR1


def plan(raw: BinaryIO, part: Part, source: Source, classes: Classes | None = None) -> list[Part]:
    """Checks the fields of a file, and makes a part for each row group, with its column spans.

    Raises:
      DataError: it is not a Parquet file.
      UsageError: a field is missing, or has an unsuitable type.
    """
    file = _open(raw, part)
    metadata = file.metadata
    roles = source.roles
    check_fields(file.schema_arrow, roles, part.path, class_names(file.schema_arrow))
    columns = _wanted_columns(metadata, roles)
    footer = metadata.serialized_size + _FOOTER_TAIL
    unread = pq.ParquetFile(pa.PythonFile(_NoPages(part.size), mode="r"), metadata=metadata)
    parts: list[Part] = []
    record = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if not group.num_rows:
            continue
        for column in columns:
            _check_chunk(unread, part, number, column)
        spans = [_span(group.column(i), part) for i in columns]
        if not parts:
            spans.append((part.size - footer, part.size))
        start = max(part.size * record // metadata.num_rows, len(parts))
        parts.append(
            replace(part, start=start, group=number, record=record, spans=tuple(sorted(spans)))
        )
        record += group.num_rows
    stops = [later.start for later in parts[1:]] + [part.size] * bool(parts)
    return [replace(p, stop=stop) for p, stop in zip(parts, stops, strict=True)]


class _PagesReached(Exception):
    """Arrow has checked the metadata, and would read pages now."""


class _NoPages(io.RawIOBase):
    def __init__(self, size: int):
        self._size = size

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._size  # Arrow seeks only to get the size

    def tell(self) -> int:
        return self._size

    def read(self, size: int = -1) -> bytes:
        raise _PagesReached


def _check_chunk(file: pq.ParquetFile, part: Part, group: int, column: int) -> None:
    """Checks the metadata of a column chunk against the schema.

    Arrow's reader raises an error if they differ; Arrow's metadata API aborts the process.
    """
    try:
        file.reader.read_row_group(group, column_indices=[column], use_threads=False)
    except _PagesReached:
        pass
    except (pa.ArrowException, OSError) as error:
        raise _open_error(part, one_line(error)) from error


def _span(column: pq.ColumnChunkMetaData, part: Part) -> tuple[int, int]:
    start = column.data_page_offset
    if column.dictionary_page_offset is not None:
        start = min(start, column.dictionary_page_offset)
    stop = start + column.total_compressed_size
    if not 0 <= start <= stop <= part.size:
        raise _open_error(part, f"a column from byte {start:,} to {stop:,} of {part.size:,}")
    return start, stop


def _wanted_columns(metadata: pq.FileMetaData, roles: tuple[Role, ...]) -> dict[int, str]:
    """Number -> path of the columns that roles read."""
    paths = {i: metadata.schema.column(i).path for i in range(metadata.num_columns)}
    fields = {role.field for role in roles}
    return {i: p for i, p in paths.items() if any(f"{p}.".startswith(f"{f}.") for f in fields)}


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The documents of a row group, in pieces of about `source.block_bytes`.

    Raises:
      DataError: a page is damaged; names the row group.
    """
    roles, longest, chunk_bytes = source.roles, source.max_document_bytes, source.block_bytes
    with read_once(raw, part) as (raw, digest):
        file = _open(raw, part)
        group = file.metadata.row_group(part.group)
        columns = _wanted_columns(file.metadata, roles)
        wanted = sorted({role.field for role in roles})
        size = sum(group.column(i).total_uncompressed_size for i in columns)
        batch_rows = min(
            group.num_rows * chunk_bytes // max(size, 1),
            _MOST_BYTES // max(_longest_value(raw, part, group, columns), 1),
            _MOST_ROWS,
        )
        classes = class_names(file.schema_arrow)
        rows = 0
        try:
            batches = file.iter_batches(
                max(batch_rows, 1), row_groups=[part.group], columns=wanted, use_threads=False
            )
            for batch in batches:
                first = part.record + rows
                yield take_roles(batch, roles, part.path, first, classes=classes, longest=longest)
                rows += len(batch)
        except (pa.ArrowException, OSError) as error:
            raise _damage_error(part, group.num_rows, one_line(error)) from error
        if rows != group.num_rows:
            raise _damage_error(part, group.num_rows, f"it has {rows:,} rows")
        yield replace(no_documents(roles), stored_bytes=part.bytes, digests=(digest,))


def stored_classes(raw: BinaryIO, part: Part) -> Classes:
    """Names of class numbers by field, from the file."""
    return class_names(_open(raw, part).schema_arrow)


def _longest_value(
    raw: BinaryIO, part: Part, group: pq.RowGroupMetaData, columns: Mapping[int, str]
) -> int:
    """Bytes of a row with the longest strings in the dictionaries of columns."""
    chunks = [(group.column(i), path) for i, path in columns.items()]
    strings = [
        path
        for chunk, path in chunks
        if chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page
    ]
    if not strings:
        return 0
    try:
        file = _open(raw, part, strings)
        rows = file.iter_batches(1, row_groups=[part.group], columns=strings, use_threads=False)
        batch = next(rows, None)
    except (pa.ArrowException, OSError) as error:
        raise _damage_error(part, group.num_rows, one_line(error)) from error
    values = max(-(-chunk.num_values // group.num_rows) for chunk, _ in chunks)  # per row
    return values * max(map(_longest_of, batch.columns), default=0) if batch else 0


def _longest_of(column: pa.Array) -> int:
    if pt.is_dictionary(column.type):
        lengths = pc.binary_length(column.dictionary)
        return pc.max(lengths).as_py() or 0
    inner = []
    if pt.is_list(column.type) or pt.is_large_list(column.type):
        inner = [column.values]
    elif pt.is_struct(column.type):
        inner = [column.field(i) for i in range(column.type.num_fields)]
    return max(map(_longest_of, inner), default=0)


def _open(raw: BinaryIO, part: Part, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(
            pa.PythonFile(raw, mode="r"),
            read_dictionary=list(dictionaries),
            buffer_size=_BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        _ = file.schema_arrow.names  # raises if a name is not UTF-8
        return file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _open_error(part, one_line(error)) from error


def _open_error(part: Part, what: str) -> DataError:
    return DataError(
        f"{part.path} is not a complete Parquet file ({what}): get the file again, or give "
        f"{flag('input_format')} if it has a different format"
    )


def _damage_error(part: Part, rows: int, what: str) -> DataError:
    return DataError(
        f"{part.path}: row group {part.group}, rows {part.record:,} to "
        f"{part.record + rows - 1:,}, is damaged ({what}): get the file again; nothing was "
        "published"
    )
