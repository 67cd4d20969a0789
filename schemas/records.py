"""Files of rows: TFRecord framing with masked CRC32C, and one reader for both formats.

TFRecord (tensorflow/core/lib/io/record_writer.h): uint64 length, masked CRC32C of the length, the
data, masked CRC32C of the data; all little-endian. All rows of a set have one length, so a file is
a matrix: row i starts at byte i * (stride + 16), and random access needs no index.
ArrayRecord (github.com/google/array_record) is read through its own library, imported when used.
"""

import os
from typing import Callable, List, Optional, Sequence, Union

import numpy as np

from schemas.array_record import HashRows, PlainArrayRecordReader, open_plain
from schemas.errors import DataError, describe_refusal

FORMATS = ("array_record", "tfrecord")
_HEAD, _TAIL = 12, 4  # bytes around the data of a TFRecord: length and its CRC; CRC of the data
_POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected (RFC 3720, section 12.1)
_MASK_DELTA = 0xA282EAD8  # record_writer.h: CRCs stored beside what they guard are masked
_CHUNK_ROWS = 4096  # rows whose CRC state stays in the cache while their bytes are walked


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
    return np.concatenate(
        [
            _crc32c_chunk(rows[start : start + _CHUNK_ROWS])
            for start in range(0, max(len(rows), 1), _CHUNK_ROWS)
        ]
    )


def _crc32c_chunk(rows: np.ndarray) -> np.ndarray:
    whole = rows.shape[1] // 4 * 4
    # Words first, rows second: each step then walks contiguous memory.
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
    """Random access to a TFRecord file of rows of one length."""

    def __init__(self, path: str, stride: int):
        """Maps the file.

        Raises:
          DataError: the file's size is no whole number of such records.
        """
        self.path = path
        self._stride = stride
        framed = framed_bytes(stride)
        size = os.path.getsize(path)
        if size % framed:
            raise DataError(
                f"{path} has {size:,} bytes, which is no whole number of records of {framed} "
                "bytes: it was cut or is of another set"
            )
        self._framed = np.zeros((0, framed), np.uint8)
        if size:  # an empty file cannot be mapped
            self._framed = np.memmap(path, np.uint8, "r").reshape(-1, framed)

    def __len__(self) -> int:
        """The number of rows in the file."""
        return len(self._framed)

    def read(self, indices: Union[Sequence[int], np.ndarray]) -> np.ndarray:
        """The rows of these indices, in their order: uint8 [n, stride]. CRCs are not checked."""
        return self._framed[np.asarray(indices, np.int64)][:, _HEAD:-_TAIL]

    def read_range(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, with lengths and CRCs checked: uint8 [stop - start, stride].

        Raises:
          DataError: a length or a CRC is not as written; names the record.
        """
        framed = np.asarray(self._framed[start:stop])
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
        """Closes the file: what it maps or holds open is given back."""
        self._framed = self._framed[:0]


class ArrayRecordReader:
    """Random access to an ArrayRecord file of rows of one length."""

    def __init__(self, path: str, stride: int):
        """Opens the file; its footer is read at once, rows when asked for."""
        # Imported here, since a trainer may read TFRecord only.
        from array_record.python import (
            array_record_module,  # pyright: ignore[reportAttributeAccessIssue]
        )

        os.stat(path)  # the library reports a missing file as one of no records
        self.path = path
        self._stride = stride
        try:
            self._reader = array_record_module.ArrayRecordReader(
                path, "readahead_buffer_size:0,max_parallelism:0"
            )
            if not self._reader.ok():  # it opens a damaged file as one of no records
                self._reader.close()  # and says what is wrong when it is closed
                raise DataError(f"{path} is no whole ArrayRecord file")
            self._count = self._reader.num_records()
        except (RuntimeError, ValueError, IndexError) as error:
            raise DataError(f"{path} is no whole ArrayRecord file: {error}") from error

    def __len__(self) -> int:
        """The number of rows in the file."""
        return self._count

    def read(self, indices: Union[Sequence[int], np.ndarray]) -> np.ndarray:
        """The rows of these indices, in their order: uint8 [n, stride]."""
        indices = np.asarray(indices, np.int64).tolist()
        return self._matrix(lambda: self._reader.read(indices), len(indices))

    def read_range(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop: uint8 [stop - start, stride]; the format checks its own hashes."""
        return self._matrix(lambda: self._reader.read(start, stop), stop - start)

    def _matrix(self, read: Callable[[], List[bytes]], count: int) -> np.ndarray:
        if not count:  # the library refuses an empty range
            return np.zeros((0, self._stride), np.uint8)
        try:
            records = read()
        except (RuntimeError, ValueError, IndexError) as error:
            raise DataError(f"{self.path} cannot be read: {error}") from error
        joined = b"".join(records)
        if len(joined) != count * self._stride or any(len(r) != self._stride for r in records):
            raise DataError(
                f"{self.path} holds records of other than {self._stride} bytes: it is damaged or "
                "of another set"
            )
        return np.frombuffer(joined, np.uint8).reshape(count, self._stride)

    def close(self) -> None:
        """Closes the file: what it maps or holds open is given back."""
        self._reader.close()


RowReader = Union[TFRecordReader, PlainArrayRecordReader, ArrayRecordReader]


def open_rows(path: str, stride: int, hash_rows: Optional[HashRows] = None) -> RowReader:
    """Opens a shard by its file name's extension.

    Args:
      path: a local file, `*.array_record` or `*.tfrecord`.
      stride: bytes of a row, `RowCodec.stride`.
      hash_rows: computes the hashes of ArrayRecord, which are then checked with ranges of rows.

    Raises:
      DataError: the file is missing, may not be read, or is cut or of another kind.
    """
    extension = path.rsplit(".", 1)[-1]
    try:
        if extension == "array_record":
            plain = open_plain(path, stride, hash_rows)
            return ArrayRecordReader(path, stride) if plain is None else plain
        if extension == "tfrecord":
            return TFRecordReader(path, stride)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing, although the manifest lists it") from error
    except OSError as error:
        raise describe_refusal(path, error) from error
    raise DataError(f"{path}: a shard is *.array_record or *.tfrecord")
