"""ArrayRecord files of rows of one length, read with numpy alone.

ArrayRecord (github.com/google/array_record) is a Riegeli file (github.com/google/riegeli,
doc/riegeli_records_file_format.md) with an index at its end. With `group_size:1,uncompressed` and
rows of one length everything but the rows themselves is known beforehand:

    signature | row 0 | row 1 | ... | footer: the place of each row | postscript: of the footer

Each of these is a chunk: a header of 40 bytes with two hashes (one of the data, one of the header),
then the data. The chunks of rows are all as long, so row i lies at a place that can be computed.
This stream of chunks is then cut every 65,512 bytes to make room for a block header of 24 bytes,
wherever that falls: places before that cut are called `stream`, places in the file `file` here.

Legend: B rows, W bytes of a chunk of one row.
"""

import os
import struct
from functools import cached_property
from typing import Callable, Optional, Sequence, Union

import numpy as np

from schemas.errors import DataError

BLOCK, BLOCK_HEADER, CHUNK_HEADER = 1 << 16, 24, 40
IN_BLOCK = BLOCK - BLOCK_HEADER  # bytes of the stream that a block holds
MAGIC = 0x71930E704FDAE05E  # of the postscript

_Indices = Union[Sequence[int], np.ndarray]
HashRows = Callable[[np.ndarray], np.ndarray]  # uint8 [B, n] -> HighwayHash-64, uint64 [B]


def varint(value: int) -> bytes:
    """Encodes a number as a protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def chunk(data_size: int, kind: bytes, records: int, decoded_size: int) -> bytes:
    """The header of a chunk, with zeros for both hashes (bytes 0 to 8 and 16 to 24)."""
    return (
        struct.pack("<QQQ", 0, data_size, 0)
        + kind
        + struct.pack("<Q", records)[:7]
        + (struct.pack("<Q", decoded_size))
    )


def row_head(stride: int) -> bytes:
    """All of a row's chunk but the row: its header without hashes, no compression, its length."""
    length = varint(stride)
    sizes = b"\0" + varint(len(length)) + length
    return chunk(len(sizes) + stride, b"r", 1, stride) + sizes


def postscript(footer: int) -> bytes:
    """The data of the last chunk: the footer's place in the file, three times over."""
    record = b"\x08" + varint(footer) + b"\x10" + varint(MAGIC)
    return b"\0\3" + varint(len(record)) * 3 + record * 3


def footer_head(count: int) -> bytes:
    """How the record begins that stands first in the footer: version 1, and as many rows."""
    return b"\x08\x01\x10" + varint(count) + b"\x18" + varint(count)


def begin_in_file(stream: np.ndarray) -> np.ndarray:
    """Where a chunk lies in the file that begins (or ends) here in the stream: int64.

    At a cut it begins before the block header.
    """
    return stream + BLOCK_HEADER * -(-stream // IN_BLOCK)


def largest_file(rows: int, stride: int) -> int:
    """Bytes that no file of so many rows exceeds: a chunk and an index entry each, in blocks."""
    stream = 4 * CHUNK_HEADER + 512 + rows * (stride + len(row_head(stride)) + 32)
    return (stream // IN_BLOCK + 4) * BLOCK


class PlainArrayRecordReader:
    """Random access to an ArrayRecord file that is laid out as this file's head says."""

    def __init__(
        self,
        path: str,
        stride: int,
        mapped: np.ndarray,
        count: int,
        hash_rows: Optional[HashRows],
    ):
        """Takes what `open_plain` found; call that instead."""
        self._hash_rows = hash_rows
        self.path = path
        self._stride = stride
        self._head = np.frombuffer(row_head(stride), np.uint8)
        self._file = mapped
        self._count = count

    @cached_property
    def _windows(self) -> np.ndarray:
        """A window of a row at every byte of the file: picking some of them is a memcpy each."""
        return np.lib.stride_tricks.sliding_window_view(self._file, self._stride)

    def __len__(self) -> int:
        """The number of rows in the file."""
        return self._count

    def read(self, indices: _Indices) -> np.ndarray:
        """The rows of these indices, in their order: uint8 [n, stride]. Hashes are not checked.

        Raises:
          IndexError: a row that the file does not have.
        """
        indices = np.asarray(indices, np.int64)
        if not indices.size:
            return np.zeros((0, self._stride), np.uint8)
        if indices.min() < 0 or indices.max() >= self._count:
            raise IndexError(f"{self.path} has {self._count:,} rows")
        starts = CHUNK_HEADER + indices * (len(self._head) + self._stride) + len(self._head)
        in_file = starts + BLOCK_HEADER * (starts // IN_BLOCK + 1)
        cut = starts % IN_BLOCK + self._stride > IN_BLOCK
        # Rows that are cut are picked too, wherever they end, and then put right.
        rows = self._windows[np.minimum(in_file, len(self._windows) - 1)]
        for i in np.flatnonzero(cut).tolist():
            rows[i] = self._stream(int(starts[i]), self._stride)
        return rows

    def read_range(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, with their headers checked: uint8 [stop - start, stride].

        Hashes are checked where the file was opened with what computes them.

        Raises:
          DataError: a header or a hash is not as written; names the record.
        """
        head = len(self._head)
        width = head + self._stride
        first = CHUNK_HEADER + start * width
        chunks = self._stream(first, (stop - start) * width).reshape(-1, width)
        known = chunks[:, :head].copy()
        known[:, :8] = known[:, 16:24] = 0
        good = (known == self._head).all(axis=1)
        if len(chunks) and self._hash_rows:
            for at, hashed in ((16, chunks[:, CHUNK_HEADER:]), (0, chunks[:, 8:CHUNK_HEADER])):
                stored = np.ascontiguousarray(chunks[:, at : at + 8]).view("<u8")[:, 0]
                good &= stored == self._hash_rows(hashed)
        if not good.all():
            raise DataError(
                f"{self.path}: record {start + int(good.argmin())} fails its hash: the file was "
                "changed or damaged"
            )
        return chunks[:, head:]

    def _stream(self, start: int, length: int) -> np.ndarray:
        return _stream(self._file, start, length)

    def close(self) -> None:
        """Lets go of the file that is mapped into memory."""
        self.__dict__.pop("_windows", None)
        self._file, self._count = self._file[:0], 0


def _stream(file: np.ndarray, start: int, length: int) -> np.ndarray:
    """Bytes of the stream, block headers left out: uint8 [length], a copy."""
    first, last = start // IN_BLOCK, -(-(start + length) // IN_BLOCK)
    blocks = file[first * BLOCK : last * BLOCK].reshape(-1, BLOCK)[:, BLOCK_HEADER:]
    offset = start - first * IN_BLOCK
    return blocks.reshape(-1)[offset : offset + length]


def open_plain(
    path: str, stride: int, hash_rows: Optional[HashRows] = None
) -> Optional[PlainArrayRecordReader]:
    """Opens a file of the layout above; None if it is of any other, or damaged.

    Looked at are the postscript, the head of the footer, and what surrounds the first and the last
    row: files that pass have this many rows of this length, each in its place.
    """
    size = os.path.getsize(path)
    if size % BLOCK or size < 2 * BLOCK:
        return None
    file = np.memmap(path, np.uint8, "r").view(np.ndarray)  # plain: a slice of it costs less
    head = np.frombuffer(row_head(stride), np.uint8)
    width = len(head) + stride
    footer = _footer_place(file)
    if footer is None:
        return None
    in_stream = footer - BLOCK_HEADER * -(-footer // BLOCK)
    count, odd = divmod(in_stream - CHUNK_HEADER, width)
    if odd or count < 0 or not _is_footer(_stream(file, in_stream, 512 + count), count):
        return None
    for row in (0, count - 1) if count else ():
        found = _stream(file, CHUNK_HEADER + row * width, len(head)).copy()
        found[:8] = found[16:24] = 0  # the hashes
        if (found != head).any():
            return None
    return PlainArrayRecordReader(path, stride, file, count, hash_rows)


def _footer_place(file: np.ndarray) -> Optional[int]:
    """Where the postscript says that the footer is in the file."""
    start = len(file) // BLOCK * IN_BLOCK - IN_BLOCK + CHUNK_HEADER
    data = _stream(file, start, 128).tobytes()
    footer, shift, at = 0, 0, 6  # after the head and the first record's tag
    for byte in data[at : at + 9]:
        footer |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    expected = postscript(footer)
    return footer if data[: len(expected)] == expected and footer < len(file) - BLOCK else None


def _is_footer(data: np.ndarray, count: int) -> bool:
    """Whether a chunk is the footer of a file of this many rows, a chunk each."""
    sizes = b"\0" + varint(count + 1)
    start = CHUNK_HEADER + len(sizes)
    kind = b"r" + struct.pack("<Q", count + 1)[:7]
    if data[24:32].tobytes() != kind or data[CHUNK_HEADER:start].tobytes() != sizes:
        return False
    described = footer_head(count)
    record = data[start + 1 + count :].tobytes()  # after the lengths of all records
    return record[:1] == b"\n" and record[2 : 2 + len(described)] == described
