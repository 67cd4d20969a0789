r"""Bytes of a text or JSON Lines file -> documents, as Arrow arrays. Pure.

Lines end at b"\n" alone: U+2028, U+0085 and a lone b"\r" are text. A b"\r" before the newline is
not part of the line. Empty lines separate documents and are none.
"""

import json
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

_BLANK = rb"[ \t\r\v\f]*"
# What ends a document, by kind: a cut after a match never cuts a document.
BOUNDARIES = {
    "line": re.compile(rb"\n"),
    "paragraph": re.compile(rb"\n" + _BLANK + rb"\n"),
    "file": re.compile(rb"(?!)"),  # nothing inside a file
}
_BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN = 10, 13


@dataclass(frozen=True)
class Reject:
    """A refused document: where it starts and why it was refused."""

    path: str
    offset: int
    reason: str
    detail: str


@dataclass(frozen=True)
class Documents:
    """Documents of a piece of a file.

    Attributes:
      text: large_string, valid UTF-8, no nulls, no empty ones.
      empty: documents without text; not among `rejects`.
      rejects: refused documents.
      source_bytes: of the piece, after decompression.
      stored_bytes: read from disk for it.
      digests: (path, file size, start, xxh3_128) of the stored ranges that end with this piece.
    """

    text: pa.LargeStringArray
    empty: int
    rejects: tuple[Reject, ...]
    source_bytes: int
    stored_bytes: int = 0
    digests: tuple[tuple[str, int, int, str], ...] = ()

    @property
    def read(self) -> int:
        """Documents found, kept or not."""
        return len(self.text) + self.empty + len(self.rejects)


def text_documents(data: bytes, document: str, path: str, offset: int) -> Documents:
    """Cuts text at lines or blank lines, or not at all.

    Args:
      data: whole documents, as the pattern in BOUNDARIES ends them.
      document: line, paragraph or file.
      path: for the places of refused documents.
      offset: of `data` in the file; at 0 a byte order mark is skipped.
    """
    skip = len(_BOM) if offset == 0 and data.startswith(_BOM) else 0
    bytes_ = np.frombuffer(data, np.uint8)
    if document == "file":
        starts, stops = np.array([skip]), np.array([len(data)])
    else:
        starts, stops = _lines(bytes_, skip)
        if document == "paragraph":
            starts, stops = _paragraphs(bytes_, starts, stops)
    empty = 0
    if document == "file" and skip == len(data):
        starts, stops, empty = starts[:0], stops[:0], 1
    text, bad = _utf8(_gather(bytes_, starts, stops))
    rejects = tuple(
        Reject(path, offset + int(starts[i]), "not_utf8", detail) for i, detail in bad.items()
    )
    return Documents(text, empty, rejects, len(data))


def _lines(data: np.ndarray, skip: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and stops of the lines that hold something."""
    stops = np.flatnonzero(data == _NEWLINE)
    if len(data) and (not len(stops) or stops[-1] != len(data) - 1):
        stops = np.append(stops, len(data))
    starts = np.empty_like(stops)
    starts[:1] = skip
    starts[1:] = stops[:-1] + 1
    stops = stops - ((stops > starts) & (data[stops - 1] == _RETURN)) if len(stops) else stops
    some = stops > starts
    return starts[some], stops[some]


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
    # A line goes on with the paragraph if only its predecessor's line end lies between.
    gap = np.zeros(len(data) + 1, np.int64)
    np.cumsum(data == _NEWLINE, out=gap[1:])
    opens = np.ones(len(starts), bool)
    opens[1:] = gap[starts[1:]] - gap[stops[:-1]] > 1
    closes = np.ones(len(starts), bool)
    closes[:-1] = opens[1:]
    return starts[opens], stops[closes]


def _gather(data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> pa.LargeBinaryArray:
    """Slices of `data`, packed one after another."""
    lengths = stops - starts
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    covered = np.zeros(len(data) + 1, np.int8)
    covered[starts] += 1
    covered[stops] -= 1
    inside = np.cumsum(covered[:-1], dtype=np.int8).view(bool)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data[inside])]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lengths), buffers)


def _utf8(binary: pa.LargeBinaryArray) -> tuple[pa.LargeStringArray, dict[int, str]]:
    """The valid documents as strings, and the invalid ones' numbers with what is wrong."""
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


def json_documents(data: bytes, text_field: str, path: str, offset: int) -> Documents:
    """Takes one field of each JSON Lines object.

    Arrow's parser takes a block that has nothing to refuse; any other is gone through line by line.

    Args:
      data: whole lines.
      text_field: the field with the text, a string.
      path: for the places of refused documents.
      offset: of `data` in the file.
    """
    text = _arrow_json(data, text_field)
    if text is None:
        return _slow_json(data, text_field, path, offset)
    lengths = pc.binary_length(text)  # pyright: ignore[reportAttributeAccessIssue]
    filled = lengths.to_numpy() > 0
    empty = len(text) - int(filled.sum())
    return Documents(text.filter(pa.array(filled)) if empty else text, empty, (), len(data))


def _arrow_json(data: bytes, text_field: str) -> pa.LargeStringArray | None:
    """The field of every line, or None if any line is not plainly good."""
    starts, _ = _lines(np.frombuffer(data, np.uint8), 0)
    if not len(starts):
        return pa.array([], pa.large_string())
    try:
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([(text_field, pa.large_string())]),
                unexpected_field_behavior="ignore",
            ),
        )
        table.validate(full=True)  # UTF-8 too
    except pa.ArrowInvalid:
        return None
    column = table.column(0).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    return None if column.null_count or len(column) != len(starts) else column


def _slow_json(data: bytes, text_field: str, path: str, offset: int) -> Documents:
    skip = len(_BOM) if offset == 0 and data.startswith(_BOM) else 0
    starts, stops = _lines(np.frombuffer(data, np.uint8), skip)
    texts: list[str] = []
    rejects: list[Reject] = []
    empty = 0
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        line = data[start:stop]
        if not line.strip():
            continue
        text, reason, detail = _json_text(line, text_field)
        if reason:
            rejects.append(Reject(path, offset + start, reason, detail))
        elif text:
            texts.append(text)
        else:
            empty += 1
    return Documents(pa.array(texts, pa.large_string()), empty, tuple(rejects), len(data))


def _json_text(line: bytes, text_field: str) -> tuple[str, str, str]:
    """(text, "", "") of a good line, ("", reason, detail) of another."""
    try:
        record = json.loads(line.decode())
    except UnicodeDecodeError as error:
        return "", "not_utf8", f"byte {error.start} of the line: {error.reason}"
    except (ValueError, RecursionError) as error:
        return "", "broken_json", str(error)
    if not isinstance(record, dict):
        return "", "not_an_object", f"the line holds {type(record).__name__}, not an object"
    if record.get(text_field) is None:
        fields = ", ".join(sorted(record)) or "none"
        return "", "missing_field", f"no field {text_field!r}; fields there: {fields}"
    text = record[text_field]
    if not isinstance(text, str):
        return "", "not_a_string", f"field {text_field!r} is a {type(text).__name__}"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return (
            "",
            "lone_surrogate",
            f"field {text_field!r}, character {error.start}: {error.reason}",
        )
    return text, "", ""
