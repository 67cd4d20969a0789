"""Writes matrices of rows as ArrayRecord files; `schemas.format.records` describes the layout.

The bytes equal those of the library's writer with `group_size:1,uncompressed` (a test compares
them), which needs a call per row and holds the interpreter's lock all the while.

Each chunk has two hashes: HighwayHash-64 (Alakuijala, Cox and Wassenberg, "Fast keyed
hash/pseudo-random function using SIMD multiply and permute", 2016), compiled by numba, without the
interpreter's lock. 32 rows are hashed side by side: LLVM turns a loop over them into vector
instructions, twice as fast as row by row. (It would unroll a loop over a constant number of rows.)

Legend: the state of a hash is four words of four lanes, v0, v1, mul0 and mul1, uint64 [4, 32] each.
"""

import struct
from typing import Any, Protocol

import numpy as np

from textmill.pipelines.host.compiled import entry, inner
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
_AT_ONCE = 32
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_KEY = np.array(struct.unpack("<4Q", b"Riegeli/records\n" * 2), np.uint64)  # as in Riegeli
_MUL0 = np.array(
    [0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3], np.uint64
)
_MUL1 = np.array(
    [0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377], np.uint64
)
_V0, _V1 = _MUL0 ^ _KEY, _MUL1 ^ (_KEY >> _HALF | _KEY << _HALF)


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
        self._head = np.frombuffer(row_head(stride), np.uint8)
        self._rows = 0
        self._position = 0  # in the stream, bytes
        self._write_chunk(b"s", b"", 0, 0)

    def write(self, rows: np.ndarray) -> None:
        """Appends rows uint8 [b, stride]."""
        head = len(self._head)
        chunks = np.empty((len(rows), head + self._stride), np.uint8)
        chunks[:, :head] = self._head
        chunks[:, head:] = rows
        self._write_chunks(chunks)
        self._rows += len(rows)

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
        width = len(self._head) + self._stride
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


@inner
def _byte(word, place):
    """A word with all bytes but one set to zero."""
    return word & (np.uint64(0xFF) << np.uint64(8 * place))


@inner
def _to_even(even, odd):
    """Bytes 3 12 2 5 14 1 15 0 of an even and an odd lane as one word of 16 bytes."""
    return (
        ((_byte(even, 3) | _byte(odd, 4)) >> np.uint64(24))
        | _byte(even, 2)
        | ((_byte(even, 5) | _byte(odd, 6)) >> np.uint64(16))
        | (_byte(even, 1) << _HALF)
        | (_byte(odd, 7) >> np.uint64(8))
        | (even << np.uint64(56))
    )


@inner
def _to_odd(even, odd):
    """Bytes 11 4 10 13 9 6 8 7."""
    return (
        ((_byte(odd, 3) | _byte(even, 4)) >> np.uint64(24))
        | _byte(odd, 2)
        | (_byte(odd, 5) >> np.uint64(16))
        | (_byte(odd, 1) << np.uint64(24))
        | (_byte(even, 6) >> np.uint64(8))
        | (_byte(odd, 0) << np.uint64(48))
        | _byte(even, 7)
    )


@inner
def _multiply(mul, low, high):
    """The low half of one word times the high half of another, into the multiplier."""
    return mul ^ ((low & _LOW) * (high >> _HALF))


@inner
def _update(v0, v1, mul0, mul1, packet, count):
    """Takes in 32 bytes of each row: uint64 [4, 32]."""
    for lane in range(0, 4, 2):
        for row in range(count):
            even0, odd0 = v0[lane, row], v0[lane + 1, row]
            even1 = v1[lane, row] + mul0[lane, row] + packet[lane, row]
            odd1 = v1[lane + 1, row] + mul0[lane + 1, row] + packet[lane + 1, row]
            mul0[lane, row] = _multiply(mul0[lane, row], even1, even0)
            mul0[lane + 1, row] = _multiply(mul0[lane + 1, row], odd1, odd0)
            even0 += mul1[lane, row]
            odd0 += mul1[lane + 1, row]
            mul1[lane, row] = _multiply(mul1[lane, row], even0, even1)
            mul1[lane + 1, row] = _multiply(mul1[lane + 1, row], odd0, odd1)
            even0 += _to_even(even1, odd1)
            odd0 += _to_odd(even1, odd1)
            v0[lane, row], v0[lane + 1, row] = even0, odd0
            v1[lane, row] = even1 + _to_even(even0, odd0)
            v1[lane + 1, row] = odd1 + _to_odd(even0, odd0)


@inner
def _halves_rotated(word, bits):
    """Each half of a word rotated left."""
    low, high, back = word & _LOW, word >> _HALF, _HALF - bits
    low = ((low << bits) | (low >> back)) & _LOW
    high = ((high << bits) | (high >> back)) & _LOW
    return low | (high << _HALF)


@inner
def _add_length(v0, v1, length, count):
    """Adds the length of the last packet, if it has fewer than 32 bytes, to the state."""
    bits = np.uint64(length)
    for lane in range(4):
        for row in range(count):
            v0[lane, row] += (bits << _HALF) + bits
            v1[lane, row] = _halves_rotated(v1[lane, row], bits)


@inner
def _fill_last(rest, last):
    """Fills `last`, uint8 [32], with a packet of fewer than 32 bytes."""
    last[:] = 0
    length, whole = rest.size, rest.size & ~3
    for i in range(whole):
        last[i] = rest[i]
    if length & 16:
        for i in range(4):
            last[28 + i] = rest[length - 4 + i]
    elif length & 3:
        last[16] = rest[whole]
        last[17] = rest[whole + (length & 3) // 2]
        last[18] = rest[length - 1]


def _signature(types):
    """The numba signature: views of words in rows of any length, not contiguous, not aligned."""
    words = types.Array(types.uint64, 2, "A", readonly=True, aligned=False)
    return types.void(words, types.Array(types.uint8, 2, "A", readonly=True), types.uint64[::1])


@entry(_signature)
def _hash_rows(words, rests, hashes):
    v0, v1 = np.empty((4, _AT_ONCE), np.uint64), np.empty((4, _AT_ONCE), np.uint64)
    mul0, mul1 = np.empty((4, _AT_ONCE), np.uint64), np.empty((4, _AT_ONCE), np.uint64)
    packet, last = np.empty((4, _AT_ONCE), np.uint64), np.empty(32, np.uint8)
    last_words = last.view(np.uint64)
    for first in range(0, hashes.size, _AT_ONCE):
        count = min(_AT_ONCE, hashes.size - first)
        for lane in range(4):
            v0[lane], v1[lane] = _V0[lane], _V1[lane]
            mul0[lane], mul1[lane] = _MUL0[lane], _MUL1[lane]
        for word in range(0, words.shape[1], 4):
            for row in range(count):
                for lane in range(4):
                    packet[lane, row] = words[first + row, word + lane]
            _update(v0, v1, mul0, mul1, packet, count)
        if rests.shape[1]:
            _add_length(v0, v1, rests.shape[1], count)
            for row in range(count):
                _fill_last(rests[first + row], last)
                for lane in range(4):
                    packet[lane, row] = last_words[lane]
            _update(v0, v1, mul0, mul1, packet, count)
        for _ in range(4):
            for lane in range(4):
                for row in range(count):
                    word = v0[(lane + 2) % 4, row]
                    packet[lane, row] = (word >> _HALF) | (word << _HALF)
            _update(v0, v1, mul0, mul1, packet, count)
        for row in range(count):
            hashes[first + row] = v0[0, row] + v1[0, row] + mul0[0, row] + mul1[0, row]


def highway_hash(rows: np.ndarray) -> np.ndarray:
    """HighwayHash-64 of each row, with Riegeli's key.

    Args:
      rows: uint8 [B, n]; the bytes of a row are adjacent in memory.

    Returns:
      uint64 [B].
    """
    hashes = np.empty(len(rows), np.uint64)
    whole = rows.shape[1] // 32 * 32
    _hash_rows(rows[:, :whole].view("<u8"), rows[:, whole:], hashes)
    return hashes
