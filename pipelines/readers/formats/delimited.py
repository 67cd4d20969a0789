"""CSV and TSV with a header row -> documents.

Records are cut by `Scan` and parsed by Arrow, a chunk of whole ones at a time. A record with
another number of fields than the header is refused; a quote that is never closed is an error, for
nobody can tell how much of the file it was to hold.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv

from pipelines.readers.documents import (
    BOM,
    Documents,
    Reject,
    Role,
    no_documents,
    too_long,
)
from pipelines.readers.formats.role_columns import Classes, check_fields, take_roles
from pipelines.readers.source import Source
from pipelines.readers.stored import PEEKED, Chunks, Part, is_compressed, refuse_foreign
from pipelines.storage.store import is_url
from schemas.errors import DataError, UsageError

DELIMITERS = {"csv": ",", "tsv": "\t"}
_HEADER_BYTES = 1 << 20
_QUOTE_HINT = ". Perhaps a quote there is never closed: double quotes that are text"
_SHOWN = 80  # characters of a refused record
_ALL = np.iinfo(np.int64).max
_FIELD_START, _PLAIN, _QUOTED, _QUOTE_IN_QUOTED, _BLANK = range(5)  # states of a scan
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'


class Scan:
    """A walk over CSV text from the start of a record: where its records end.

    A quote opens a quoted field only where a field begins, a doubled one inside is a quote, and
    whatever follows the closing one belongs to the field as it stands; a newline, or a return, ends
    a record outside of quotes. These are the rules of Arrow's parser and of Python's, so a cut
    after a record never cuts one.

    Attributes:
      records: ended so far; blank lines are none.
      began: where the current record began.
      ended: where the last one ended; -1: none yet.
    """

    def __init__(self, place: int, delimiter: str, records: int = 0):
        """Place: of the first record, which has the number `records`."""
        self.began, self.ended, self.records = place, -1, records
        self._delimiter, self._state = ord(delimiter), _BLANK

    @property
    def is_quoted(self) -> bool:
        """Whether a quote is open."""
        return self._state == _QUOTED

    def go_on(self, data: np.ndarray, offset: int, stop_at: int = _ALL, limit: int = _ALL) -> int:
        """Scans more.

        Args:
          data: uint8 [n].
          offset: place of data[0].
          stop_at: stop after the first record that ends at this place or later.
          limit: stop after so many records.

        Returns:
          How many bytes were looked at.
        """
        ends, counts, state = _find_ends(data, self._delimiter, self._state)
        counts += self.records
        last = min(np.searchsorted(ends, stop_at - offset), np.searchsorted(counts, limit))
        seen = len(data)
        if last < len(ends):
            seen, state = int(ends[last]), _BLANK
        last = min(last, len(ends) - 1)
        self._state = state
        if last >= 0:
            self.records, self.began = int(counts[last]), offset + int(ends[last])
            self.ended = self.began
        return seen


def _find_ends(
    data: np.ndarray, delimiter: int, state: int = _BLANK
) -> tuple[np.ndarray, np.ndarray, int]:
    """Where lines end that are no part of a quoted field.

    Args:
      data: uint8 [n].
      delimiter: byte between fields.
      state: before the first byte.

    Returns:
      int64, the place after each such newline or return; int64, records ended up to there, for
      blank lines are none; and the state after the last byte.
    """
    edges = _find_edges(data, delimiter, state)
    newlines = np.flatnonzero((data == _NEWLINE) | (data == _RETURN))
    inside = (np.searchsorted(edges, newlines) + (state == _QUOTED)) % 2
    ends = newlines[inside == 0] + 1
    counts = np.cumsum(np.diff(ends, prepend=0 if state == _BLANK else -1) > 1)
    if (len(edges) + (state == _QUOTED)) % 2:
        return ends, counts, _QUOTED
    last = len(data) - 1
    if last < 0:
        return ends, counts, state
    if len(edges) and edges[-1] == last:
        return ends, counts, _QUOTE_IN_QUOTED
    after = {_NEWLINE: _BLANK, _RETURN: _BLANK, delimiter: _FIELD_START}
    return ends, counts, after.get(int(data[last]), _PLAIN)


def _find_edges(data: np.ndarray, delimiter: int, state: int) -> np.ndarray:
    """The quotes that begin or end quoting, in turn; a doubled one ends it and begins it anew."""
    quotes = np.flatnonzero(data == _QUOTE)
    before = data[quotes - 1]
    begins_field = (before == delimiter) | (before == _NEWLINE) | (before == _RETURN)
    if len(quotes) and quotes[0] == 0:
        begins_field[0] = state in (_FIELD_START, _BLANK)
    closed = -1 if state == _QUOTE_IN_QUOTED else -2
    is_doubled = np.diff(quotes, prepend=closed) == 1
    is_inside = state == _QUOTED
    if (begins_field | is_doubled)[is_inside::2].all():
        return quotes  # none is text, as nearly everywhere
    edges = []
    for quote, is_first in zip(quotes.tolist(), begins_field.tolist(), strict=True):
        if is_inside:
            closed = quote
        elif not is_first and quote != closed + 1:
            continue
        is_inside = not is_inside
        edges.append(quote)
    return np.array(edges, np.int64)


def plan(raw: BinaryIO, part: Part, source: Source, classes: Classes | None = None) -> list[Part]:
    """Checks the header and cuts a file between records.

    To know which newlines end records, a file must be read from its start. That goes at about a
    gigabyte a second, but not where it takes decompression or a network: such a file stays whole.

    Args:
      raw: the file.
      part: all of it.
      source: whose roles' fields must be there; `block_bytes` are of a part.
      classes: of no use here, where all is text.

    Raises:
      DataError: no header, or a quote is never closed.
      UsageError: a field is not there.
    """
    names, end = _header(raw, part)
    roles, block_bytes = source.roles, source.block_bytes
    for role in roles:
        if names.count(role.field) > 1:
            raise UsageError(f"{part.path}: {names.count(role.field)} columns are {role.field!r}")
    check_fields(pa.schema([(name, pa.string()) for name in names]), roles, part.path, {})
    is_near = not is_compressed(part.path) and not is_url(part.path)
    if not is_near or part.size <= block_bytes:
        return [part]
    parts: list[Part] = []
    scan = Scan(end, DELIMITERS[part.format])
    start, record, offset = 0, 0, end
    raw.seek(offset)
    while data := raw.read(block_bytes):
        bytes_ = np.frombuffer(data, np.uint8)
        while len(bytes_):
            seen = scan.go_on(bytes_, offset, stop_at=start + block_bytes)
            bytes_, offset = bytes_[seen:], offset + seen
            if scan.ended == offset >= start + block_bytes and offset < part.size:
                parts.append(replace(part, start=start, stop=offset, record=record))
                start, record = offset, scan.records
    _check_closed(scan, part)
    return [*parts, replace(part, start=start, record=record)]


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The documents of a part that starts and ends between records, or of a whole file.

    Raises:
      DataError: the file is damaged, or a quote is never closed.
    """
    roles, longest, chunk_bytes = source.roles, source.max_document_bytes, source.block_bytes
    names, end = _header(raw, part)
    chunks = Chunks(raw, part, chunk_bytes)
    skip = 0 if part.start else end
    first = part.record
    scan = Scan(part.start or end, DELIMITERS[part.format], first)
    place = part.start
    pieces: list[bytes] = []  # since the last record's end
    passing = False  # over the rest of a record that was refused
    for chunk in chunks:
        skipped, chunk = min(skip, len(chunk)), chunk[skip:]
        skip, place = skip - skipped, place + skipped
        data = np.frombuffer(chunk, np.uint8)
        if passing:
            passed = scan.go_on(data, place, limit=first + 1)
            passing = scan.records == first
            first = scan.records
            yield replace(no_documents(roles), source_bytes=passed)
            data, chunk, place = data[passed:], chunk[passed:], place + passed
        before = scan.ended
        scan.go_on(data, place)
        place += len(chunk)
        pieces.append(chunk)
        if scan.ended == before:
            size = sum(map(len, pieces))
            if size > longest and not passing:
                rejects = (too_long(part.path, first, longest),)
                yield replace(no_documents(roles), rejects=rejects, source_bytes=size)
                pieces, passing = [], True
            continue
        whole = len(chunk) - (place - scan.ended)
        pieces[-1] = chunk[:whole]
        documents = _parse(b"".join(pieces), names, roles, part, first, longest)
        yield replace(documents, stored_bytes=chunks.new_bytes())
        first, pieces = scan.records, [chunk[whole:]]
    _check_closed(scan, part)
    last = _parse(b"".join(pieces), names, roles, part, first, longest)
    yield replace(last, stored_bytes=chunks.new_bytes(), digests=chunks.digests())


def _check_closed(scan: Scan, part: Part) -> None:
    if scan.is_quoted:
        raise DataError(
            f"{part.path}: a quote in record {scan.records:,}, which begins at byte "
            f"{scan.began:,}, is never closed, and all that follows it would be one "
            "field. Close it, or double it if it is text"
        )


def _header(raw: BinaryIO, part: Part) -> tuple[list[str], int]:
    """The names of the columns, and where their record ends."""
    whole = Part(part.path, part.size, 0, part.size)
    scan = Scan(0, DELIMITERS[part.format])
    head = next(iter(Chunks(raw, whole, _HEADER_BYTES)), b"")
    refuse_foreign(head[:PEEKED], part.path, unpacked=is_compressed(part.path))
    data = np.frombuffer(head, np.uint8)
    skip = len(BOM) if head.startswith(BOM) else 0
    end = skip + scan.go_on(data[skip:], 0, limit=1)
    if not scan.records and len(head) >= _HEADER_BYTES:
        raise DataError(
            f"{part.path}: its first record does not end within {_HEADER_BYTES:,} bytes, so it is "
            f"no header row with names of fields{_QUOTE_HINT}"
        )
    _check_closed(scan, part)
    try:
        text = head[skip:end].decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{part.path}: the header row is not UTF-8 at byte {error.start}"
        ) from error
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=DELIMITERS[part.format])
    names = next((row for row in rows if row), None)
    if names is None:
        raise DataError(f"{part.path} has no header row with the names of the fields")
    return names, end


def _parse(
    data: bytes,
    names: list[str],
    roles: tuple[Role, ...],
    part: Part,
    first: int,
    longest: int,
) -> Documents:
    """Documents of whole records, the first of which has the number `first`."""
    refused: list[tuple[int, str]] = []  # number in `data`, why

    def refuse(row: pv.InvalidRow) -> str:
        shown = row.text if len(row.text) <= _SHOWN else row.text[:_SHOWN] + "..."
        counts = f"{row.actual_columns} fields where the header has {row.expected_columns}"
        refused.append(((row.number or 1) - 1, f"{counts}: {shown}"))
        return "skip"

    source_bytes = len(data)
    data, long = _without_long(data, ord(DELIMITERS[part.format]), longest)
    wanted = sorted({role.field for role in roles} & set(names))
    numbers = [str(i) for i in range(len(names))]  # names may stand twice
    columns = [numbers[names.index(name)] for name in wanted]
    if data.strip(b"\r\n"):
        table = pv.read_csv(
            pa.BufferReader(data),
            read_options=pv.ReadOptions(
                column_names=numbers, use_threads=False, block_size=len(data) + 1
            ),
            parse_options=pv.ParseOptions(
                delimiter=DELIMITERS[part.format],
                newlines_in_values=True,
                invalid_row_handler=refuse,
            ),
            convert_options=pv.ConvertOptions(
                include_columns=columns, column_types=dict.fromkeys(columns, pa.large_binary())
            ),
        ).rename_columns(wanted)
    else:
        table = pa.table({name: pa.array([], pa.large_binary()) for name in wanted})
    batches = table.combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
    documents = take_roles(batch, roles, part.path, 0, source_bytes=source_bytes)
    parsed = first + np.delete(np.arange(len(batch) + len(refused) + len(long)), long)
    record_of = np.delete(parsed, [number for number, _ in refused])
    rejects = {int(record_of[r.offset or 0]): (r.reason, r.detail) for r in documents.rejects}
    rejects |= {int(parsed[number]): ("ragged_row", why) for number, why in refused}
    placed = [Reject(part.path, number, *rejects[number]) for number in sorted(rejects)]
    placed += [too_long(part.path, first + number, longest) for number in long]
    return replace(documents, rejects=tuple(placed), offsets=record_of[documents.offsets])


def _without_long(data: bytes, delimiter: int, longest: int) -> tuple[bytes, list[int]]:
    """Whole records but those that are longer than they may be, and the numbers of these."""
    if len(data) <= longest:
        return data, []
    ends, counts, _ = _find_ends(np.frombuffer(data, np.uint8), delimiter)
    bounds = [0, *ends.tolist(), len(data)]
    numbers = np.append(0, counts)
    is_long = np.diff(bounds) > longest
    kept = [data[bounds[i] : bounds[i + 1]] for i in np.flatnonzero(~is_long).tolist()]
    return b"".join(kept), numbers[is_long].tolist()
