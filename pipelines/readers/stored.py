"""Reads stored files in parts: detects foreign formats, and hashes stored bytes."""

import hashlib
import io
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import xxhash

from textmill.pipelines.readers.compression import (
    PACKINGS,
    TOO_MUCH_MEMORY,
    UNPACKING_FAILS,
    extension,
    find_compression,
    is_compressed,
)
from textmill.pipelines.readers.encodings import ENCODED, find_utf_16
from textmill.schemas.errors import DataError, flag
from textmill.schemas.files.store import SeekableFile, is_url
from textmill.schemas.format.manifest import changed
from textmill.schemas.format.metadata import InputFile, Inputs

_READ_BYTES = 1 << 20
_KEPT_BYTES = 64 << 20  # of a part, in memory


PEEKED = 512  # first bytes of a file, enough to detect its format
_OTHERS = (
    (b"PK\x03\x04", "a zip archive", "unpack it"),
    (b"PAR1", "a Parquet file", f"give {flag('input_format', 'parquet')}, or name it .parquet"),
    (b"ARROW1\0\0", "an Arrow file", f"give {flag('input_format', 'arrow')}, or name it .arrow"),
    *(
        (
            b"WARC/%b%b" % (version, end),
            "a WARC file",
            f"give {flag('input_format', 'warc')}, or name it .warc",
        )
        for version in (b"0.17", b"0.18", b"1.0", b"1.1")
        for end in (b"\r\n", b"\n")
    ),
    (b"%PDF-", "a PDF", "extract its text"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it"),
    (b"SQLite format 3\0", "an SQLite database", "export its text"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "export its text"),
)
_LARGEST_STEP = 16 << 20  # bytes read at once beyond a part
_MARK_OF_TAR = slice(257, 262)
_ADDS_UP = "+"  # prefix of digests of spans, whose sum does not depend on the cut into parts

Digest = tuple[str, int, int, str]  # path, file size, start, xxh3_128


@dataclass(frozen=True)
class Part:
    """Bytes `start` to `stop` of a file of `size` bytes.

    Attributes:
      path: path of the file.
      size: size of the file.
      start: first byte of the part; the parts of a file tile it.
      stop: the byte after the last.
      format: input format, a key of FORMATS.
      record: number of the part's first record in the file, in formats with records.
      group: number of the row group, in Parquet.
      spans: the byte ranges to read and hash; () for all from start to stop.
      classes: names of class numbers by field, if they differ from those in the file.
      also_hashed: what documents get from outside the file, such as a split; part of its digest.
      input: the --input that names the file; the last one if there are several.
      sha256: sha256 of the whole file in the manifest of a corpus; "" for other files.
      doubt: a sign that the file has a different form than it is read in, with the remedy; with the
        last part of a file; "" for none.
    """

    path: str
    size: int
    start: int
    stop: int
    format: str = "text"
    record: int = 0
    group: int = 0
    spans: tuple[tuple[int, int], ...] = ()
    classes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    also_hashed: str = ""
    input: str = field(default="", compare=False)
    sha256: str = ""
    doubt: str = ""

    @property
    def bytes(self) -> int:
        """Stored bytes of the part."""
        return self.stop - self.start


def refuse_foreign(content: bytes, path: str) -> None:
    """Checks that a text file, of which `content` is the first PEEKED bytes or more, is text.

    Raises:
      DataError: it begins like a file of a different format; names the format and the remedy.
    """
    head = content[:PEEKED]
    if ending := find_compression(head):
        remedy = (
            "it was compressed twice; unpack it once"
            if is_compressed(path)
            else f"give it a name that ends in {ending}"
        )
        raise DataError(f"{path} is {PACKINGS[ending].name} data, not text: {remedy}")
    for mark, name, remedy in _OTHERS:
        if head.startswith(mark):
            raise DataError(f"{path} is {name}, not text: {remedy}")
    if head[_MARK_OF_TAR] == b"ustar":
        raise DataError(f"{path} is a tar archive, not text: unpack it")
    # After the marks: a binary file may have NULs like UTF-16.
    names = [name for mark, name in ENCODED if head.startswith(mark)]
    if name := next(iter(names), "") or find_utf_16(head):
        raise DataError(
            f"{path} is {name}, not UTF-8: convert it, iconv -f {name} -t UTF-8 FILE > NEW_FILE"
        )


class _HashingFile(io.RawIOBase):
    """Reads up to `left` bytes, and adds them to the hash of `chunks`."""

    def __init__(self, raw: "_WholeFile", left: int, chunks: "Chunks"):
        self._raw, self._left, self._chunks = raw, left, chunks

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._raw.read(min(len(buffer), self._left))
        self._chunks.add(data)
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)


class Chunks:
    """The decompressed content of a part, in chunks; hashes the stored bytes while reading."""

    def __init__(self, raw: BinaryIO, part: Part, chunk_bytes: int, *, go_on: bool = False):
        """`go_on` reads from one byte before the part to the end of the file, if uncompressed.

        The last document of a part may end beyond the part.
        """
        self._raw, self._part, self._chunk_bytes = raw, part, chunk_bytes
        self._goes_on = go_on
        self._whole = _WholeFile(raw, part)
        self._hash = _new_hash(part)
        self._new_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yields chunks of about `chunk_bytes`.

        Raises:
          DataError: the file is truncated or damaged.
        """
        return self._unpack() if is_compressed(self._part.path) else self._read()

    def _read(self) -> Iterator[bytes]:
        part = self._part
        place, stop = part.start, part.stop
        beyond = 0  # bytes to read at once beyond the part
        if self._goes_on:
            place, stop = max(place - 1, 0), part.size
            beyond = min(part.bytes // 16 + 1, 1 << 16)  # most last documents end within these
        self._raw.seek(place)
        while place < stop:
            size = min(max(part.stop - place, 0), self._chunk_bytes + 1) + beyond
            chunk = self._raw.read(min(size, stop - place))
            if not chunk:
                raise _shorter(part.path)
            begin, end = max(part.start - place, 0), max(part.stop - place, 0)
            self.add(memoryview(chunk)[begin:end])
            place += len(chunk)
            yield chunk
            if place > part.stop:  # doubling reads a document of any length in linear time
                beyond = min(2 * beyond, _LARGEST_STEP)

    def _unpack(self) -> Iterator[bytes]:
        part = self._part
        self._whole.seek(part.start)
        hashing = _HashingFile(self._whole, part.bytes, self)
        try:
            opened = io.BufferedReader(hashing, _READ_BYTES)
            with PACKINGS[extension(part.path)].unpack(opened) as stream:
                while chunk := stream.read(self._chunk_bytes):
                    yield chunk
        except UNPACKING_FAILS as error:
            self._whole.check()
            self._refuse_misnamed(error)
            if TOO_MUCH_MEMORY in str(error):
                raise DataError(
                    f"{part.path} has a long window, which takes up to 2 GiB of memory: install "
                    "the package zstandard, or unpack it with zstd -d --long=31; nothing was "
                    "published"
                ) from error
            raise DataError(
                f"{part.path} is truncated or damaged ({error}): get the file again; nothing was "
                "published"
            ) from error
        while hashing.read(_READ_BYTES):  # hashes bytes that the decompressor did not read
            pass
        self._whole.check()

    def _refuse_misnamed(self, error: Exception) -> None:
        """Raises DataError if the file does not have the compression that its name implies."""
        self._raw.seek(self._part.start)
        end = extension(self._part.path)
        head = self._raw.read(PEEKED)
        if not PACKINGS[end].begins(head):
            raise DataError(
                f"{self._part.path} is not {PACKINGS[end].name} data, as its extension {end} "
                "implies: rename it"
            ) from error

    def add(self, data: bytes | memoryview) -> None:
        """Adds stored bytes of the part to the hash."""
        self._hash.update(data)
        self._new_bytes += len(data)

    def new_bytes(self) -> int:
        """Number of stored bytes read since the last call."""
        new, self._new_bytes = self._new_bytes, 0
        return new

    def digests(self) -> tuple[Digest]:
        """The digest of the whole part, after it was read."""
        part = self._part
        return ((part.path, part.size, part.start, self._hash.hexdigest()),)


def _new_hash(part: Part) -> xxhash.xxh3_128:
    """A hash for the bytes of a part, with `also_hashed` in the first part of a file."""
    return xxhash.xxh3_128(b"" if part.start else part.also_hashed.encode())


def part_digest(
    raw: "BinaryIO | _WholeFile", part: Part, keep: Callable[[bytes], object] = lambda data: None
) -> Digest:
    """Reads a part's stored bytes once and hashes them; `keep` gets them too, span by span."""
    if not part.spans:
        digest = _new_hash(part)
        for data in _read_range(raw, part.path, part.start, part.stop):
            digest.update(data)
            keep(data)
        return part.path, part.size, part.start, digest.hexdigest()
    total = 0
    for start, stop in part.spans:
        span = xxhash.xxh3_128(seed=start)
        for data in _read_range(raw, part.path, start, stop):
            span.update(data)
            keep(data)
        total += span.intdigest()
    if part.classes and not part.start:
        total += xxhash.xxh3_128_intdigest(repr(part.classes).encode())
    if part.also_hashed and not part.start:
        total += _new_hash(part).intdigest()
    return part.path, part.size, part.start, f"{_ADDS_UP}{total % (1 << 128):032x}"


@contextmanager
def read_once(
    raw: BinaryIO, part: Part, *, copies_local: bool = True
) -> Iterator[tuple[BinaryIO, Digest]]:
    """Reads and hashes a part, and opens a file that has the very bytes that were hashed.

    They are kept in memory, or in a temporary file if they are many. A local file is read again
    instead if they are many, or without `copies_local`.

    Raises:
      DataError: the file of a corpus has a different sha256 than its manifest lists.
    """
    spans = part.spans or ((part.start, part.stop),)
    whole = _WholeFile(raw, part)
    is_large = sum(stop - start for start, stop in spans) > _KEPT_BYTES
    if not is_url(part.path) and (is_large or not copies_local):
        digest = part_digest(whole, part)
        whole.check()
        yield raw, digest
        return
    with tempfile.TemporaryFile() if is_large else io.BytesIO() as kept:
        digest = part_digest(whole, part, kept.write)
        whole.check()
        yield io.BufferedReader(_KeptSpans(raw, spans, kept)), digest


class _KeptSpans(SeekableFile):
    """A file, with the bytes of some spans as they were when they were read before."""

    def __init__(self, raw: BinaryIO, spans: tuple[tuple[int, int], ...], kept: Any):
        super().__init__(raw.seek(0, os.SEEK_END))
        self._raw: Any = raw
        self._spans, self._kept = spans, kept

    def readinto(self, buffer: Any) -> int:
        file, place, stop, before = self._raw, self._at, self._size, 0
        for first, last in self._spans:
            if first <= self._at < last:
                file, place, stop = self._kept, before + self._at - first, last
                break
            if first > self._at:
                stop = min(stop, first)
            before += last - first
        file.seek(place)
        size = file.readinto(memoryview(buffer)[: max(0, stop - self._at)])
        self._at += size
        return size


class _WholeFile:
    """Reads a file forwards; hashes all of it if the part is the first of a corpus's file."""

    def __init__(self, raw: BinaryIO, part: Part):
        self._raw, self._part, self._place = raw, part, 0
        self._hash = hashlib.sha256() if part.sha256 and not part.start else None
        raw.seek(0)

    def seek(self, place: int) -> None:
        """Goes to a place; reads what is before it if it is to be hashed."""
        if self._hash is None:
            self._raw.seek(place)
        while self._hash is not None and self._place < place:
            if not self.read(min(place - self._place, _READ_BYTES)):
                raise _shorter(self._part.path)

    def read(self, size: int) -> bytes:
        """Reads up to `size` bytes."""
        data = self._raw.read(size)
        if self._hash is not None:
            self._hash.update(data)
            self._place += len(data)
        return data

    def check(self) -> None:
        """Reads the rest, and compares the sha256 with the manifest of the corpus.

        Raises:
          DataError: they differ.
        """
        self.seek(self._part.size)
        if self._hash is not None and self._hash.hexdigest() != self._part.sha256:
            raise changed(self._part.path)


def _read_range(raw: "BinaryIO | _WholeFile", path: str, start: int, stop: int) -> Iterator[bytes]:
    raw.seek(start)
    while start < stop:
        data = raw.read(min(stop - start, _READ_BYTES))
        if not data:
            raise _shorter(path)
        start += len(data)
        yield data


def _shorter(path: str) -> DataError:
    return DataError(
        f"{path} became shorter during the run: do not change inputs during a run; run again"
    )


def file_digests(digests: Iterable[Digest]) -> Inputs:
    """Joins the digests of parts into one for each file."""
    parts_of = defaultdict(list)
    for path, size, _, digest in sorted(digests):
        parts_of[path, size].append(digest)
    files = []
    for (path, size), parts in parts_of.items():
        together = "".join(parts)
        if together.startswith(_ADDS_UP):
            together = f"{sum(int(digest, 16) for digest in parts) % (1 << 128):032x}"
        files.append(InputFile(path, size, xxhash.xxh3_128_hexdigest(together.encode())))
    return Inputs(tuple(sorted(files, key=lambda file: file.path)))
