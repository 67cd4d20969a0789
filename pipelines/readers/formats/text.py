"""Text files -> documents; each is a line, a paragraph or a file.

Parts of text, JSON Lines and CSV files are read as runs of whole documents, for any cut into parts.
Let f(p) be the end of the first boundary that starts at p - 1 or later (f(0) = 0, and the end of
the file if there is no boundary). A part is read from f(start) to f(stop), so parts tile any file.
Memory holds a chunk and the document that continues beyond it, up to the maximum length of a
document; the rest of a longer one is skipped.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

from textmill.pipelines.readers.compression import is_compressed
from textmill.pipelines.readers.documents import (
    BOM,
    BOUNDARIES,
    Documents,
    Role,
    no_documents,
    text_documents,
    too_large,
    too_long,
)
from textmill.pipelines.readers.sources import Source
from textmill.pipelines.readers.stored import Chunks, Digest, Part, refuse_foreign
from textmill.schemas.errors import DataError, UsageError, flag

_BLANK_LINE = re.compile(rb"[ \t\r\v\f]*\n")
_BLANK_LINES = re.compile(rb"(?:[ \t\r\v\f]*\n)*")
_WHITE_SPACE = b" \t\r\v\f\n"
_SLACK = len(BOM) + 1  # bytes that do not count: a byte order mark and a newline
_MUCH = 16 << 20

Boundary = tuple[int, int]  # start and stop, in the content, of what separates two documents


def check_roles(roles: tuple[Role, ...], path: str) -> None:
    """Checks that roles need no field besides the text and the label.

    Raises:
      UsageError: a role needs a field; names it.
    """
    for role in roles[1:]:
        if not role.values.is_folder and not role.optional:
            raise UsageError(
                f"{path} is a text file, which has no field {role.field!r} for the {role.name}: "
                "give JSON Lines, CSV, Parquet or another format with fields, or the format of "
                f"the file with {flag('input_format')}"
            )


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The documents that start in a part.

    Raises:
      DataError: the file is too large for one document.
    """
    kind, label = source.document, folder_label(part.path)
    roles, longest = source.roles, source.max_document_bytes
    for run in read_runs(raw, part, source, ENDS[kind]()):
        if run.data is None:
            documents = run.refuse(part.path, source)
        else:
            data = run.data if kind == "file" or run.offset else _with_newlines(run.data)
            documents = text_documents(
                data, kind, part.path, run.offset, roles=roles, label=label, longest=longest
            )
        if kind == "file" and not source.has_labels and "too_long" in documents.dropped:
            raise too_large(part.path, part.size, longest)
        yield run.account(documents)


def _with_newlines(data: bytes | memoryview) -> bytes | memoryview:
    """The first run of a file; with newlines for returns if it has no newline, as old files have.

    A run of lines or paragraphs without a newline is a whole file, for any cut into parts.
    """
    if data[-1:] == b"\n" or b"\n" in (data := bytes(data)):
        return data
    return data.replace(b"\r", b"\n")


def folder_label(path: str) -> str:
    """The label of a text file's documents: `a/pos/1.txt` -> `pos`."""
    return os.path.basename(os.path.dirname(os.path.abspath(path)))


@dataclass(frozen=True)
class DocumentRun:
    """Consecutive whole documents of a part.

    Attributes:
      data: bytes of the documents; None without documents.
      offset: offset of `data` in the file's content.
      long: where a document begins that is too long, and is skipped; None without one.
      source_bytes: bytes of the part's content read since the last run.
      stored_bytes: stored bytes read since the last run.
      digests: digest of the part, with its last run.
    """

    data: bytes | memoryview | None
    offset: int
    long: int | None = None
    source_bytes: int = 0
    stored_bytes: int = 0
    digests: tuple[Digest, ...] = ()

    def refuse(self, path: str, source: Source, number: int | None = None) -> Documents:
        """The documents of a run without data: none, or a reject that is too long.

        The offset of the reject is `number`, in formats that count records.
        """
        at = self.long if number is None or self.long is None else number
        rejects = () if at is None else (too_long(path, at, source.max_document_bytes),)
        return replace(no_documents(source.roles), rejects=rejects)

    def account(self, documents: Documents) -> Documents:
        """Adds the counts of bytes and the digest to the documents of the run."""
        return replace(
            documents,
            source_bytes=self.source_bytes,
            stored_bytes=self.stored_bytes,
            digests=self.digests,
        )


class Ends:
    """Finds the ends of documents in chunks of content; this class finds none.

    Attributes:
      begun: where a boundary began that a later chunk may complete; None without one.
    """

    begun: int | None = None

    def scan(self, chunk: bytes, place: int) -> None:
        """Takes the next chunk, which begins at `place` of the content."""

    def first(self, start: int) -> Boundary | None:
        """The first boundary that begins at `start` or later and ends in the chunk."""

    def last(self) -> int | None:
        """Where the last document ends in the chunk."""

    def find_text(self, data: bytes, place: int) -> tuple[int, int]:
        """Bounds of a document's text, without byte order mark and blank lines around it."""
        return len(BOM) if place == 0 and data.startswith(BOM) else 0, len(data)


class LineEnds(Ends):
    """Finds the ends of lines."""

    def scan(self, chunk: bytes, place: int) -> None:
        """See `Ends`."""
        self._chunk, self._place = chunk, place

    def first(self, start: int) -> Boundary | None:
        """See `Ends`."""
        at = self._chunk.find(b"\n", max(start - self._place, 0))
        return None if at < 0 else (self._place + at, self._place + at + 1)

    def last(self) -> int | None:
        """See `Ends`."""
        at = self._chunk.rfind(b"\n")
        return None if at < 0 else self._place + at + 1


class ParagraphEnds(LineEnds):
    """Finds the ends of paragraphs: a newline and a blank line, perhaps in different chunks."""

    def scan(self, chunk: bytes, place: int) -> None:
        """See `Ends`."""
        super().scan(chunk, place)
        self._begun_before = self.begun
        newline = chunk.rfind(b"\n")
        if chunk[newline + 1 :].strip(_WHITE_SPACE):
            self.begun = None
        elif newline >= 0:
            self.begun = place + newline

    def first(self, start: int) -> Boundary | None:
        """See `Ends`."""
        place, before = self._place, self._begun_before
        if before is not None and before >= start and (blank := _BLANK_LINE.match(self._chunk)):
            return before, place + blank.end()
        match = BOUNDARIES["paragraph"].search(self._chunk, max(start - place, 0))
        return (place + match.start(), place + match.end()) if match else None

    def last(self) -> int | None:
        """See `Ends`."""
        first = self.first(0)
        if first is None:
            return None
        matches = BOUNDARIES["paragraph"].finditer(self._chunk, first[1] - self._place)
        return max((self._place + match.end() for match in matches), default=first[1])

    def find_text(self, data: bytes, place: int) -> tuple[int, int]:
        """See `Ends`."""
        start, stop = super().find_text(data, place)
        blank = _BLANK_LINES.match(data, start)
        return blank.end() if blank else start, len(data[:stop].rstrip(_WHITE_SPACE))


ENDS = {"line": LineEnds, "paragraph": ParagraphEnds, "file": Ends}


def read_runs(
    raw: BinaryIO, part: Part, source: Source, ends: Ends, begin: int | None = None
) -> Iterator[DocumentRun]:
    """The documents that start in a part, whose first one begins at `begin` if it is known.

    Raises:
      DataError: the file is damaged, no text, or has too long a run of white space.
    """
    longest, is_packed = source.max_document_bytes, is_compressed(part.path)
    chunks = Chunks(raw, part, source.block_bytes, go_on=begin is None)
    place = part.start if begin is not None else max(part.start - 1, 0)  # start of the next chunk
    began = place if begin is None else begin  # start of the document that has not ended
    is_passing = begin is None and part.start > 0  # whether to skip the rest of a document
    stop = part.stop - 1 if part.stop < part.size else None  # no document of the part begins later
    pieces: list[bytes] = []  # of the document that has not ended
    data: bytes | memoryview | None = None
    source_bytes = 0
    for chunk in chunks:
        if not place:
            refuse_foreign(chunk, part.path)
        after = place + len(chunk)
        if begin is not None and place < begin:  # skips the header
            chunk, place = chunk[begin - place :], min(begin, after)
        inside = after - place if is_packed else min(after, part.stop) - max(place, part.start)
        source_bytes += max(inside, 0)
        ends.scan(chunk, place)
        if is_passing:
            first = ends.first(began)
            if first is None and (
                stop is None or after <= stop or ends.begun is not None and ends.begun < stop
            ):
                place = after
                continue
            if first is None or (stop is not None and first[0] >= stop):
                break
            is_passing, began = False, first[1]
        final = None if stop is None else ends.first(stop)
        end = final[1] if final else ends.last()
        rest = max(began - place, 0)
        if end is not None and end > began:
            data = memoryview(chunk)[rest : end - place]
            data = b"".join([*pieces, data]) if pieces else data
            if final:
                break
            if stop is None or after <= stop:
                yield DocumentRun(data, began, None, source_bytes, chunks.new_bytes())
                source_bytes = 0
            else:  # the part is read to its end; its bytes count with the last document
                yield DocumentRun(data, began)
            began, rest, pieces, data = end, end - place, [], None
        pieces.append(chunk[rest:])
        place = after
        if place - began > longest + _SLACK:
            text_start, text_stop = ends.find_text(b"".join(pieces), began)
            if text_stop - text_start > longest:
                long = began + text_start
                yield DocumentRun(None, began, long, source_bytes, chunks.new_bytes())
                source_bytes, pieces, is_passing = 0, [], True
            elif place - began > 2 * longest + _MUCH:
                raise DataError(
                    f"{part.path} has more than {longest:,} bytes of white space after byte "
                    f"{began:,}: remove them"
                )
    else:
        data = None if is_passing else b"".join(pieces)
    yield DocumentRun(data, began, None, source_bytes, chunks.new_bytes(), chunks.digests())
