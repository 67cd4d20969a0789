"""Compressed files: the formats by extension, and streams of their content that detect damage."""

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

_READ_BYTES = 1 << 20
_ZSTD_MARK = b"\x28\xb5\x2f\xfd"
_ZSTD_HEADER = 18  # the most bytes of a frame's header
_ARROW_WINDOW, _LONG_WINDOW = 1 << 27, 1 << 31  # bytes; the most that Arrow and zstd read
_LONG_STEP = 1 << 10  # bytes, which are up to 32 MiB of content
TOO_MUCH_MEMORY = "Frame requires too much memory"  # in the error of libzstd
_XZ_PADDING = 4  # zero bytes after a member come in multiples of this
_SKIPPED_FRAME = b"\x2a\x4d\x18"  # second to fourth byte of a zstd file with a skippable frame
UNPACKING_FAILS = (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError)


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
            raise ValueError(TOO_MUCH_MEMORY) from error
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

    def begins(self, head: bytes) -> bool:
        """Whether a file of this format may begin so; one of zstd also with a skippable frame."""
        return head.startswith(self.mark) or (self is _ZSTD and head[1:4] == _SKIPPED_FRAME)


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


def extension(path: str) -> str:
    """The last extension of a name, in lower case: `a/b.JSONL.gz` -> `.gz`."""
    return os.path.splitext(path)[1].lower()


def is_compressed(path: str) -> bool:
    """Whether a file is compressed as a whole, by its name."""
    return extension(path) in PACKINGS


def inner_extension(path: str) -> str:
    """The extension before that of a compression: `a/b.JSONL.gz` -> `.jsonl`."""
    return extension(os.path.splitext(path)[0] if is_compressed(path) else path)


def find_compression(head: bytes) -> str:
    """The extension of the compression whose mark a file begins with; "" for none."""
    for ending, packing in PACKINGS.items():
        if head.startswith(packing.mark) and (ending != ".bz2" or head[4:10] == b"1AY&SY"):
            return ending
    return ""
