"""Writes matrices of rows as ArrayRecord files; `schemas.format.records` describes the layout.

The bytes equal those of the library's writer with `group_size:1,uncompressed` (a test compares
them), which needs a call per row and holds the GIL all the while.
"""

from typing import Any, Protocol

import numpy as np

from textmill.pipelines.writers.highway_hash import highway_hash
from textmill.schemas.format.records import (
    BLOCK,
    BLOCK_HEADER,
    CHUNK_HEADER,
    IN_BLOCK,
    begin_in_file,
    chunk,
    footer_head,
    postscript,
    row_head,
    varint,
)

# The library writes its options into the footer.
_OPTIONS = (
    b"group_size:1,transpose:false,pad_to_block_boundary:false,uncompressed,max_parallelism:1"
)


class Output(Protocol):
    """Anything that an ArrayRecord file can be written to."""

    def write(self, data: Any, /) -> object:
        """Writes the bytes of an array uint8 [n]."""


class ArrayRecordFile:
    """An ArrayRecord file that is being written."""

    def __init__(self, file: Output, stride: int):
        """Begins a file of rows of `stride` bytes."""
        self._file = file
        self._stride = stride
        self._rows = 0
        self._position = 0  # in the stream, bytes
        self._write_chunk(b"s", b"", 0, 0)

    def write(self, chunks: np.ndarray) -> None:
        """Appends rows uint8 [b, head + stride], each after its `row_head`; fills in the hashes."""
        self._write_chunks(chunks)
        self._rows += len(chunks)

    def finish(self) -> None:
        """Writes the index. The file stays open."""
        footer = int(begin_in_file(np.array(self._position)))
        sizes, records = self._footer()
        self._write_chunk(b"r", sizes + records, self._rows + 1, len(records))
        self._fill_block()
        data = postscript(footer)
        self._write_chunk(b"r", data, 3, len(data) - 5)
        self._fill_block()

    def _footer(self) -> tuple[bytes, bytes]:
        """The lengths of the footer's records, and the records: the offset of every row."""
        width = len(row_head(self._stride)) + self._stride
        offsets = begin_in_file(CHUNK_HEADER + np.arange(self._rows, dtype=np.int64) * width)
        described = footer_head(self._rows) + b"\x22" + varint(len(_OPTIONS)) + _OPTIONS
        first = b"\n" + varint(len(described)) + described
        lengths, records = [varint(len(first))], [first]
        after = b"\x10" + varint(self._stride) + b"\x18\x01"
        bytes_of_offset = np.ones(len(offsets), np.int64)
        for bits in range(7, 64, 7):
            bytes_of_offset += offsets >> bits > 0
        for count in np.unique(bytes_of_offset).tolist():
            some = offsets[bytes_of_offset == count]
            record = np.empty((len(some), 1 + count + len(after)), np.uint8)
            record[:, 0] = 0x08
            for i in range(count):
                record[:, 1 + i] = (some >> (7 * i)) & 0x7F | (0x80 if i < count - 1 else 0)
            record[:, 1 + count :] = np.frombuffer(after, np.uint8)
            lengths.append(varint(record.shape[1]) * len(some))
            records.append(record.tobytes())
        sizes = b"".join(lengths)
        return b"\0" + varint(len(sizes)) + sizes, b"".join(records)

    def _fill_block(self) -> None:
        """Zeros up to the end of the block, as a chunk of padding."""
        room = -self._position % IN_BLOCK
        if not room:
            return
        if room < CHUNK_HEADER:
            room += IN_BLOCK
        self._write_chunk(b"p", bytes(room - CHUNK_HEADER), 0, 0)

    def _write_chunk(self, kind: bytes, data: bytes, records: int, decoded_size: int) -> None:
        whole = chunk(len(data), kind, records, decoded_size) + data
        self._write_chunks(np.frombuffer(bytearray(whole), np.uint8)[None])

    def _write_chunks(self, chunks: np.ndarray) -> None:
        """Fills in the hashes of chunks uint8 [B, W] that follow one another, and writes them.

        Block headers go wherever the stream comes to a multiple of IN_BLOCK.
        """
        count, width = chunks.shape
        if not count:
            return
        hashes = chunks[:, 16:24], chunks[:, :8]
        for stored, hashed in zip(hashes, (chunks[:, 40:], chunks[:, 8:40]), strict=True):
            stored[:] = highway_hash(hashed).astype("<u8").view(np.uint8).reshape(count, 8)
        stream, begin = chunks.reshape(-1), self._position
        self._position += len(stream)
        cuts = np.arange(-(-begin // IN_BLOCK), -(-self._position // IN_BLOCK))
        headers = _block_headers(cuts, begin, width)
        out = np.empty(len(stream) + len(cuts) * BLOCK_HEADER, np.uint8)
        rest = min(-begin % IN_BLOCK, len(stream))  # of a block begun earlier
        out[:rest] = stream[:rest]
        whole = (len(stream) - rest) // IN_BLOCK
        blocks = out[rest : rest + whole * BLOCK].reshape(whole, BLOCK)
        blocks[:, :BLOCK_HEADER] = headers[:whole]
        blocks[:, BLOCK_HEADER:] = stream[rest : rest + whole * IN_BLOCK].reshape(whole, IN_BLOCK)
        if whole < len(cuts):
            last = out[rest + whole * BLOCK :]
            last[:BLOCK_HEADER] = headers[-1]
            last[BLOCK_HEADER:] = stream[rest + whole * IN_BLOCK :]
        self._file.write(out)


def _block_headers(blocks: np.ndarray, begin: int, width: int) -> np.ndarray:
    """Headers of blocks that cut through chunks of one width: uint8 [n, 24].

    Args:
      blocks: int64 [n], numbers of the blocks in the file.
      begin: offset of the first chunk in the stream, bytes.
      width: bytes of a chunk.
    """
    chunk_begins = begin + (blocks * IN_BLOCK - begin) // width * width
    headers = np.empty((len(blocks), 3), "<u8")
    headers[:, 1] = blocks * BLOCK - begin_in_file(chunk_begins)
    headers[:, 2] = begin_in_file(chunk_begins + width) - blocks * BLOCK
    as_bytes = headers.view(np.uint8)
    headers[:, 0] = highway_hash(as_bytes[:, 8:])
    return as_bytes
