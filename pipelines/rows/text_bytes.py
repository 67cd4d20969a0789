"""The bytes of text columns, without a copy; their characters and words. Pure.

Words are those of `str.split()`, which splits at the 29 white-space characters of Unicode.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from textmill.pipelines.host.compiled import inner

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


def utf8_bytes(
    text: pa.LargeStringArray | pa.LargeBinaryArray,
) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of all texts, uint8, and where each text begins in them, int64 [n + 1].

    Args:
      text: the texts; may be a slice.

    Raises:
      TypeError: `text` is not an array of texts or bytes with 64-bit offsets.
      ValueError: `text` has nulls.
    """
    if not isinstance(text, (pa.LargeStringArray, pa.LargeBinaryArray)):
        raise TypeError(f"text is {type(text).__name__}, not a pyarrow LargeStringArray")
    if text.null_count:
        raise ValueError(f"text has {text.null_count} nulls; remove them or make them empty")
    _, offsets, data = text.buffers()
    if not len(text):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    bounds = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    return np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]], bounds - bounds[0]


def slices(text: pa.LargeStringArray, limit: int) -> Iterator[pa.LargeStringArray]:
    """Cuts an array into slices of at most `limit` bytes, or of one longer text."""
    _, bounds = utf8_bytes(text)
    start = 0
    while start < len(text):
        stop = int(np.searchsorted(bounds, bounds[start] + limit, side="right")) - 1
        stop = max(stop, start + 1)
        yield text.slice(start, stop - start)
        start = stop


def character_begins(data: np.ndarray) -> np.ndarray:
    """Where characters begin in UTF-8: int64."""
    return np.flatnonzero((data & 0xC0) != 0x80)


def overlapping_eights(data: np.ndarray) -> np.ndarray:
    """The eight bytes from each byte on, as overlapping int64; empty if there are fewer than 8."""
    return np.ndarray(max(len(data) - 7, 0), "<i8", data.data, 0, 1)


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


@inner
def code_point(data, i):
    """The code point at byte i of valid UTF-8, and its size in bytes."""
    lead = np.int64(data[i])
    if lead < 0x80:
        return lead, 1
    if lead < 0xE0:
        return (lead & 0x1F) << 6 | (data[i + 1] & 0x3F), 2
    if lead < 0xF0:
        return (lead & 0x0F) << 12 | np.int64(data[i + 1] & 0x3F) << 6 | (data[i + 2] & 0x3F), 3
    code = (lead & 0x07) << 18 | np.int64(data[i + 1] & 0x3F) << 12
    return code | np.int64(data[i + 2] & 0x3F) << 6 | (data[i + 3] & 0x3F), 4
