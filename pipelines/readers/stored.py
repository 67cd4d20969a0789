"""Reads stored files in parts: detects foreign formats, decompresses, and hashes stored bytes."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa
import xxhash

from textmill.pipelines.readers.encodings import ENCODED, find_utf_16
from textmill.schemas.errors import DataError
from textmill.schemas.files.store import SeekableFile, is_url
from textmill.schemas.format.manifest import changed
from textmill.schemas.format.metadata import InputFile, Inputs

_READ_BYTES = 1 << 20
_KEPT_BYTES = 64 << 20  # of a part, in memory
_ZSTD_MARK = b"\x28\xb5\x2f\xfd"
_ZSTD_HEADER = 18  # the most bytes of a frame's header
_ARROW_WINDOW, _LONG_WINDOW = 1 << 27, 1 << 31  # bytes; the most that Arrow and zstd read
_LONG_STEP = 1 << 10  # bytes, which are up to 32 MiB of content
_TOO_MUCH_MEMORY = "Frame requires too much memory"  # in the error of libzstd
_XZ_PADDING = 4  # zero bytes after a member come in multiples of this


class _Members(io.RawIOBase):
    """The content of all members of an .xz or .bz2 file; damage is an error.

    LZMAFile and BZ2File treat damage in a later member as the end of the file, and ignore bytes
    after the last member. Arrow fails on a .bz2 with an empty member.
    """

    def __init__(self, raw: BinaryIO, begin: Callable[[], Any]):
        """`begin` makes a decompressor of one member."""
        self._raw, self._begin = raw, begin
        self._member = begin()
        self._data = b""  # bytes read, but not passed to a member yet

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._member.eof or self._begin_next():
            if not self._data and self._member.needs_input:
                self._data = self._raw.read(_READ_BYTES)
                if not self._data:
                    raise EOFError("its last member is cut off")
            data, self._data = self._data, b""
            content = self._member.decompress(data, len(buffer))
            if content:
                buffer[: len(content)] = content
                return len(content)
        return 0

    def _begin_next(self) -> bool:
        """Begins the next member; False at the end of the file."""
        data, zeros, left = self._member.unused_data or self._raw.read(_READ_BYTES), 0, b""
        while data and not left:
            left = data.lstrip(b"\0")
            zeros += len(data) - len(left)
            data = left or self._raw.read(_READ_BYTES)
        if zeros % _XZ_PADDING:
            raise ValueError(f"{zeros} zero bytes follow a member, which are not padding")
        if left:
            self._member, self._data = self._begin(), left
        return bool(left)


def _open_with_arrow(compression: str) -> Callable[[BinaryIO], io.BufferedReader]:
    """Opens a stream that reads all members, and fails on a truncated one, as few readers do.

    Its own `read` never frees its result if it fails, hence the buffered reader.
    """

    def open_stream(raw: BinaryIO) -> io.BufferedReader:
        stream: Any = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), compression)
        return io.BufferedReader(stream)

    return open_stream


def _open_zstd(raw: io.BufferedReader) -> io.BufferedReader:
    """Opens a stream of zstd data; Arrow reads windows of up to 128 MiB."""
    if _zstd_window(raw.peek(_ZSTD_HEADER)) <= _ARROW_WINDOW:
        return _open_with_arrow("zstd")(raw)
    return io.BufferedReader(_LongZstd(raw), _READ_BYTES)


def _zstd_window(head: bytes) -> int:
    """The window of a frame by its header, in bytes (RFC 8878); 0 if it is no such header."""
    if not head.startswith(_ZSTD_MARK):
        return 0
    head = head[:_ZSTD_HEADER].ljust(_ZSTD_HEADER, b"\0")
    flags, rest = head[4], head[5:]
    if not flags & 0x20:
        base = 1 << (10 + (rest[0] >> 3))
        return base + base // 8 * (rest[0] & 7)
    skip, size = (0, 1, 2, 4)[flags & 3], (1, 2, 4, 8)[flags >> 6]  # the content is the window
    return int.from_bytes(rest[skip : skip + size], "little") + 256 * (size == 2)


class _LongZstd(io.RawIOBase):
    """The content of all frames of a zstd file, with windows of up to 2 GiB."""

    def __init__(self, raw: BinaryIO):
        try:
            # An optional package: few files have such windows.
            import zstandard
        except ImportError as error:
            raise ValueError(_TOO_MUCH_MEMORY) from error
        self._raw, self._error = raw, zstandard.ZstdError
        self._begin = zstandard.ZstdDecompressor(max_window_size=_LONG_WINDOW).decompressobj
        self._frame = self._begin()
        self._content = memoryview(b"")  # decompressed, but not read yet

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._content:
            unused = self._frame.unused_data if self._frame.eof else b""
            data = unused or self._raw.read(_LONG_STEP)
            if not data and not self._frame.eof:
                raise EOFError("its last frame is cut off")
            if not data:
                return 0
            if self._frame.eof:
                self._frame = self._begin()
            try:
                self._content = memoryview(self._frame.decompress(data))
            except self._error as error:
                raise ValueError(str(error)) from error
        size = min(len(buffer), len(self._content))
        buffer[:size], self._content = self._content[:size], self._content[size:]
        return size


def _open_members(begin: Callable[[], Any]) -> Callable[[BinaryIO], io.BufferedReader]:
    return lambda raw: io.BufferedReader(_Members(raw, begin), _READ_BYTES)


@dataclass(frozen=True)
class Compression:
    """A way to compress files as a whole.

    Attributes:
      name: name of the format and of its command.
      mark: first bytes of a file.
      unpack: function from a stored file to a stream of its content.
    """

    name: str
    mark: bytes
    unpack: Callable[[Any], Any]


_GZIP = Compression("gzip", b"\x1f\x8b\x08", lambda raw: gzip.GzipFile(fileobj=raw))
_ZSTD = Compression("zstd", _ZSTD_MARK, _open_zstd)
# By extension; the first of a format is its usual one.
PACKINGS = {
    ".gz": _GZIP,
    ".bz2": Compression("bzip2", b"BZh", _open_members(bz2.BZ2Decompressor)),
    ".xz": Compression("xz", b"\xfd7zXZ\0", _open_members(lzma.LZMADecompressor)),
    ".zst": _ZSTD,
    ".lz4": Compression("lz4", b"\x04\x22\x4d\x18", _open_with_arrow("lz4")),
    ".gzip": _GZIP,
    ".zstd": _ZSTD,
}
_SKIPPED_FRAME = b"\x2a\x4d\x18"  # second to fourth byte of a zstd file with a skippable frame
PEEKED = 512  # first bytes of a file, enough to detect its format
_OTHERS = (
    (b"PK\x03\x04", "a zip archive", "unpack it"),
    (b"PAR1", "a Parquet file", "give --input_format=parquet, or name it .parquet"),
    (b"ARROW1\0\0", "an Arrow file", "give --input_format=arrow, or name it .arrow"),
    *(
        (b"WARC/%b%b" % (version, end), "a WARC file", "give --input_format=warc, or name it .warc")
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
_DAMAGE = (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError)
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
      doubt: a sign that the file has another form than it is read in, with the remedy; with the
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


def extension(path: str) -> str:
    """The last extension of a name, in lower case: `a/b.JSONL.gz` -> `.gz`."""
    return os.path.splitext(path)[1].lower()


def is_compressed(path: str) -> bool:
    """Whether a file is compressed as a whole, by its name."""
    return extension(path) in PACKINGS


def inner_extension(path: str) -> str:
    """The extension before that of a compression: `a/b.JSONL.gz` -> `.jsonl`."""
    return extension(os.path.splitext(path)[0] if is_compressed(path) else path)


def refuse_foreign(content: bytes, path: str) -> None:
    """Checks that a text file, of which `content` is the first PEEKED bytes or more, is text.

    Raises:
      DataError: it begins like a file of another format; names the format and the remedy.
    """
    head = content[:PEEKED]
    for ending, packing in PACKINGS.items():
        if head.startswith(packing.mark) and (ending != ".bz2" or head[4:10] == b"1AY&SY"):
            remedy = (
                "it was compressed twice; unpack it once"
                if is_compressed(path)
                else f"give it a name that ends in {ending}"
            )
            raise DataError(f"{path} is {packing.name} data, not text: {remedy}")
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
        except _DAMAGE as error:
            self._whole.check()
            self._refuse_misnamed(error)
            if _TOO_MUCH_MEMORY in str(error):
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
        is_frame = PACKINGS[end] is _ZSTD and head[1:4] == _SKIPPED_FRAME
        if not head.startswith(PACKINGS[end].mark) and not is_frame:
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
      DataError: the file of a corpus has another sha256 than its manifest lists.
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
