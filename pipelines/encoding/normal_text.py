"""Brings pieces of text into normal form C, of which nearly all are there already.

A compiled pass finds pieces with a character that could be other than normal, or that Python knows
nothing of; these go through the normalizer of `tokenizers`, whose Unicode may be another version.
"""

import unicodedata
from collections.abc import Callable
from functools import cache

import numpy as np
from numba import types
from tokenizers.normalizers import Normalizer

from pipelines.host.compiled import entry

Normalize = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
_FIRST = 0x300  # no character below it is other than normal
_KNOWN = 0x32400  # code points from here on are unassigned, private, or marks
_JAMO = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))  # compose by rule


def keep_normal(normalizer: Normalizer) -> Normalize:
    """A function that normalizes pieces: (bytes, offsets) -> the same of what they become."""

    def normalize(data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        suspects = np.empty(len(offsets) - 1, bool)
        _find_suspects(data, offsets, _suspicious(), suspects)
        if not suspects.any():
            return data, offsets
        parts, sizes, done = [], np.diff(offsets), 0
        for piece in np.flatnonzero(suspects):
            start, stop = offsets[piece], offsets[piece + 1]
            text = normalizer.normalize_str(data[start:stop].tobytes().decode()).encode()
            parts += [data[done:start], np.frombuffer(text, np.uint8)]
            sizes[piece], done = len(text), stop
        parts.append(data[done:])
        return np.concatenate(parts), np.append(0, np.cumsum(sizes))

    return normalize


@cache
def _suspicious() -> np.ndarray:
    """Which code points could be other than normal, or change beside others: bool[code points]."""
    found = np.zeros(0x110000, bool)
    found[_KNOWN:] = True
    found[list(_JAMO)] = True
    for point in range(_FIRST, _KNOWN):
        character = chr(point)
        parts = unicodedata.decomposition(character)
        if parts and parts[0] != "<":
            found[point] |= not unicodedata.is_normalized("NFC", character)
            found[[int(part, 16) for part in parts.split()[1:]]] = True
        elif unicodedata.combining(character) or unicodedata.category(character) == "Cn":
            found[point] = True
    return found


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INTS = types.Array(types.int64, 1, "C", readonly=True)
_FLAGS = types.Array(types.boolean, 1, "C", readonly=True)


@entry(types.void(_BYTES, _INTS, _FLAGS, types.boolean[::1]))
def _find_suspects(data, offsets, suspicious, found):
    """Notes which pieces hold a suspicious character."""
    for piece in range(found.size):
        i, stop, any_found = offsets[piece], offsets[piece + 1], False
        while i < stop:
            lead = np.int64(data[i])
            if lead < 0xCC:  # the code points below 0x300
                i += 1 if lead < 0x80 else 2
                continue
            if lead < 0xE0:
                code, size = (lead & 0x1F) << 6 | (data[i + 1] & 0x3F), 2
            elif lead < 0xF0:
                code = (lead & 0x0F) << 12 | np.int64(data[i + 1] & 0x3F) << 6
                code, size = code | (data[i + 2] & 0x3F), 3
            else:
                code = (lead & 0x07) << 18 | np.int64(data[i + 1] & 0x3F) << 12
                code |= np.int64(data[i + 2] & 0x3F) << 6 | (data[i + 3] & 0x3F)
                size = 4
            any_found |= suspicious[code]
            i += size
        found[piece] = any_found
