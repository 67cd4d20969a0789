"""HighwayHash-64 of many rows, compiled by numba: five times as fast as numpy, and off the GIL.

The same function as `schemas.array_record.highway_hash`, which readers use, and which says where it
is from. Compiled when this file is imported for the first time, in 2 s. The four lanes of each of
the four words of state are tuples, which LLVM keeps in registers.
"""

import numpy as np
from numba import types

from pipelines.compiled import entry, inner
from schemas.array_record import HASH_KEY, HASH_MUL0, HASH_MUL1

_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_MUL0 = tuple(map(np.uint64, HASH_MUL0))
_MUL1 = tuple(map(np.uint64, HASH_MUL1))
_V0 = tuple(np.uint64(m ^ k) for m, k in zip(HASH_MUL0, HASH_KEY, strict=True))
_V1 = tuple(
    np.uint64(m ^ (k >> 32 | (k << 32) % 2**64)) for m, k in zip(HASH_MUL1, HASH_KEY, strict=True)
)
# Views of whole words within rows of any length: neither contiguous nor aligned.
_WORDS = types.Array(types.uint64, 2, "A", readonly=True, aligned=False)
_BYTES = types.Array(types.uint8, 2, "A", readonly=True)


@inner
def _byte(word, place):
    """One byte of a word, where it is."""
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
def _multiplied(mul, low, high):
    """The low half of one word times the high half of another, into the multiplier."""
    return mul ^ ((low & _LOW) * (high >> _HALF))


@inner
def _updated(v0, v1, mul0, mul1, packet):
    """The state after 32 bytes more, as four words."""
    a0, a1, a2, a3 = v0
    b0, b1, b2, b3 = v1
    c0, c1, c2, c3 = mul0
    d0, d1, d2, d3 = mul1
    b0 += c0 + packet[0]
    b1 += c1 + packet[1]
    b2 += c2 + packet[2]
    b3 += c3 + packet[3]
    c0, c1 = _multiplied(c0, b0, a0), _multiplied(c1, b1, a1)
    c2, c3 = _multiplied(c2, b2, a2), _multiplied(c3, b3, a3)
    a0, a1, a2, a3 = a0 + d0, a1 + d1, a2 + d2, a3 + d3
    d0, d1 = _multiplied(d0, a0, b0), _multiplied(d1, a1, b1)
    d2, d3 = _multiplied(d2, a2, b2), _multiplied(d3, a3, b3)
    a0, a1 = a0 + _to_even(b0, b1), a1 + _to_odd(b0, b1)
    a2, a3 = a2 + _to_even(b2, b3), a3 + _to_odd(b2, b3)
    b0, b1 = b0 + _to_even(a0, a1), b1 + _to_odd(a0, a1)
    b2, b3 = b2 + _to_even(a2, a3), b3 + _to_odd(a2, a3)
    return (a0, a1, a2, a3), (b0, b1, b2, b3), (c0, c1, c2, c3), (d0, d1, d2, d3)


@inner
def _halves_swapped(word):
    return (word >> _HALF) | (word << _HALF)


@inner
def _halves_rotated(word, bits):
    """Each half of a word rotated left."""
    low, high, back = word & _LOW, word >> _HALF, _HALF - bits
    low = ((low << bits) | (low >> back)) & _LOW
    high = ((high << bits) | (high >> back)) & _LOW
    return low | (high << _HALF)


@inner
def _last_packet(rest):
    """Fewer than 32 bytes as a packet of four words."""
    packet = np.zeros(32, np.uint8)
    length, whole = rest.size, rest.size & ~3
    for i in range(whole):
        packet[i] = rest[i]
    if length & 16:
        for i in range(4):
            packet[28 + i] = rest[length - 4 + i]
    elif length & 3:
        packet[16] = rest[whole]
        packet[17] = rest[whole + (length & 3) // 2]
        packet[18] = rest[length - 1]
    return packet.view(np.uint64)


@inner
def _hash(words, rest):
    v0, v1, mul0, mul1 = _V0, _V1, _MUL0, _MUL1
    for i in range(0, words.size, 4):
        packet = (words[i], words[i + 1], words[i + 2], words[i + 3])
        v0, v1, mul0, mul1 = _updated(v0, v1, mul0, mul1, packet)
    if rest.size:
        bits = np.uint64(rest.size)
        both = (bits << _HALF) + bits
        v0 = (v0[0] + both, v0[1] + both, v0[2] + both, v0[3] + both)
        v1 = (
            _halves_rotated(v1[0], bits),
            _halves_rotated(v1[1], bits),
            _halves_rotated(v1[2], bits),
            _halves_rotated(v1[3], bits),
        )
        last = _last_packet(rest)
        packet = (last[0], last[1], last[2], last[3])
        v0, v1, mul0, mul1 = _updated(v0, v1, mul0, mul1, packet)
    for _ in range(4):
        packet = (
            _halves_swapped(v0[2]),
            _halves_swapped(v0[3]),
            _halves_swapped(v0[0]),
            _halves_swapped(v0[1]),
        )
        v0, v1, mul0, mul1 = _updated(v0, v1, mul0, mul1, packet)
    return v0[0] + v1[0] + mul0[0] + mul1[0]


@entry(types.void(_WORDS, _BYTES, types.uint64[::1]))
def _hash_rows(words, rests, hashes):
    for row in range(hashes.size):
        hashes[row] = _hash(words[row], rests[row])


def highway_hash(rows: np.ndarray) -> np.ndarray:
    """HighwayHash-64 of each row, as Riegeli keys it.

    Args:
      rows: uint8 [B, n]; the bytes of a row lie side by side.

    Returns:
      uint64 [B].
    """
    hashes = np.empty(len(rows), np.uint64)
    whole = rows.shape[1] // 32 * 32
    _hash_rows(rows[:, :whole].view("<u8"), rows[:, whole:], hashes)
    return hashes
