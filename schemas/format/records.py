"""Reads rows from TFRecord and ArrayRecord files with numpy alone; lists the formats of shards.

All rows of a dataset have one length, so both formats are read as matrices.

TFRecord (tensorflow/core/lib/io/record_writer.h): uint64 length, masked CRC32C of the length, the
data, masked CRC32C of the data; all little-endian. Row i starts at byte i * (stride + 16).

ArrayRecord (github.com/google/array_record) is a Riegeli file (github.com/google/riegeli,
doc/riegeli_records_file_format.md) with an index at its end. With `group_size:1,uncompressed` and
rows of one length, everything except the rows is known beforehand:

    signature | row 0 | row 1 | ... | footer: offset of each row | postscript: offset of the footer

Each of these is a chunk: a header of 40 bytes with two hashes (of the data and of the header), then
the data. All chunks of rows have the same size, so the offset of row i can be computed. A block
header of 24 bytes is then inserted every 65,512 bytes of this stream of chunks. Offsets without
block headers are called `stream` here, those with them `file`.

Legend: B rows, W bytes of a chunk of one row.
"""

from __future__ import annotations

import os
import struct
from typing import Callable, NamedTuple, Union

import numpy as np

from textmill.schemas.errors import DataError, describe_refusal

FORMATS = ("array_record", "tfrecord")


class DocumentFormat(NamedTuple):
    """A format of tokenized documents (`--task=tokens`) for trainers of other projects.

    Its class in `pipelines.writers.document_formats` describes it.

    Attributes:
      endings: endings of the files of a shard, the main one first.
      reader: the projects that read it.
    """

    endings: tuple[str, ...]
    reader: str


# In the order in which Textmill's readers prefer them: formats that separate documents come first.
DOCUMENT_FORMATS: dict[str, DocumentFormat] = {
    "megatron": DocumentFormat(("megatron.bin", "megatron.idx"), "megatron-core's IndexedDataset"),
    "array_record": DocumentFormat(("array_record",), "grain"),
    "npy": DocumentFormat(("ids.bin",), "numpy.memmap and ai2-olmo-core"),
    "llmc": DocumentFormat(("llmc.bin",), "llm.c and what reads its files"),
}

_HEAD, _TAIL = 12, 4  # bytes around the data of a TFRecord: length and its CRC; CRC of the data
_POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected (RFC 3720, section 12.1)
_MASK_DELTA = 0xA282EAD8  # record_writer.h masks CRCs that are stored with their data
BLOCK, BLOCK_HEADER, CHUNK_HEADER = 1 << 16, 24, 40
IN_BLOCK = BLOCK - BLOCK_HEADER  # bytes of the stream in a block
MAGIC = 0x71930E704FDAE05E  # of the postscript

HashRows = Callable[[np.ndarray], np.ndarray]  # uint8 [B, n] -> HighwayHash-64, uint64 [B]


class RowOffsets(NamedTuple):
    """Where the rows of a file are: row i begins at byte `first + i * width` of the stream.

    Attributes:
      first, width: in bytes of the stream.
      block: bytes of the stream between two block headers.
      header: bytes of a block header; the file begins with one.
    """

    first: int = 0
    width: int = 0
    block: int = 1 << 62
    header: int = 0


def row_offsets(file_format: str, stride: int) -> RowOffsets:
    """Where rows of `stride` bytes are in a file, array_record or tfrecord."""
    if file_format == "tfrecord":
        return RowOffsets(first=_HEAD, width=framed_bytes(stride))
    head = len(row_head(stride))
    return RowOffsets(
        first=CHUNK_HEADER + head, width=head + stride, block=IN_BLOCK, header=BLOCK_HEADER
    )


def _tables() -> np.ndarray:
    """Tables [4, 256] for four bytes at a time ("slicing by 4", Kounavis and Berry, 2005)."""
    tables = np.zeros((4, 256), np.uint32)
    value = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        value = np.where(value & 1, (value >> 1) ^ np.uint32(_POLYNOMIAL), value >> 1)
    tables[0] = value
    for step in range(1, 4):
        previous = tables[step - 1]
        tables[step] = tables[0][previous & 0xFF] ^ (previous >> 8)
    return tables


_TABLES = _tables()


def crc32c(rows: np.ndarray) -> np.ndarray:
    """CRC32C (RFC 3720) of every row of a matrix.

    Args:
      rows: uint8 [B, n].

    Returns:
      uint32 [B].
    """
    whole = rows.shape[1] // 4 * 4
    # Transposed, so that each step reads contiguous memory.
    words = np.ascontiguousarray(np.ascontiguousarray(rows[:, :whole]).view("<u4").T)
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for word in words:
        crc ^= word
        crc = (
            _TABLES[3][crc & 0xFF]
            ^ _TABLES[2][(crc >> 8) & 0xFF]
            ^ _TABLES[1][(crc >> 16) & 0xFF]
            ^ _TABLES[0][crc >> 24]
        )
    for column in range(whole, rows.shape[1]):
        crc = _TABLES[0][(crc ^ rows[:, column]) & 0xFF] ^ (crc >> 8)
    return crc ^ np.uint32(0xFFFFFFFF)


def masked_crc32c(rows: np.ndarray) -> np.ndarray:
    """CRC32C of every row, rotated and offset as TFRecord stores it: uint32 [B]."""
    crc = crc32c(rows)
    return ((crc >> 15) | (crc << 17)) + np.uint32(_MASK_DELTA)


def framed_bytes(stride: int) -> int:
    """Bytes that a row takes in a TFRecord file."""
    return _HEAD + stride + _TAIL


def _head(stride: int) -> np.ndarray:
    length = np.frombuffer(stride.to_bytes(8, "little"), np.uint8)
    return np.concatenate((length, masked_crc32c(length[None]).astype("<u4").view(np.uint8)))


def frame(rows: np.ndarray) -> np.ndarray:
    """Rows uint8 [B, stride] to TFRecord bytes uint8 [B, stride + 16]."""
    count, stride = rows.shape
    framed = np.empty((count, _HEAD + stride + _TAIL), np.uint8)
    framed[:, :_HEAD] = _head(stride)
    framed[:, _HEAD:-_TAIL] = rows
    if count:
        framed[:, -_TAIL:] = masked_crc32c(rows).astype("<u4").view(np.uint8).reshape(count, _TAIL)
    return framed


class TFRecordReader:
    """A TFRecord file of rows of one length.

    Attributes:
      mapped: the file, uint8 [bytes].
      offsets: where its rows are.
    """

    def __init__(self, path: str, stride: int):
        """Maps the file.

        Raises:
          DataError: the size of the file is not a multiple of the size of such records.
        """
        self.path = path
        self._stride = stride
        framed = framed_bytes(stride)
        size = os.path.getsize(path)
        if size % framed:
            raise DataError(
                f"{path} has {size:,} bytes, which is not a multiple of records of {framed} bytes: "
                "it was cut, or belongs to another dataset"
            )
        self.offsets = row_offsets("tfrecord", stride)
        self.mapped = np.zeros(0, np.uint8)
        if size:  # an empty file cannot be mapped
            self.mapped = np.memmap(path, np.uint8, "r").view(np.ndarray)

    def __len__(self) -> int:
        """The number of rows in the file."""
        return len(self.mapped) // self.offsets.width

    def read_range(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, with lengths and CRCs checked: uint8 [stop - start, stride].

        Raises:
          DataError: a length or a CRC is wrong; the message has the record.
        """
        framed = self.mapped.reshape(-1, self.offsets.width)[start:stop]
        rows = framed[:, _HEAD:-_TAIL]
        good = (framed[:, :_HEAD] == _head(self._stride)).all(axis=1)
        if len(rows):
            stored = np.ascontiguousarray(framed[:, -_TAIL:]).view("<u4")[:, 0]
            good &= stored == masked_crc32c(rows)
        if not good.all():
            raise DataError(
                f"{self.path}: record {start + int(good.argmin())} fails its CRC32C: the file was "
                "changed or damaged"
            )
        return rows

    def close(self) -> None:
        """Unmaps the file."""
        self.mapped = self.mapped[:0]


def varint(value: int) -> bytes:
    """Encodes a number as a protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def chunk(data_size: int, kind: bytes, records: int, decoded_size: int) -> bytes:
    """The header of a chunk, with zeros instead of both hashes (bytes 0 to 8 and 16 to 24)."""
    return (
        struct.pack("<QQQ", 0, data_size, 0)
        + kind
        + struct.pack("<Q", records)[:7]
        + (struct.pack("<Q", decoded_size))
    )


def row_head(stride: int) -> bytes:
    """A row's chunk without the row: header without hashes, compression type, length."""
    length = varint(stride)
    sizes = b"\0" + varint(len(length)) + length
    return chunk(len(sizes) + stride, b"r", 1, stride) + sizes


def postscript(footer: int) -> bytes:
    """The data of the last chunk: the footer's offset in the file, three times."""
    record = b"\x08" + varint(footer) + b"\x10" + varint(MAGIC)
    return b"\0\3" + varint(len(record)) * 3 + record * 3


def footer_head(count: int) -> bytes:
    """The beginning of the footer's first record: version 1, and the number of rows."""
    return b"\x08\x01\x10" + varint(count) + b"\x18" + varint(count)


def begin_in_file(stream: np.ndarray) -> np.ndarray:
    """Converts offsets of chunks' beginnings or ends from the stream to the file: int64.

    At a block boundary, a chunk begins before the block header.
    """
    return stream + BLOCK_HEADER * -(-stream // IN_BLOCK)


def largest_file(rows: int, stride: int) -> int:
    """An upper bound of a file's bytes: a chunk and an index entry per row, in whole blocks."""
    stream = 4 * CHUNK_HEADER + 512 + rows * (stride + len(row_head(stride)) + 32)
    return (stream // IN_BLOCK + 4) * BLOCK


class ArrayRecordReader:
    """An ArrayRecord file of rows of one length.

    Attributes:
      mapped: the file, uint8 [bytes].
      offsets: where its rows are.
    """

    def __init__(self, path: str, stride: int, hash_rows: HashRows | None = None):
        """Maps the file, and gets the number of rows from its footer.

        The postscript and the heads of the first and the last row are checked: a file that passes
        has this many rows of this length.

        Args:
          path: a file as this module describes it.
          stride: bytes of a row.
          hash_rows: computes hashes, so that `read_range` checks them; None to skip the check.

        Raises:
          DataError: the file has a different layout or other rows, or is damaged.
        """
        self.path = path
        self._stride, self._hash_rows = stride, hash_rows
        self._head = np.frombuffer(row_head(stride), np.uint8)
        self.offsets = row_offsets("array_record", stride)
        self.mapped, self._count = np.zeros(0, np.uint8), -1
        size = os.path.getsize(path)
        if size >= 2 * BLOCK and size % BLOCK == 0:
            # A plain array, since slicing it is faster than slicing a memmap.
            self.mapped = np.memmap(path, np.uint8, "r").view(np.ndarray)
            self._count = self._count_rows()
        if self._count < 0:
            raise DataError(
                f"{path} is not a complete ArrayRecord file of uncompressed rows of {stride} "
                "bytes: copy or build the dataset again"
            )

    def _count_rows(self) -> int:
        """The number of rows in the file; -1 if it is not as described."""
        last_block = len(self.mapped) // BLOCK * IN_BLOCK - IN_BLOCK
        data = self._stream(last_block + CHUNK_HEADER, 128).tobytes()
        footer, shift = 0, 0
        for byte in data[6:15]:  # after the head and the first record's tag
            footer |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        in_stream = footer - BLOCK_HEADER * -(-footer // BLOCK)
        count, odd = divmod(in_stream - CHUNK_HEADER, self.offsets.width)
        if not data.startswith(postscript(footer)) or footer >= len(self.mapped) - BLOCK:
            return -1
        if odd or count < 0:
            return -1
        for row in (0, count - 1) if count else ():
            start = CHUNK_HEADER + row * self.offsets.width
            head = self._stream(start, len(self._head)).copy()
            head[:8] = head[16:24] = 0  # the hashes
            if (head != self._head).any():
                return -1
        return count

    def __len__(self) -> int:
        """The number of rows in the file."""
        return self._count

    def read_range(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, with their headers checked: uint8 [stop - start, stride].

        Hashes are checked if the file was opened with `hash_rows`.

        Raises:
          DataError: a header or a hash is wrong; the message has the record.
        """
        head = len(self._head)
        width = self.offsets.width
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
        """Bytes of the stream, without block headers: uint8 [length]."""
        first, last = start // IN_BLOCK, -(-(start + length) // IN_BLOCK)
        blocks = self.mapped[first * BLOCK : last * BLOCK].reshape(-1, BLOCK)[:, BLOCK_HEADER:]
        offset = start - first * IN_BLOCK
        return blocks.reshape(-1)[offset : offset + length]

    def close(self) -> None:
        """Unmaps the file."""
        self.mapped, self._count = self.mapped[:0], 0


RowReader = Union[TFRecordReader, ArrayRecordReader]


def open_rows(path: str, stride: int, hash_rows: HashRows | None = None) -> RowReader:
    """Opens a shard by its file name's extension.

    Args:
      path: a local file, `*.array_record` or `*.tfrecord`.
      stride: bytes of a row, `RowCodec.stride`.
      hash_rows: see `ArrayRecordReader`.

    Raises:
      DataError: the file is missing, cannot be read, is cut, or is of a different format.
    """
    extension = path.rsplit(".", 1)[-1]
    try:
        if extension == "array_record":
            return ArrayRecordReader(path, stride, hash_rows)
        if extension == "tfrecord":
            return TFRecordReader(path, stride)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing, although the manifest lists it") from error
    except OSError as error:
        raise describe_refusal(path, error) from error
    raise DataError(f"{path}: a shard must be *.array_record or *.tfrecord")
