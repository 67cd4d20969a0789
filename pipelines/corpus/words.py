"""Finds and counts words and other runs in the bytes of many documents at once. Pure.

Words are those of `str.split()`, which splits at the 29 white-space characters of Unicode.
"""

import numpy as np
import pyarrow as pa

from pipelines.rows.text_bytes import slices, utf8_bytes

_AT_ONCE = 1 << 18  # bytes of text counted together, so that they fit the CPU's cache
# White space of several bytes, by first byte: U+0085, U+00A0; U+1680; U+2000 to U+200A, U+2028,
# U+2029, U+202F, U+205F; U+3000.
_LONG_SPACES = {
    0xC2: (b"\x85", b"\xa0"),
    0xE1: (b"\x9a\x80",),
    0xE2: (
        *(bytes([0x80, last]) for last in (*range(0x80, 0x8B), 0xA8, 0xA9, 0xAF)),
        b"\x81\x9f",
    ),
    0xE3: (b"\x80\x80",),
}


def word_spans(data: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of words, as from `spans`.

    Args:
      data: uint8 [bytes], valid UTF-8.
      bounds: int64 [n + 1], where documents begin in `data`.
    """
    return spans(_white_space(data), bounds)


def _white_space(data: np.ndarray) -> np.ndarray:
    """Bool [bytes]: whether a byte belongs to a white-space character."""
    # \t \n \v \f \r; the separators 0x1c to 0x1f, and the space. Smaller bytes wrap around.
    space = (data - np.uint8(0x09) < 5) | (data - np.uint8(0x1C) < 5)
    firsts = np.flatnonzero(data >= min(_LONG_SPACES))  # first bytes; few in most languages
    first_bytes = data[firsts]
    for lead, endings in _LONG_SPACES.items():
        leads = firsts[first_bytes == lead]
        for ending in endings if len(leads) else ():
            # UTF-8 is valid, so a first byte is followed by the rest of its character.
            matches = leads
            for place, byte in enumerate(ending, 1):
                matches = matches[data[matches + place] == byte]
            for place in range(len(ending) + 1):
                space[matches + place] = True
    return space


def spans(apart: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds runs of bytes between separators; no run crosses the end of a document.

    Args:
      apart: bool [bytes], true for separators.
      bounds: int64 [n + 1], where documents begin.

    Returns:
      Starts and stops of the runs, int64 [spans] each: for "ab c" and "d", separated at spaces,
      with bounds [0, 4, 5], [0, 3, 4] and [2, 4, 5].
    """
    ends = ~apart
    ends[:-1] &= apart[1:]
    inner = bounds[(bounds > 0) & (bounds < len(apart))]
    ends[inner - 1] |= ~apart[inner - 1]
    return _starts(apart, bounds), np.flatnonzero(ends) + 1


def _starts(apart: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    begins = ~apart
    begins[1:] &= apart[:-1]
    inner = bounds[(bounds > 0) & (bounds < len(apart))]
    begins[inner] |= ~apart[inner]
    return np.flatnonzero(begins)


def count_words(text: pa.LargeStringArray) -> np.ndarray:
    """int64 [n]: number of words that `str.split()` finds in each document."""
    counts = [np.zeros(0, np.int64)]
    for some in slices(text, _AT_ONCE):
        data, bounds = utf8_bytes(some)
        counts.append(np.diff(np.searchsorted(_starts(_white_space(data), bounds), bounds)))
    return np.concatenate(counts)
