"""Inputs -> blocks -> documents. Blocks are planned from names and sizes, and read in workers.

A block is the unit of reading: byte ranges of about 16 MiB of plain text, or one compressed file,
which is then streamed. A document belongs to the range it starts in, so any cut of a file into
ranges gives the same documents. Documents come out columnar, as Arrow arrays.
"""

import bz2
import glob
import gzip
import io
import lzma
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import pyarrow as pa
import xxhash

from pipelines.documents import BOUNDARIES, TEXT_ROLES, Documents, Role, text_documents
from pipelines.formats.json_lines import json_documents
from schemas.errors import DataError, UsageError
from schemas.sidecar import InputFile, Inputs

BLOCK_BYTES = 16 << 20
DOCUMENTS = ("line", "paragraph", "file")
_DECOMPRESSORS = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    # Arrow's stream reads on over frames and, unlike zstandard's reader, refuses a truncated one.
    ".zst": lambda raw: pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"),
}
_OPEN_BLANK = re.compile(rb"\n[ \t\r\v\f]*\Z")  # a paragraph's boundary may go on after the window
_JSON_LINES = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class Source:
    """What to read and what a document is.

    Attributes:
      patterns: paths or globs (`**` matches folders), local or of a store that Beam knows.
      document: in text files, a document: a line, a paragraph (blank lines between) or a file.
      roles: what to take of each document; the first is a string that no document lacks.
      block_bytes: bytes of a block; changes speed and memory, never the documents.
    """

    patterns: tuple[str, ...]
    document: str = "line"
    roles: tuple[Role, ...] = TEXT_ROLES
    block_bytes: int = BLOCK_BYTES

    def __post_init__(self) -> None:
        """Refuses what cannot be read."""
        if not self.patterns:
            raise UsageError("no input: give --input=PATH, more than once if need be")
        if self.document not in DOCUMENTS:
            raise UsageError(f"--document={self.document}: one of {', '.join(DOCUMENTS)}")
        for role in self.roles:
            if not role.field:
                raise UsageError(
                    f"--{role.name}_field is empty: name the field that holds the {role.name}"
                )
        if self.block_bytes < 1:
            raise UsageError(f"--block_bytes={self.block_bytes}: at least 1")


@dataclass(frozen=True)
class Part:
    """Bytes `start` to `stop` of a file of `size` bytes."""

    path: str
    size: int
    start: int
    stop: int


@dataclass(frozen=True)
class Block:
    """Parts that are read together."""

    index: int
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        """Bytes on disk."""
        return sum(part.stop - part.start for part in self.parts)


def is_remote(path: str) -> bool:
    """Whether a path names a store (gs://...) instead of a local file."""
    return "://" in path


def _extension(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _is_compressed(path: str) -> bool:
    return _extension(path) in _DECOMPRESSORS


def _is_json_lines(path: str) -> bool:
    stem, extension = os.path.splitext(path)
    return (_extension(stem) if _is_compressed(path) else extension.lower()) in _JSON_LINES


def _match(pattern: str) -> list[tuple[str, int]]:
    """Paths and sizes of the files that a pattern names, sorted."""
    if is_remote(pattern):
        from apache_beam.io.filesystems import FileSystems

        [result] = FileSystems.match([pattern])
        return sorted((found.path, found.size_in_bytes) for found in result.metadata_list)
    # A name that exists is meant as it stands, even if it holds [ or *.
    paths = [pattern] if os.path.exists(pattern) else glob.glob(pattern, recursive=True)
    return sorted((path, os.path.getsize(path)) for path in paths if os.path.isfile(path))


def match_files(source: Source) -> list[tuple[str, int]]:
    """All input files with their sizes, sorted by path; a file named twice counts once.

    Raises:
      DataError: a pattern matches nothing, or all files are empty.
    """
    files: dict[str, int] = {}
    for pattern in source.patterns:
        found = _match(pattern)
        if not found:
            hint = f"; it is a directory: try {pattern}/*" if os.path.isdir(pattern) else ""
            raise DataError(f"no file matches --input={pattern}{hint}")
        files.update(found)
    if not sum(files.values()):
        raise DataError(
            f"all {len(files)} input files are empty, the first is {min(files)}: there is no text"
        )
    return sorted(files.items())


def plan_blocks(source: Source) -> list[Block]:
    """Cuts the inputs into blocks: large files into ranges, small files put together.

    Raises:
      DataError: as `match_files`.
    """
    blocks: list[Block] = []
    pending: list[Part] = []

    def close() -> None:
        if pending:
            blocks.append(Block(len(blocks), tuple(pending)))
            pending.clear()

    for path, size in match_files(source):
        whole_document = source.document == "file" and not _is_json_lines(path)
        step = size if whole_document or _is_compressed(path) else source.block_bytes
        for start in range(0, size, step or 1):
            part = Part(path, size, start, min(start + step, size))
            if sum(p.stop - p.start for p in pending) + part.stop - part.start > source.block_bytes:
                close()
            pending.append(part)
    close()
    return blocks


class _HashingFile(io.RawIOBase):
    """Passes reads through and hashes what was read."""

    def __init__(self, raw: BinaryIO):
        self._raw = raw
        self.hash = xxhash.xxh3_128()
        self._new_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._raw.read(len(buffer))
        self.hash.update(data)
        self._new_bytes += len(data)
        buffer[: len(data)] = data
        return len(data)

    def new_bytes(self) -> int:
        """Bytes read since the last call."""
        new, self._new_bytes = self._new_bytes, 0
        return new


@contextmanager
def _open(path: str) -> Iterator[BinaryIO]:
    """Opens a file for reading its bytes as they are stored."""
    try:
        if is_remote(path):
            from apache_beam.io.filesystem import CompressionTypes
            from apache_beam.io.filesystems import FileSystems

            file = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
        else:
            file = open(path, "rb")
    except OSError as error:
        raise DataError(f"cannot open {path}: {error.strerror or error}") from error
    with file:
        yield file


def read_block(block: Block, source: Source) -> Iterator[Documents]:
    """Reads a block's documents, in pieces of about `source.block_bytes` of text.

    The last piece of each part carries the digest of the part's bytes as they are stored.

    Raises:
      DataError: a file cannot be opened, or a compressed one is truncated or damaged.
    """
    for part in block.parts:
        with _open(part.path) as raw:
            read = _read_compressed if _is_compressed(part.path) else _read_range
            yield from read(raw, part, source)


def _documents(data: bytes, part: Part, offset: int, source: Source) -> Documents:
    if _is_json_lines(part.path):
        return json_documents(data, source.roles, part.path, offset)
    return text_documents(data, source.document, part.path, offset, roles=source.roles)


def _boundary(part: Part, source: Source) -> re.Pattern[bytes]:
    return BOUNDARIES["line" if _is_json_lines(part.path) else source.document]


def _read_compressed(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    hashing = _HashingFile(raw)
    boundary = _boundary(part, source)
    pieces: list[bytes] = []  # since the last boundary
    offset = 0
    try:
        with _DECOMPRESSORS[_extension(part.path)](io.BufferedReader(hashing, 1 << 20)) as stream:
            while chunk := stream.read(source.block_bytes):
                pieces.append(chunk)
                if b"\n" not in chunk:  # no boundary: do not search the same bytes again
                    continue
                data = b"".join(pieces)
                end = max((match.end() for match in boundary.finditer(data)), default=0)
                if end:
                    documents = _documents(data[:end], part, offset, source)
                    yield replace(documents, stored_bytes=hashing.new_bytes())
                pieces, offset = [data[end:]], offset + end
    except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError) as error:
        raise DataError(
            f"{part.path} is truncated or damaged ({error}): get the file again. A run never "
            "publishes a part of a file"
        ) from error
    while hashing.read(1 << 20):  # what a decompressor leaves unread belongs to the digest too
        pass
    last = _documents(b"".join(pieces), part, offset, source)
    digests = ((part.path, part.size, 0, hashing.hash.hexdigest()),)
    yield replace(last, stored_bytes=hashing.new_bytes(), digests=digests)


def _read_range(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The documents of a range of a plain file.

    Let f(p) be the first boundary whose match starts at p - 1 or later (f(0) = 0, and the file's
    end if there is none). A range is read from f(start) to f(stop), so ranges tile any file: what
    one leaves out another takes, whatever the cut.
    """
    first = max(part.start - 1, 0)
    raw.seek(first)
    data = raw.read(part.stop - first)
    if len(data) < part.stop - first:
        raise DataError(
            f"{part.path} is shorter than the {part.size:,} bytes it had when the run began: let "
            "inputs rest during a run, and run again"
        )
    digest = xxhash.xxh3_128(memoryview(data)[part.start - first :]).hexdigest()
    boundary = _boundary(part, source)
    end = part.size - first
    start, stop = 0, end
    step = 1 << 16  # doubles, so that a document of any length is read in linear time
    if part.start:
        while (match := boundary.search(data)) is None and _OPEN_BLANK.search(data):
            if len(data) == end:
                break
            data, step = data + _more(raw, step), step * 2
        start = match.end() if match else end
    if part.stop < part.size and start < end:
        search_from = part.stop - 1 - first
        while (match := boundary.search(data, search_from)) is None and len(data) < end:
            search_from = max(data.rfind(b"\n"), search_from)
            data, step = data + _more(raw, step), step * 2
        stop = match.end() if match else end
    documents = _documents(data[start:stop], part, first + start, source)
    digests = ((part.path, part.size, part.start, digest),)
    yield replace(documents, stored_bytes=part.stop - part.start, digests=digests)


def _more(raw: BinaryIO, size: int) -> bytes:
    """The next bytes of a file that is known to have some."""
    more = raw.read(size)
    if not more:
        raise DataError(f"{raw.name} became shorter during the run: let inputs rest, and run again")
    return more


def file_digests(digests: Iterable[tuple[str, int, int, str]]) -> Inputs:
    """Puts the digests of ranges together, a file each."""
    ranges = defaultdict(list)
    for path, size, _, digest in sorted(digests):
        ranges[path, size].append(digest)
    files = (
        InputFile(path, size, xxhash.xxh3_128_hexdigest("".join(parts).encode()))
        for (path, size), parts in ranges.items()
    )
    return Inputs(tuple(sorted(files, key=lambda file: file.path)))


def hash_inputs(blocks: list[Block]) -> Inputs:
    """Reads all inputs and hashes them as a run over the same blocks would."""

    def hash_part(part: Part) -> tuple[str, int, int, str]:
        digest = xxhash.xxh3_128()
        with _open(part.path) as raw:
            raw.seek(part.start)
            left = part.stop - part.start
            while chunk := raw.read(min(left, 1 << 20)):
                digest.update(chunk)
                left -= len(chunk)
        return part.path, part.size, part.start, digest.hexdigest()

    parts = [part for block in blocks for part in block.parts]
    with ThreadPoolExecutor() as threads:
        return file_digests(threads.map(hash_part, parts))
