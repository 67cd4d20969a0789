"""Parts of text and JSON Lines files -> documents, whatever the cut of a file into parts. Pure."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import BinaryIO

import xxhash

from pipelines.documents import BOUNDARIES, Documents
from pipelines.stored import Chunks, Part, is_compressed
from schemas.errors import DataError

_OPEN_BLANK = re.compile(rb"\n[ \t\r\v\f]*\Z")  # a paragraph's boundary may go on after the window

Parse = Callable[[bytes, int], Documents]  # whole documents and their offset in the file


def read_bytes(
    raw: BinaryIO, part: Part, kind: str, parse: Parse, chunk_bytes: int
) -> Iterator[Documents]:
    """The documents of a part; the last piece carries the digest of its stored bytes.

    Args:
      raw: the file.
      part: of a plain file, or a compressed file as a whole.
      kind: what a document is: a key of BOUNDARIES.
      parse: makes documents of whole ones.
      chunk_bytes: read at once from a compressed file.
    """
    if is_compressed(part.path):
        return _read_compressed(Chunks(raw, part, chunk_bytes), BOUNDARIES[kind], parse)
    return _read_range(raw, part, BOUNDARIES[kind], parse)


def _read_compressed(
    chunks: Chunks, boundary: re.Pattern[bytes], parse: Parse
) -> Iterator[Documents]:
    pieces: list[bytes] = []  # since the last boundary
    offset = 0
    for chunk in chunks:
        pieces.append(chunk)
        if b"\n" not in chunk:  # no boundary: do not search the same bytes again
            continue
        data = b"".join(pieces)
        end = max((match.end() for match in boundary.finditer(data)), default=0)
        if end:
            yield replace(parse(data[:end], offset), stored_bytes=chunks.new_bytes())
        pieces, offset = [data[end:]], offset + end
    last = parse(b"".join(pieces), offset)
    yield replace(last, stored_bytes=chunks.new_bytes(), digests=chunks.digests())


def _read_range(
    raw: BinaryIO, part: Part, boundary: re.Pattern[bytes], parse: Parse
) -> Iterator[Documents]:
    """The documents of a range of a plain file.

    Let f(p) be the first boundary whose match starts at p - 1 or later (f(0) = 0, and the file's
    end if there is none). A range is read from f(start) to f(stop), so ranges tile any file: what
    one leaves out another takes, whatever the cut.
    """
    first = max(part.start - 1, 0)
    raw.seek(first)
    data = raw.read(part.stop - first)
    if len(data) < part.stop - first:
        raise _shorter(part)
    digest = xxhash.xxh3_128(memoryview(data)[part.start - first :]).hexdigest()
    end = part.size - first
    start, stop = 0, end
    step = 1 << 16  # doubles, so that a document of any length is read in linear time
    if part.start:
        while (match := boundary.search(data)) is None and _OPEN_BLANK.search(data):
            if len(data) == end:
                break
            data, step = data + _more(raw, part, step), step * 2
        start = match.end() if match else end
    if part.stop < part.size and start < end:
        search_from = part.stop - 1 - first
        while (match := boundary.search(data, search_from)) is None and len(data) < end:
            search_from = max(data.rfind(b"\n"), search_from)
            data, step = data + _more(raw, part, step), step * 2
        stop = match.end() if match else end
    documents = parse(data[start:stop], first + start)
    digests = ((part.path, part.size, part.start, digest),)
    yield replace(documents, stored_bytes=part.bytes, digests=digests)


def _more(raw: BinaryIO, part: Part, size: int) -> bytes:
    """The next bytes of a file that is known to have some."""
    more = raw.read(size)
    if not more:
        raise _shorter(part)
    return more


def _shorter(part: Part) -> DataError:
    return DataError(f"{part.path} became shorter during the run: let inputs rest, and run again")
