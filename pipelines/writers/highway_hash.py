"""HighwayHash-64 of rows, compiled by numba, without the GIL.

The hash (Alakuijala, Cox and Wassenberg, "Fast keyed hash/pseudo-random function using SIMD
multiply and permute", 2016) takes in 32 bytes at a time. Its state is four words of four lanes; a
word is one vector of LLVM. Eight rows are hashed side by side, since each operation of a row waits
for the one before.

Legend: a state is uint64 [16]: the words v0, v1, mul0 and mul1.
"""

import struct
from typing import Any

import numpy as np

from textmill.pipelines.runtime.compiled import entry, inner, intrinsic

_AT_ONCE = 8
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_KEY = np.array(struct.unpack("<4Q", b"Riegeli/records\n" * 2), np.uint64)  # as in Riegeli
_MUL0 = np.array(
    [0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3], np.uint64
)
_MUL1 = np.array(
    [0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377], np.uint64
)
_V0, _V1 = _MUL0 ^ _KEY, _MUL1 ^ (_KEY >> _HALF | _KEY << _HALF)
_INITIAL = np.concatenate([_V0, _V1, _MUL0, _MUL1])
# Each half of a word, 16 bytes, gets its bytes in this order ("zipper merge").
_ZIPPED = (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)


@intrinsic
def _take_in(context: Any, states: Any, number: Any, data: Any, begin: Any) -> Any:
    """Takes 32 bytes of an array, from a byte on, into the state with a number.

    Source: the portable code of github.com/google/highwayhash.
    """
    # Imported here, by numba's compiler, since numba takes 0.3 s to import.
    from llvmlite import ir
    from numba import types

    byte, word = ir.IntType(8), ir.IntType(64)
    vector, vector_of_bytes = ir.VectorType(word, 4), ir.VectorType(byte, 32)
    places = [half + place for half in (0, 16) for place in _ZIPPED]
    order = ir.Constant(ir.VectorType(ir.IntType(32), 32), places)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def pointer(array: int, place: Any) -> Any:
            form = context.make_array(signature.args[array])
            first = form(context, builder, arguments[array]).data
            from_first = builder.gep(builder.bitcast(first, byte.as_pointer()), [place])
            return builder.bitcast(from_first, vector.as_pointer())

        def load(place: Any) -> Any:
            return builder.load(place, align=1)

        def multiply(low: Any, high: Any) -> Any:
            mask, half = (ir.Constant(vector, [n] * 4) for n in (0xFFFFFFFF, 32))
            return builder.mul(builder.and_(low, mask), builder.lshr(high, half))

        def zipped(value: Any) -> Any:
            as_bytes = builder.bitcast(value, vector_of_bytes)
            return builder.bitcast(builder.shuffle_vector(as_bytes, as_bytes, order), vector)

        state = builder.mul(arguments[1], word(8 * len(_INITIAL)))
        words = [pointer(0, builder.add(state, word(32 * i))) for i in range(4)]
        v0, v1, mul0, mul1 = map(load, words)
        v1 = builder.add(v1, builder.add(mul0, load(pointer(2, arguments[3]))))
        mul0 = builder.xor(mul0, multiply(v1, v0))
        v0 = builder.add(v0, mul1)
        mul1 = builder.xor(mul1, multiply(v0, v1))
        v0 = builder.add(v0, zipped(v1))
        v1 = builder.add(v1, zipped(v0))
        for value, place in zip((v0, v1, mul0, mul1), words, strict=True):
            builder.store(value, place, align=1)
        return context.get_dummy_value()

    return types.void(states, types.int64, data, types.int64), generate


@inner
def _halves_rotated(word, bits):
    """Each half of a word rotated left."""
    low, high, back = word & _LOW, word >> _HALF, _HALF - bits
    low = ((low << bits) | (low >> back)) & _LOW
    high = ((high << bits) | (high >> back)) & _LOW
    return low | (high << _HALF)


@inner
def _add_length(state, length):
    """Adds the length of the last packet, if it has fewer than 32 bytes, to the state."""
    bits = np.uint64(length)
    for lane in range(4):
        state[lane] += (bits << _HALF) + bits
        state[4 + lane] = _halves_rotated(state[4 + lane], bits)


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


@entry(lambda t: t.void(t.Array(t.uint8, 2, "A", readonly=True), t.uint64[::1]))
def _hash_rows(rows, hashes):
    states, packet = np.empty((_AT_ONCE, 16), np.uint64), np.empty(4, np.uint64)
    last, whole = np.empty(32, np.uint8), rows.shape[1] & ~31
    for first in range(0, hashes.size, _AT_ONCE):
        count = min(_AT_ONCE, hashes.size - first)
        for row in range(count):
            states[row] = _INITIAL
        for place in range(0, whole, 32):
            for row in range(count):
                _take_in(states, row, rows, (first + row) * rows.strides[0] + place)
        for row in range(count):
            state = states[row]
            if whole < rows.shape[1]:
                _add_length(state, rows.shape[1] - whole)
                _fill_last(rows[first + row, whole:], last)
                _take_in(states, row, last, 0)
            for _ in range(4):
                for lane in range(4):
                    word = state[(lane + 2) % 4]
                    packet[lane] = (word >> _HALF) | (word << _HALF)
                _take_in(states, row, packet, 0)
            hashes[first + row] = state[0] + state[4] + state[8] + state[12]


def highway_hash(rows: np.ndarray) -> np.ndarray:
    """HighwayHash-64 of each row, with Riegeli's key.

    Args:
      rows: uint8 [B, n]; the bytes of a row are adjacent in memory.

    Returns:
      uint64 [B].

    Raises:
      ValueError: they are not adjacent.
    """
    if rows.strides[1] != 1:
        raise ValueError(f"bytes of a row are {rows.strides[1]} bytes apart in memory")
    hashes = np.empty(len(rows), np.uint64)
    _hash_rows(rows, hashes)
    return hashes
