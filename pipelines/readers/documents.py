r"""The types of documents and roles, and text files -> documents, as Arrow arrays. Pure.

Only b"\n" ends a line: U+2028, U+0085 and a lone b"\r" are text, except in a text file without any
newline, whose lines end with b"\r". A b"\r" before the newline is not part of the line. Empty lines
separate documents.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from rich.filesize import decimal

from textmill.pipelines.readers.page_hosts import WebPage
from textmill.pipelines.runtime.byte_vectors import AT_ONCE, first_bit, in_range
from textmill.pipelines.runtime.compiled import entry
from textmill.schemas.errors import DataError, flag
from textmill.schemas.format.drops import Observed, total_counts, total_observed

_BLANK = rb"[ \t\r\v\f]*"
# Pattern that ends a document, by kind; a cut after a match never splits a document.
BOUNDARIES = {
    "line": re.compile(rb"\n"),
    "paragraph": re.compile(rb"\n" + _BLANK + rb"\n"),
    "file": re.compile(rb"(?!)"),  # matches nowhere
}
BOM = b"\xef\xbb\xbf"
# Longer documents are rejected, which bounds memory. A document of 100 MB takes 0.9 GB more than a
# small one; if it is a single word, 2.2 GB in build_shards and 3.4 GB in train_tokenizer.
MAX_DOCUMENT_BYTES = 128 << 20
_NEWLINE, _RETURN, _ONE = np.uint8(10), np.uint8(13), np.uint8(1)
_ROOM = 1 << 14  # newlines found at once

# `start` counts characters from the beginning of the context, -1 if unknown. An unanswerable
# question has an empty list.
ANSWERS = pa.list_(pa.struct([("text", pa.string()), ("start", pa.int64())]))


@dataclass(frozen=True)
class ValueKind:
    """The kind of values of a role.

    Attributes:
      wanted: description of valid values, for messages.
      refusal: reason for which a value of a different type is rejected.
      type: Arrow type of the role's column.
      is_text: whether values are normalized, measured and filtered.
      is_name: whether integers and booleans are valid and kept as strings, and "" is missing.
      is_content: whether documents that differ only in it are different.
      is_folder: whether the folder of a text file is the value.
      is_json: whether values may have any shape, and are kept as JSON.
      is_plain: whether strings are kept as they are, and other values as JSON.
    """

    wanted: str
    refusal: str
    type: pa.DataType = pa.large_string()
    is_text: bool = False
    is_name: bool = False
    is_content: bool = True
    is_folder: bool = False
    is_json: bool = False
    is_plain: bool = False

    @property
    def nothing(self) -> str | list:
        """The value of a document that lacks one."""
        return [] if pa.types.is_list(self.type) else ""


_NAME = "a string, an integer or a boolean"
_VALUES = "text, numbers, booleans, times, bytes, lists, objects and maps"
KINDS = {
    "string": ValueKind("text", "not_a_string", is_text=True),
    "label": ValueKind(f"a label: {_NAME}", "not_a_label", is_name=True, is_folder=True),
    "id": ValueKind(f"an id: {_NAME}", "not_an_id", is_name=True, is_content=False),
    "answers": ValueKind(
        "answers: strings, or {text, answer_start} as in SQuAD", "not_answers", ANSWERS
    ),
    "json": ValueKind(f"JSON: {_VALUES}", "not_json", is_json=True),
    "field": ValueKind(_VALUES, "not_json", is_content=False, is_plain=True),
}


@dataclass(frozen=True)
class Role:
    """The role of a field of the input in a task.

    Attributes:
      name: its name in tasks: text, text_pair, label, id, question, context, answers.
      kind: kind of its values, a key of KINDS.
      field: name of the field in the input; `a.b` is the field b of the object a.
      optional: whether a document may lack it, and then has "" or no answers.
    """

    name: str
    kind: str
    field: str
    optional: bool = False

    @functools.cached_property  # used for each value
    def values(self) -> ValueKind:
        """The kind of its values."""
        return KINDS[self.kind]

    @functools.cached_property
    def type(self) -> pa.DataType:
        """The Arrow type of the role's column."""
        return self.values.type


TEXT_ROLES = (Role("text", "string", "text"),)


@dataclass(frozen=True)
class Reject:
    """A rejected document: where it starts and why it was rejected.

    Attributes:
      path: path of the file.
      offset: in text and JSON Lines the byte where it starts, otherwise its number among the file's
        records, from 0; None if unknown.
      reason: short name under which rejects are counted.
      detail: what is wrong with this document.
      unit: unit of `offset`, byte or record; not written into files.
    """

    path: str
    offset: int | None
    reason: str
    detail: str
    unit: str = field(default="byte", compare=False)

    @property
    def place(self) -> str:
        """Its position, for messages: `a.csv at record 17`."""
        return self.path if self.offset is None else f"{self.path} at {self.unit} {self.offset:,}"


def count_reasons(rejects: Iterable[Reject]) -> dict[str, int]:
    """Reason -> number of rejected documents."""
    return Counter(reject.reason for reject in rejects)


def too_long(path: str, offset: int, longest: int) -> Reject:
    """The reject of a document, or of its line, that is too long."""
    detail = f"longer than {longest:,} bytes: split it, or raise {flag('max_document_bytes')}"
    return Reject(path, offset, "too_long", detail)


def too_large(path: str, size: int, longest: int) -> DataError:
    """The error about a text file, of `size` stored bytes, that is too large for one document."""
    return DataError(
        f"{path} ({decimal(size)}) is too large for one document ({flag('document', 'file')}) of "
        f"at most {longest:,} bytes: give {flag('document', 'line')} or "
        f"{flag('document', 'paragraph')}, or raise {flag('max_document_bytes')}"
    )


@dataclass(frozen=True)
class Documents:
    """Documents of a piece of a file.

    Attributes:
      columns: a column for each role, with its name and type. Strings are valid UTF-8; there are no
        nulls; the first column has no empty strings.
      empty: number of documents whose first role is empty; not among `rejects`.
      rejects: rejected documents.
      source_bytes: bytes of the piece after decompression.
      stored_bytes: bytes read from storage for it.
      digests: (path, file size, start, xxh3_128) of the stored ranges that end with this piece.
      offsets: int64 [n], where each document starts in its file, like `Reject.offset`.
      files: path, unit of offsets, and number of documents of each file, in order.
      unusable: reason -> number of web pages without text, such as images and server errors; not
        among `rejects`.
      observed: further counts, section -> key -> number: {"responses": {"body_cut": 3}}.
      pages: web pages of which the main text was taken.
    """

    columns: pa.RecordBatch
    empty: int
    rejects: tuple[Reject, ...]
    source_bytes: int
    stored_bytes: int = 0
    digests: tuple[tuple[str, int, int, str], ...] = ()
    offsets: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64), compare=False)
    files: tuple[tuple[str, str, int], ...] = ()
    unusable: dict[str, int] = field(default_factory=dict)
    observed: Observed = field(default_factory=dict)
    pages: tuple[WebPage, ...] = ()

    def reject(self, number: int, reason: str, detail: str) -> Reject:
        """The reject of one of the documents."""
        offset = int(self.offsets[number]) if len(self.offsets) else None
        for path, unit, documents in self.files:
            if number < documents:
                return Reject(path, offset, reason, detail, unit)
            number -= documents
        return Reject("", offset, reason, detail)

    def keep(self, left: np.ndarray, columns: pa.RecordBatch) -> "Documents":
        """The documents with the numbers `left`, ascending, and these columns."""
        bounds = np.cumsum([0] + [number for _, _, number in self.files])
        numbers = np.diff(np.searchsorted(left, bounds)).tolist()
        renumbered = dict(zip(left.tolist(), range(len(left)), strict=True)) if self.pages else {}
        return replace(
            self,
            columns=columns,
            offsets=self.offsets[left] if len(self.offsets) else self.offsets,
            files=tuple((*file[:2], n) for file, n in zip(self.files, numbers, strict=True)),
            pages=tuple(p._replace(document=renumbered.get(p.document, -1)) for p in self.pages),
        )

    @property
    def text(self) -> pa.LargeStringArray:
        """The column of the first role."""
        return self.columns.column(0)

    @property
    def read(self) -> int:
        """Number of documents found, whether kept or not."""
        return len(self.text) + self.empty + len(self.rejects) + sum(self.unusable.values())

    @property
    def dropped(self) -> dict[str, int]:
        """Reason -> number of documents not kept."""
        return total_counts(count_reasons(self.rejects), self.unusable, {"empty": self.empty})


def text_documents(
    data: bytes | memoryview,
    document: str,
    path: str,
    offset: int,
    *,
    roles: tuple[Role, ...] = TEXT_ROLES,
    label: str = "",
    longest: int = MAX_DOCUMENT_BYTES,
) -> Documents:
    """Cuts text into documents at lines or blank lines, or takes it as one document.

    `data` is whole documents, as BOUNDARIES ends them; at offset 0 of the file a byte order mark is
    skipped. Roles besides the first, the text, get the label or an empty value.
    """
    skip = len(BOM) if offset == 0 and data[: len(BOM)] == BOM else 0
    bytes_ = np.frombuffer(data, np.uint8)
    if document == "file":
        starts, stops = np.array([skip]), np.array([len(data)])
    else:
        starts, stops = find_lines(bytes_, skip)
        if document == "paragraph":
            starts, stops = _paragraphs(bytes_, starts, stops)
    empty = 0
    if document == "file" and skip == len(data):
        starts, stops, empty = starts[:0], stops[:0], 1
    is_long = stops - starts > longest
    rejects = [too_long(path, offset + start, longest) for start in starts[is_long].tolist()]
    starts, stops = starts[~is_long], stops[~is_long]
    text, bad = _utf8(take_slices(bytes_, starts, stops))
    rejects += [
        Reject(path, offset + int(starts[i]), "not_utf8", detail) for i, detail in bad.items()
    ]
    offsets = np.delete(offset + starts, list(bad))
    columns = [text]
    for role in roles[1:]:
        value = label if role.values.is_folder else role.values.nothing
        columns.append(pa.repeat(pa.scalar(value, role.type), len(text)))
    columns = batch_of(columns, roles)
    return Documents(columns, empty, tuple(rejects), len(data), offsets=offsets)


def batch_of(columns: list[pa.Array], roles: tuple[Role, ...]) -> pa.RecordBatch:
    """A batch of columns, named as the roles."""
    return pa.RecordBatch.from_arrays(
        columns, schema=pa.schema([(role.name, role.type) for role in roles])
    )


def join_documents(pieces: list[Documents]) -> Documents:
    """Joins pieces into one, so that many small files cost no more than a large one."""
    if len(pieces) == 1:
        return pieces[0]
    firsts = np.cumsum([0, *(len(piece.columns) for piece in pieces)]).tolist()
    filled = [piece.columns for piece in pieces if len(piece.columns)] or [pieces[0].columns]
    return Documents(
        filled[0] if len(filled) == 1 else pa.concat_batches(filled),
        sum(piece.empty for piece in pieces),
        tuple(reject for piece in pieces for reject in piece.rejects),
        sum(piece.source_bytes for piece in pieces),
        sum(piece.stored_bytes for piece in pieces),
        tuple(digest for piece in pieces for digest in piece.digests),
        np.concatenate([piece.offsets for piece in pieces]),
        tuple(file for piece in pieces for file in piece.files),
        total_counts(*(piece.unusable for piece in pieces)),
        total_observed(piece.observed for piece in pieces),
        tuple(
            page._replace(document=page.document + first) if page.document >= 0 else page
            for piece, first in zip(pieces, firsts, strict=False)
            for page in piece.pages
        ),
    )


def no_documents(roles: tuple[Role, ...]) -> Documents:
    """A piece without documents, for counts and digests."""
    return Documents(batch_of([pa.array([], role.type) for role in roles], roles), 0, (), 0)


def find_lines(data: np.ndarray, skip: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and stops of the lines that are not empty."""
    stops = _find_newlines(data)
    if len(data) and (not len(stops) or stops[-1] != len(data) - 1):
        stops = np.append(stops, len(data))
    starts = np.empty_like(stops)
    starts[:1] = skip
    starts[1:] = stops[:-1] + 1
    stops = stops - ((stops > starts) & (data[stops - 1] == _RETURN)) if len(stops) else stops
    some = stops > starts
    return starts[some], stops[some]


def _find_newlines(data: np.ndarray) -> np.ndarray:
    """Where the newlines are: int64."""
    parts, place = [], 0
    while len(data) - place >= AT_ONCE:
        found = np.empty(_ROOM, np.int64)
        count, place = _find_some(data, place, found)
        parts.append(found[:count])
    return np.concatenate([*parts, place + np.flatnonzero(data[place:] == _NEWLINE)])


@entry()
def _find_some(data, place, found):
    """Finds the newlines of whole steps of 64 bytes until `found` has no room for another step."""
    count = 0
    while place + AT_ONCE <= data.size and count + AT_ONCE <= found.size:
        newlines = in_range(data, place, _NEWLINE, _ONE)
        while newlines:
            found[count] = place + first_bit(newlines)
            newlines &= newlines - 1
            count += 1
        place += AT_ONCE
    return count, place


def _paragraphs(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Joins neighbouring lines that are not blank."""
    if not len(starts):
        return starts, stops
    is_text = np.ones(256, bool)
    is_text[list(b" \t\r\v\f\n")] = False
    text_before = np.concatenate(([0], np.cumsum(is_text[data], dtype=np.int64)))
    filled = text_before[stops] > text_before[starts]
    starts, stops = starts[filled], stops[filled]
    # A line continues the paragraph if exactly one line end separates it from the line before.
    gap = np.zeros(len(data) + 1, np.int64)
    np.cumsum(data == _NEWLINE, out=gap[1:])
    opens = np.ones(len(starts), bool)
    opens[1:] = gap[starts[1:]] - gap[stops[:-1]] > 1
    closes = np.ones(len(starts), bool)
    closes[:-1] = opens[1:]
    return starts[opens], stops[closes]


def take_slices(data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> pa.LargeBinaryArray:
    """Copies slices of `data` one after another."""
    # The gaps between slices are slices too; Arrow takes every other one with a memcpy.
    bounds = np.empty((len(starts), 2), np.int64)
    bounds[:, 0], bounds[:, 1] = starts, stops
    count = max(2 * len(starts) - 1, 0)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    pieces = pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, buffers)
    return pieces.take(pa.array(np.arange(0, count, 2)))


def is_utf8(data: bytes | memoryview) -> bool:
    """Whether all bytes are valid UTF-8."""
    bounds = pa.py_buffer(np.array([0, len(data)]))
    whole = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 1, [None, bounds, pa.py_buffer(data)]
    )
    try:
        whole.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def _utf8(binary: pa.LargeBinaryArray) -> tuple[pa.LargeStringArray, dict[int, str]]:
    """The valid documents as strings; number -> error of the invalid ones."""
    try:
        return binary.cast(pa.large_string()), {}
    except pa.ArrowInvalid:
        bad = {}
        for i, value in enumerate(binary.to_pylist()):
            try:
                value.decode()
            except UnicodeDecodeError as error:
                where = f"byte {error.start} of the document, 0x{value[error.start]:02x}"
                bad[i] = f"{where}: {error.reason}"
        keep = np.ones(len(binary), bool)
        keep[list(bad)] = False
        return binary.filter(pa.array(keep)).cast(pa.large_string()), bad
