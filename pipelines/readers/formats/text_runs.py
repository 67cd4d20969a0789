"""Parts of text, JSON Lines and CSV files -> runs of whole documents, whatever the cut into parts.

Let f(p) be the end of the first boundary whose match starts at p - 1 or later (f(0) = 0, and the
file's end if there is none). A part is read from f(start) to f(stop), so parts tile any file: what
one leaves out another takes. Held at once are a chunk and the document that goes on beyond its end;
of that one no more than a document may have. The rest of a longer one is passed over.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

from pipelines.readers.documents import BOM, BOUNDARIES, Documents, no_documents, too_long
from pipelines.readers.sources import Source
from pipelines.readers.stored import PEEKED, Chunks, Digest, Part, is_compressed, refuse_foreign
from schemas.errors import DataError

_BLANK_LINE = re.compile(rb"[ \t\r\v\f]*\n")
_BLANK_LINES = re.compile(rb"(?:[ \t\r\v\f]*\n)*")
_WHITE_SPACE = b" \t\r\v\f\n"
_SLACK = len(BOM) + 1  # bytes of a document that do not count, and one that may end it
_MUCH = 16 << 20

Boundary = tuple[int, int]  # of two documents, by its first and last place in the content


@dataclass(frozen=True)
class Run:
    """Whole documents of a part, one after another.

    Attributes:
      data: their bytes; None: there are none.
      offset: of `data` in the file's content.
      long: where a document begins that is longer than it may be; its bytes are not kept.
      source_bytes: of the part's content, read since the run before.
      stored_bytes: the same as they are stored.
      digests: of the part, with its last run.
    """

    data: bytes | memoryview | None
    offset: int
    long: int | None = None
    source_bytes: int = 0
    stored_bytes: int = 0
    digests: tuple[Digest, ...] = ()

    def refuse(self, path: str, source: Source, number: int | None = None) -> Documents:
        """What a run without data holds: nothing, or a document that is too long.

        Where records are counted, it has a number.
        """
        at = self.long if number is None or self.long is None else number
        rejects = () if at is None else (too_long(path, at, source.max_document_bytes),)
        return replace(no_documents(source.roles), rejects=rejects)

    def account(self, documents: Documents) -> Documents:
        """The documents of the run, with what was read for them."""
        return replace(
            documents,
            source_bytes=self.source_bytes,
            stored_bytes=self.stored_bytes,
            digests=self.digests,
        )


class Ends:
    """Finds where documents end in content that comes in chunks; this one: nowhere.

    Attributes:
      begun: where a boundary began that a later chunk may end; None: none did.
    """

    begun: int | None = None

    def scan(self, chunk: bytes, place: int) -> None:
        """Takes the next chunk, which begins at `place` of the content."""

    def first(self, start: int) -> Boundary | None:
        """The first boundary that begins at `start` or later and ends in the chunk."""

    def last(self) -> int | None:
        """Where the last document ends in the chunk."""

    def find_text(self, data: bytes, place: int) -> tuple[int, int]:
        """What of a document at `place` counts: without byte order mark and blank lines around."""
        return len(BOM) if place == 0 and data.startswith(BOM) else 0, len(data)


class LineEnds(Ends):
    """Of lines."""

    def scan(self, chunk: bytes, place: int) -> None:
        """As above."""
        self._chunk, self._place = chunk, place

    def first(self, start: int) -> Boundary | None:
        """As above."""
        at = self._chunk.find(b"\n", max(start - self._place, 0))
        return None if at < 0 else (self._place + at, self._place + at + 1)

    def last(self) -> int | None:
        """As above."""
        at = self._chunk.rfind(b"\n")
        return None if at < 0 else self._place + at + 1


class ParagraphEnds(LineEnds):
    """Of paragraphs: a newline and a blank line, which may have begun in an earlier chunk."""

    def scan(self, chunk: bytes, place: int) -> None:
        """As above."""
        super().scan(chunk, place)
        self._begun_before = self.begun
        newline = chunk.rfind(b"\n")
        if chunk[newline + 1 :].strip(_WHITE_SPACE):
            self.begun = None
        elif newline >= 0:
            self.begun = place + newline

    def first(self, start: int) -> Boundary | None:
        """As above."""
        place, before = self._place, self._begun_before
        if before is not None and before >= start and (blank := _BLANK_LINE.match(self._chunk)):
            return before, place + blank.end()
        match = BOUNDARIES["paragraph"].search(self._chunk, max(start - place, 0))
        return (place + match.start(), place + match.end()) if match else None

    def last(self) -> int | None:
        """As above."""
        found = self.first(0)
        if found is None:
            return None
        matches = BOUNDARIES["paragraph"].finditer(self._chunk, found[1] - self._place)
        return max((self._place + match.end() for match in matches), default=found[1])

    def find_text(self, data: bytes, place: int) -> tuple[int, int]:
        """As above."""
        start, stop = super().find_text(data, place)
        blank = _BLANK_LINES.match(data, start)
        return blank.end() if blank else start, len(data[:stop].rstrip(_WHITE_SPACE))


ENDS = {"line": LineEnds, "paragraph": ParagraphEnds, "file": Ends}


def read_runs(
    raw: BinaryIO, part: Part, source: Source, ends: Ends, begin: int | None = None
) -> Iterator[Run]:
    """The documents that start in a part.

    Args:
      raw: the file, which is an error if it begins as no text does.
      part: of a plain file, or a compressed file as a whole.
      source: how it is read.
      ends: where documents end.
      begin: where the part's first document begins, if that is known; it then ends with one.

    Raises:
      DataError: the file is damaged, no text, or has a blank line without an end.
    """
    longest, is_packed = source.max_document_bytes, is_compressed(part.path)
    chunks = Chunks(raw, part, source.block_bytes, go_on=begin is None)
    place = part.start if begin is not None else max(part.start - 1, 0)  # of the next chunk
    began = place if begin is None else begin  # the document that has not ended
    is_passing = begin is None and part.start > 0  # over the rest of a document
    stop = part.stop - 1 if part.stop < part.size else None  # no document begins behind it
    pieces: list[bytes] = []  # of the document
    data: bytes | memoryview | None = None
    source_bytes = 0
    for chunk in chunks:
        if not place:
            refuse_foreign(chunk[:PEEKED], part.path, unpacked=is_packed)
        after = place + len(chunk)
        if begin is not None and place < begin:  # a header
            chunk, place = chunk[begin - place :], min(begin, after)
        inside = after - place if is_packed else min(after, part.stop) - max(place, part.start)
        source_bytes += max(inside, 0)
        ends.scan(chunk, place)
        if is_passing:
            found = ends.first(began)
            if found is None and (stop is None or after <= stop or _is_before(ends.begun, stop)):
                place = after
                continue
            if found is None or (stop is not None and found[0] >= stop):
                break
            is_passing, began = False, found[1]
        final = None if stop is None else ends.first(stop)
        end = final[1] if final else ends.last()
        rest = max(began - place, 0)
        if end is not None and end > began:
            data = memoryview(chunk)[rest : end - place]
            data = b"".join([*pieces, data]) if pieces else data
            if final:
                break
            if stop is None or after <= stop:
                yield Run(data, began, None, source_bytes, chunks.new_bytes())
                source_bytes = 0
            else:  # all of the part is read, and counts for its last document
                yield Run(data, began)
            began, rest, pieces, data = end, end - place, [], None
        pieces.append(chunk[rest:])
        place = after
        if place - began > longest + _SLACK:
            text_start, text_stop = ends.find_text(b"".join(pieces), began)
            if text_stop - text_start > longest:
                long = began + text_start
                yield Run(None, began, long, source_bytes, chunks.new_bytes())
                source_bytes, pieces, is_passing = 0, [], True
            elif place - began > 2 * longest + _MUCH:
                raise DataError(
                    f"{part.path}: more than {longest:,} bytes of white space lie behind byte "
                    f"{began:,}: take them out"
                )
    else:
        data = None if is_passing else b"".join(pieces)
    yield Run(data, began, None, source_bytes, chunks.new_bytes(), chunks.digests())


def _is_before(place: int | None, stop: int) -> bool:
    return place is not None and place < stop
