"""CSV and TSV with a header row -> documents.

`RecordEnds` cuts content between records, and Arrow parses chunks of whole records. A record with
a different number of fields than the header is rejected. In files with quoting, by default CSV, a
quote that is never closed is an error, since all records after it might be part of one field.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv

from textmill.pipelines.readers.compression import is_compressed
from textmill.pipelines.readers.documents import BOM, Documents, Reject, is_utf8, too_long
from textmill.pipelines.readers.formats.role_columns import Classes, check_names, take_roles
from textmill.pipelines.readers.formats.text import Boundary, Ends, read_runs
from textmill.pipelines.readers.sources import Source
from textmill.pipelines.readers.stored import Chunks, Part, refuse_foreign
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import Caution, DataError, UsageError, flag
from textmill.schemas.files.store import is_url

_HEADER_BYTES = 1 << 20
_SHOWN = 80  # characters shown of a rejected record
_BYTES = "latin-1"  # decodes any bytes
_FIELD_START, _PLAIN, _QUOTED, _QUOTE_IN_QUOTED, _BLANK = range(5)  # states of a scan
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'
_NO_EDGES = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Dialect:
    """How records are divided into fields.

    Attributes:
      delimiter: character between fields.
      has_quotes: whether double quotes enclose fields; if not, they are text.
    """

    delimiter: str
    has_quotes: bool

    @property
    def byte(self) -> int:
        """The delimiter as a byte."""
        return ord(self.delimiter)


# By format. The media type text/tab-separated-values has no quoting.
DIALECTS = {"csv": Dialect(",", True), "tsv": Dialect("\t", False)}


def dialect_of(format_name: str, quoting: str) -> Dialect:
    """The dialect of a format with --quoting."""
    dialect = DIALECTS[format_name]
    return dialect if quoting == "auto" else replace(dialect, has_quotes=quoting == "double")


class RecordEnds(Ends):
    """Finds the ends of records.

    A quote opens a quoted field only at the beginning of a field; a doubled quote inside is a
    quote; characters after the closing quote belong to the field. A newline or return outside of
    quotes ends a record. Arrow's and Python's parsers have the same rules, so a cut after a record
    never splits one.

    Attributes:
      records: number of records that have ended; blank lines do not count.
      began: where the current record began.
      is_quoted: whether a quote is open.
      state: the state of the scan after the last chunk.
    """

    def __init__(self, dialect: Dialect, place: int, records: int = 0):
        """`place` is the first byte of the first record, `records` its number."""
        self.began, self.records, self.is_quoted = place, records, False
        self._dialect, self.state = dialect, _BLANK

    def scan(self, chunk: bytes, place: int) -> None:
        """See `Ends`."""
        bytes_ = np.frombuffer(chunk, np.uint8)
        ends, counts, self.state = _find_ends(bytes_, self._dialect, self.state)
        self._ends, self._counts = ends + place, counts + self.records
        self.is_quoted = self.state == _QUOTED
        if len(ends):
            self.began, self.records = int(self._ends[-1]), int(self._counts[-1])

    def first(self, start: int) -> Boundary | None:
        """See `Ends`."""
        i = np.searchsorted(self._ends, start + 1)
        return (int(self._ends[i]) - 1, int(self._ends[i])) if i < len(self._ends) else None

    def last(self) -> int | None:
        """See `Ends`."""
        return self.began if len(self._ends) else None

    def find(self, records: int) -> int | None:
        """The end in the chunk at which this number of records have ended; None if beyond it."""
        i = np.searchsorted(self._counts, records)
        return int(self._ends[i]) if i < len(self._ends) else None

    def count(self, end: int) -> int:
        """Number of records up to an end in the chunk."""
        return int(self._counts[np.searchsorted(self._ends, end)])

    def check_closed(self, path: str) -> None:
        """Checks that no quote is open at the end of the content.

        Raises:
          DataError: a quote is open; names the record, and where it begins.
        """
        if self.is_quoted:
            raise DataError(
                f"{path}: a quote in record {self.records:,}, which begins at byte "
                f"{self.began:,}, is never closed, so the rest of the file would be one field: "
                "close it, or double it if it is text"
            )


def _find_ends(
    data: np.ndarray, dialect: Dialect, state: int = _BLANK
) -> tuple[np.ndarray, np.ndarray, int]:
    """Finds line ends outside of quoted fields.

    Args:
      data: uint8 [n], the content.
      dialect: how records are divided.
      state: state before the first byte.

    Returns:
      int64, the position after each such newline or return; int64, number of records that have
      ended there, without blank lines; and the state after the last byte.
    """
    edges = _find_edges(data, dialect.byte, state) if dialect.has_quotes else _NO_EDGES
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
    after = {_NEWLINE: _BLANK, _RETURN: _BLANK, dialect.byte: _FIELD_START}
    return ends, counts, after.get(int(data[last]), _PLAIN)


def _find_edges(data: np.ndarray, delimiter: int, state: int) -> np.ndarray:
    """The quotes that begin and end quoting, alternately; a doubled quote ends and begins it."""
    quotes = np.flatnonzero(data == _QUOTE)
    before = data[quotes - 1]
    begins_field = (before == delimiter) | (before == _NEWLINE) | (before == _RETURN)
    if len(quotes) and quotes[0] == 0:
        begins_field[0] = state in (_FIELD_START, _BLANK)
    closed = -1 if state == _QUOTE_IN_QUOTED else -2
    is_doubled = np.diff(quotes, prepend=closed) == 1
    is_inside = state == _QUOTED
    if (begins_field | is_doubled)[is_inside::2].all():
        return quotes  # the usual case: no quote is text
    edges = []
    for quote, is_first in zip(quotes.tolist(), begins_field.tolist(), strict=True):
        if is_inside:
            closed = quote
        elif not is_first and quote != closed + 1:
            continue
        is_inside = not is_inside
        edges.append(quote)
    return np.array(edges, np.int64)


def find_odd(data: np.ndarray, dialect: Dialect, state: int = _BLANK) -> np.ndarray:
    """Finds fields that suggest another --quoting than the dialect's.

    With quotes, these are fields that span lines and go on after the closing quote; without, fields
    that are enclosed in quotes. Fields that begin in an earlier chunk do not count.

    Returns:
      int64, the positions where such fields begin.
    """
    quotes = np.flatnonzero(data == _QUOTE)
    if not len(quotes):
        return _NO_EDGES
    after = np.append(data, _NEWLINE)[quotes + 1]
    ends_field = (after == dialect.byte) | (after == _NEWLINE) | (after == _RETURN)
    if not dialect.has_quotes:
        before = data[quotes - 1]
        begins = (before == dialect.byte) | (before == _NEWLINE) | (before == _RETURN)
        begins[0] = begins[0] if quotes[0] else state != _PLAIN
        firsts = quotes[begins]
        breaks = np.flatnonzero((data == dialect.byte) | (data == _NEWLINE) | (data == _RETURN))
        stops = np.append(breaks, len(data))[np.searchsorted(breaks, firsts)]
        return firsts[(data[stops - 1] == _QUOTE) & (stops - firsts > 1)]
    edges = _find_edges(data, dialect.byte, state)
    opens, closes = edges[int(state == _QUOTED) :: 2], edges[int(state != _QUOTED) :: 2]
    firsts = opens[~np.isin(opens - 1, closes)]  # the others are doubled quotes
    odd = closes[np.isin(closes, quotes[~ends_field & (after != _QUOTE)])]
    field = np.searchsorted(firsts, odd) - 1
    odd, firsts = odd[field >= 0], firsts[field[field >= 0]]
    newlines = np.flatnonzero((data == _NEWLINE) | (data == _RETURN))
    return firsts[np.searchsorted(newlines, firsts) < np.searchsorted(newlines, odd)]


def _doubt(odd: list[int], dialect: Dialect) -> str:
    """Describes fields that suggest another --quoting, with the remedy; "" if there are none."""
    if not odd:
        return ""
    count, at = len(odd), f"the first at byte {odd[0]:,}"
    if dialect.has_quotes:
        fields = number_of(count, "quoted field spans", "quoted fields span")
        return Caution(
            f"{fields} lines and {'goes' if count == 1 else 'go'} on after the closing quote, "
            f"{at}: if quotes are text in this file, give {flag('quoting', 'none')}"
        )
    fields = number_of(count, "field is", "fields are")
    return Caution(
        f"{fields} enclosed in quotes, {at}, which stay in the text: if quotes enclose fields in "
        f"this file, give {flag('quoting', 'double')}"
    )


def plan(raw: BinaryIO, part: Part, source: Source, classes: Classes | None = None) -> list[Part]:
    """Checks the header of a file, and cuts it between records.

    Whether a newline ends a record depends on all content before it, which is scanned at about a
    gigabyte per second. Compressed files and URLs are not cut.

    Raises:
      DataError: the file has no header, or a quote is never closed.
      UsageError: a field is missing.
    """
    dialect = dialect_of(part.format, source.quoting)
    head = _head(raw, part)
    names, end = _header(head, part, dialect)
    roles, block_bytes = source.roles, source.block_bytes
    for role in roles:
        if names.count(role.field) > 1:
            raise UsageError(f"{part.path}: {names.count(role.field)} columns are {role.field!r}")
        quoted = f'"{role.field}"'
        if quoted in names and role.field not in names:
            raise UsageError(
                f"{part.path} has no field {role.field!r} but {quoted!r}: give "
                f"{flag('quoting', 'double')} if quotes enclose its fields"
            )
    check_names(roles, part.path, names)
    if is_compressed(part.path) or is_url(part.path):
        odd = (find_odd(np.frombuffer(head[end:], np.uint8), dialect) + end).tolist()
        return [replace(part, doubt=_doubt(odd, dialect))]
    parts: list[Part] = []
    odd = []
    ends = RecordEnds(dialect, end)
    start, record, place = 0, 0, end
    raw.seek(place)
    while data := raw.read(block_bytes):
        odd += (find_odd(np.frombuffer(data, np.uint8), dialect, ends.state) + place).tolist()
        ends.scan(data, place)
        place += len(data)
        while (boundary := ends.first(start + block_bytes - 1)) and boundary[1] < part.size:
            parts.append(replace(part, start=start, stop=boundary[1], record=record))
            start, record = boundary[1], ends.count(boundary[1])
    ends.check_closed(part.path)
    return [*parts, replace(part, start=start, record=record, doubt=_doubt(odd, dialect))]


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The documents of a part that starts and ends between records, or of a whole file.

    Raises:
      DataError: the file is damaged, or a quote is never closed.
    """
    dialect = dialect_of(part.format, source.quoting)
    names, end = _header(_head(raw, part), part, dialect)
    begin = part.start or end
    ends = RecordEnds(dialect, begin, part.record)
    first = part.record  # number of the run's first record
    for run in read_runs(raw, part, source, ends, begin):
        if run.digests:
            ends.check_closed(part.path)
        if run.data is None:
            documents = run.refuse(part.path, source, first)
            first += len(documents.rejects)
        else:
            documents = _parse(bytes(run.data), names, source, part, first, dialect)
            first = ends.records
        yield run.account(documents)


def _head(raw: BinaryIO, part: Part) -> bytes:
    """The beginning of a file's content, which has the header row."""
    whole = Part(part.path, part.size, 0, part.size)
    return next(iter(Chunks(raw, whole, _HEADER_BYTES)), b"")


def _header(head: bytes, part: Part, dialect: Dialect) -> tuple[list[str], int]:
    """The names of the columns, and the end of the header row."""
    refuse_foreign(head, part.path)
    skip = len(BOM) if head.startswith(BOM) else 0
    ends = RecordEnds(dialect, skip)
    ends.scan(head[skip:], skip)
    end = ends.find(1) or len(head)
    if not ends.records and len(head) >= _HEADER_BYTES:
        raise DataError(
            f"{part.path}: the header row does not end within {_HEADER_BYTES:,} bytes: give a file "
            f"with a header row" + dialect.has_quotes * ", and double quotes that are text"
        )
    if not ends.records:
        ends.check_closed(part.path)
    try:
        text = head[skip:end].decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{part.path}: the header row is not UTF-8 at byte {error.start}: convert the file"
        ) from error
    quoting = csv.QUOTE_MINIMAL if dialect.has_quotes else csv.QUOTE_NONE
    lines = io.StringIO(text, newline="")
    rows = csv.reader(lines, delimiter=dialect.delimiter, quoting=quoting)
    names = next((row for row in rows if row), None)
    if names is None:
        raise DataError(f"{part.path} has no header row: add one with the names of the fields")
    return names, end


def _parse(
    data: bytes, names: list[str], source: Source, part: Part, first: int, dialect: Dialect
) -> Documents:
    """Documents of whole records; `first` is the number of the first record."""
    roles, longest = source.roles, source.max_document_bytes
    ragged: list[tuple[int, str]] = []  # number in `data`, detail

    def refuse(row: pv.InvalidRow) -> str:
        text = row.text if is_text else row.text.encode(_BYTES).decode(errors="backslashreplace")
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
        counts = f"{row.actual_columns} fields, but the header has {row.expected_columns}"
        ragged.append(((row.number or 1) - 1, f"{counts}: {shown}"))
        return "skip"

    source_bytes = len(data)
    data, long = _without_long(data, dialect, longest)
    is_text = is_utf8(data)
    if not is_text:  # Arrow fails when it shows a row that is not UTF-8
        data = data.decode(_BYTES).encode()
    if data.startswith(BOM):  # text after the header, but Arrow removes one
        data = BOM + data
    wanted = sorted({role.field for role in roles} & set(names))
    numbers = [str(i) for i in range(len(names))]  # names may not be unique
    columns = [numbers[names.index(name)] for name in wanted]
    if data.strip(b"\r\n"):
        table = pv.read_csv(
            pa.BufferReader(data),
            read_options=pv.ReadOptions(
                column_names=numbers, use_threads=False, block_size=len(data) + 1
            ),
            parse_options=pv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char='"' if dialect.has_quotes else False,
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
    if not is_text:
        values = [[v.decode().encode(_BYTES) for v in c.to_pylist()] for c in batch.columns]
        batch = pa.record_batch([pa.array(v, pa.large_binary()) for v in values], names=wanted)
    documents = take_roles(batch, roles, part.path, 0, source_bytes=source_bytes)
    parsed = first + np.delete(np.arange(len(batch) + len(ragged) + len(long)), long)
    record_of = np.delete(parsed, [number for number, _ in ragged])
    rejects = {int(record_of[r.offset or 0]): (r.reason, r.detail) for r in documents.rejects}
    rejects |= {int(parsed[number]): ("ragged_row", detail) for number, detail in ragged}
    placed = [Reject(part.path, number, *rejects[number]) for number in sorted(rejects)]
    placed += [too_long(part.path, first + number, longest) for number in long]
    return replace(documents, rejects=tuple(placed), offsets=record_of[documents.offsets])


def _without_long(data: bytes, dialect: Dialect, longest: int) -> tuple[bytes, list[int]]:
    """The records that are not too long, and the numbers of those that are."""
    if len(data) <= longest:
        return data, []
    ends, counts, _ = _find_ends(np.frombuffer(data, np.uint8), dialect)
    bounds = [0, *ends.tolist(), len(data)]
    numbers = np.append(0, counts)
    is_long = np.diff(bounds) > longest
    kept = [data[bounds[i] : bounds[i + 1]] for i in np.flatnonzero(~is_long).tolist()]
    return b"".join(kept), numbers[is_long].tolist()
