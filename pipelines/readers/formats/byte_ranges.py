"""Parts of text and JSON Lines files -> documents, whatever the cut of a file into parts.

Held at once are a part and the document that goes on beyond its end; of that one no more than a
document may have. The rest of a longer one is passed over.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

import xxhash

from pipelines.readers.documents import BOM, BOUNDARIES, Documents, Role, no_documents, too_long
from pipelines.readers.stored import (
    PEEKED,
    Chunks,
    Part,
    is_compressed,
    part_digest,
    refuse_foreign,
)
from schemas.errors import DataError

_OPEN_BLANK = re.compile(rb"\n[ \t\r\v\f]*\Z")  # a paragraph's boundary may go on after the window
_BLANK_LINES = re.compile(rb"(?:[ \t\r\v\f]*\n)*")
_WHITE_SPACE = b" \t\r\v\f\n"
_LARGEST_STEP = 16 << 20


@dataclass(frozen=True)
class Parser:
    """What makes documents of bytes.

    Attributes:
      kind: what a document is: a key of BOUNDARIES.
      parse: makes documents of whole ones and their offset in the file; refuses those that are
        longer than `longest`.
      roles: of the documents.
      longest: bytes of a document, without what ends it.
    """

    kind: str
    parse: Callable[[bytes | memoryview, int], Documents]
    roles: tuple[Role, ...]
    longest: int

    def find_end(self, data: bytes | bytearray, start: int = 0) -> int | None:
        """Where the first document ends whose end begins at `start` or later."""
        match = BOUNDARIES[self.kind].search(data, start)
        return match.end() if match else None

    def last_end(self, data: bytes | bytearray, start: int = 0) -> int:
        """Where the last whole document after `start` ends; `start` if there is none."""
        if self.kind == "line":
            return max(data.rfind(b"\n") + 1, start)
        matches = BOUNDARIES[self.kind].finditer(data, start)
        return max((match.end() for match in matches), default=start)

    def is_too_long(self, data: bytes | bytearray, start: int) -> bool:
        """Whether the document that begins at `start`, and does not end in `data`, is refused.

        `parse` would refuse it too: it measures without a line's end, a byte order mark, and the
        blank lines around a paragraph. (White space alone is given up on at twice the length.)
        """
        length = len(data) - start
        if length <= self.longest + len(BOM) + 1:
            return False
        if self.kind != "paragraph" or length > 2 * self.longest + _LARGEST_STEP:
            return True
        return len(_cut(data, start, len(data)).strip(_WHITE_SPACE)) > self.longest

    def refuse(self, data: bytes | bytearray, start: int, path: str, place: int) -> Documents:
        """The document that begins at `start` of `data`, which is at `place` of a file."""
        source_bytes = len(data) - start
        if self.kind == "paragraph" and (blank := _BLANK_LINES.match(data, start)):
            start = blank.end()
        elif place + start == 0 and data.startswith(BOM):
            start = len(BOM)
        rejects = (too_long(path, place + start, self.longest),)
        return replace(no_documents(self.roles), rejects=rejects, source_bytes=source_bytes)


def read_bytes(raw: BinaryIO, part: Part, parser: Parser, chunk_bytes: int) -> Iterator[Documents]:
    """The documents of a part; the last piece carries the digest of its stored bytes.

    A file that begins as no text does is an error.

    Args:
      raw: the file.
      part: of a plain file, or a compressed file as a whole.
      parser: makes documents.
      chunk_bytes: read at once from a compressed file.
    """
    if is_compressed(part.path):
        return _read_compressed(Chunks(raw, part, chunk_bytes), part.path, parser)
    if parser.kind == "file" and part.size > parser.longest + len(BOM):
        return _refuse_file(raw, part, parser)
    return _read_range(raw, part, parser)


def _read_compressed(chunks: Chunks, path: str, parser: Parser) -> Iterator[Documents]:
    data = bytearray()  # since the last document's end
    place = 0  # of the end of `data`
    passing = False  # over the rest of a refused document
    for chunk in chunks:
        if not place:
            refuse_foreign(chunk[:PEEKED], path, unpacked=True)
        known = len(data)
        data += chunk
        place += len(chunk)
        if passing:
            end = parser.find_end(data)
            passed = len(data) if end is None else end
            yield replace(no_documents(parser.roles), source_bytes=passed - known)
            data[:passed] = _open_end(data) if end is None else b""
            if end is None:
                continue
            passing = False
        if b"\n" in chunk and (stop := parser.last_end(data)):
            documents = parser.parse(_cut(data, 0, stop), place - len(data))
            yield replace(documents, stored_bytes=chunks.new_bytes())
            del data[:stop]
        if parser.is_too_long(data, 0):
            yield parser.refuse(data, 0, path, place - len(data))
            passing = True
            data[:] = _open_end(data)
    nothing = no_documents(parser.roles)
    last = nothing if passing else parser.parse(bytes(data), place - len(data))
    yield replace(last, stored_bytes=chunks.new_bytes(), digests=chunks.digests())


def _open_end(data: bytes | bytearray) -> bytes:
    """What of passed bytes may be the start of a document's end."""
    return b"\n" if _OPEN_BLANK.search(data) else b""


def _cut(data: bytes | bytearray, start: int, stop: int) -> bytes:
    with memoryview(data) as view:  # a slice of the array itself would be a second copy
        return bytes(view[start:stop])


def _refuse_file(raw: BinaryIO, part: Part, parser: Parser) -> Iterator[Documents]:
    """A file that is one document, and too long for one: it is hashed and passed over."""
    head = raw.read(PEEKED)
    refuse_foreign(head, part.path, unpacked=False)
    documents = parser.refuse(bytearray(head[: len(BOM)]), 0, part.path, 0)
    digests = (part_digest(raw, part),)
    yield replace(documents, source_bytes=part.size, stored_bytes=part.bytes, digests=digests)


def _read_range(raw: BinaryIO, part: Part, parser: Parser) -> Iterator[Documents]:
    """The documents of a range of a plain file.

    Let f(p) be the first boundary whose match starts at p - 1 or later (f(0) = 0, and the file's
    end if there is none). A range is read from f(start) to f(stop), so ranges tile any file: what
    one leaves out another takes, whatever the cut. Where a document turns out too long its range
    ends; the next one finds for itself where it begins.
    """
    window = _Window(raw, part)
    digests = ((part.path, part.size, part.start, window.digest),)
    if not part.start:
        refuse_foreign(bytes(window.data[:PEEKED]), part.path, unpacked=False)
    start, stop, seen = 0, part.size, 0
    if part.start:
        end = parser.find_end(window.data)
        if end is None and (blank := _OPEN_BLANK.search(window.data)):
            # Whether it is no match of f(stop), as it starts before.
            seen = int(window.place + blank.start() < part.stop - 1)
            end = window.end_of_blank(parser)
        start = part.size if end is None else window.place + end
    refused = None
    if part.stop < part.size and start < part.size:
        search_from = max(part.stop - 1 - window.place, seen)
        while (end := parser.find_end(window.data, search_from)) is None and window.is_open:
            data = window.data
            if window.place + len(data) - start > parser.longest:
                begun = parser.last_end(data, start - window.place)
                # A blank line that is still open may be its end, and lie before the range's.
                is_open = parser.kind == "paragraph" and _OPEN_BLANK.search(data)
                if parser.is_too_long(data, begun) and not is_open:
                    refused = parser.refuse(data, begun, part.path, window.place)
                    end = begun
                    break
                if len(data) - begun > 3 * parser.longest + _LARGEST_STEP:
                    raise DataError(
                        f"{part.path}: more than {parser.longest:,} bytes of white space lie "
                        f"behind byte {window.place + begun:,}: take them out"
                    )
            search_from = max(data.rfind(b"\n"), search_from)
            window.go_on()
        stop = part.size if end is None else window.place + end
    whole = memoryview(window.data)[start - window.place : stop - window.place]
    documents = parser.parse(whole, start)
    if refused:
        yield replace(documents, source_bytes=0)
        documents = refused
    # Its own bytes: the parts of a file add up, whichever range has a document that is cut.
    size = part.bytes
    yield replace(documents, source_bytes=size, stored_bytes=size, digests=digests)


class _Window:
    """Bytes of a file, from the one before a part on; those far beyond it as they are asked for.

    Attributes:
      data: what is held; parsed without a copy.
      place: of it in the file.
      digest: xxh3_128 of the part.
    """

    def __init__(self, raw: BinaryIO, part: Part):
        self._raw, self._part = raw, part
        # A little more, in which the last document mostly ends.
        self._step = min(part.bytes // 16 + 1, 1 << 16)
        self.place = max(part.start - 1, 0)
        raw.seek(self.place)
        self.data: bytes | bytearray = raw.read(part.stop - self.place + self._step)
        in_part = memoryview(self.data)[part.start - self.place : part.stop - self.place]
        if len(in_part) < part.bytes:
            raise self._shorter()
        self.digest = xxhash.xxh3_128(in_part).hexdigest()

    @property
    def is_open(self) -> bool:
        """Whether bytes of the file are still to come."""
        return self.place + len(self.data) < self._part.size

    def go_on(self) -> None:
        """Reads more, of which there must be some."""
        more = self._raw.read(self._step)
        if not more:
            raise self._shorter()
        if isinstance(self.data, bytes):
            self.data = bytearray(self.data)
        self.data += more
        # It doubles, so that a document of any length is read in linear time.
        self._step = min(2 * self._step, _LARGEST_STEP)

    def end_of_blank(self, parser: Parser) -> int | None:
        """Where the line that is blank so far ends, if it is blank to a newline.

        Of the data, its own newline and what may follow are kept, and not the blanks between them.
        """
        end = None
        while end is None and self.is_open and _OPEN_BLANK.search(self.data):
            self.place += len(self.data) - 1
            self.data = bytearray(b"\n")
            self.go_on()
            end = parser.find_end(self.data)
            if not self.data[: end or len(self.data)].isspace():
                return None
        return end

    def _shorter(self) -> DataError:
        return DataError(
            f"{self._part.path} became shorter during the run: let inputs rest, and run again"
        )
