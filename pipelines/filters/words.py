"""Where words and lines begin and end, found in the bytes of many documents at once. Pure.

A word is what `str.split()` says it is: it ends at white space, of which Unicode has 29 kinds.
"""

import numpy as np
import pyarrow as pa

# Of one byte: \t \n \v \f \r, the separators 0x1c to 0x1f, and the space.
_IS_SPACE = np.zeros(256, bool)
_IS_SPACE[[*range(0x09, 0x0E), *range(0x1C, 0x21)]] = True
# The others, by their first byte: U+0085, U+00A0; U+1680; U+2000 to U+200A, U+2028, U+2029, U+202F,
# U+205F; U+3000.
_LONG_SPACES = {
    0xC2: (b"\x85", b"\xa0"),
    0xE1: (b"\x9a\x80",),
    0xE2: (
        *(bytes([0x80, last]) for last in (*range(0x80, 0x8B), 0xA8, 0xA9, 0xAF)),
        b"\x81\x9f",
    ),
    0xE3: (b"\x80\x80",),
}


def flat_text(text: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of all documents, uint8, and int64 [n + 1] where each begins in them."""
    _, offsets, data = text.buffers()
    bounds = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    first, last = (int(bounds[0]), int(bounds[-1])) if len(bounds) else (0, 0)
    data = np.frombuffer(data, np.uint8)[first:last] if data is not None else np.zeros(0, np.uint8)
    return data, bounds - first


def word_spans(data: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where words start and stop, as `spans` gives it.

    Args:
      data: uint8, valid UTF-8.
      bounds: int64 [n + 1], where documents begin in it.
    """
    return spans(_white_space(data), bounds)


def _white_space(data: np.ndarray) -> np.ndarray:
    """Which bytes are of white space: bool."""
    space = _IS_SPACE[data]
    firsts = np.flatnonzero(data >= min(_LONG_SPACES))  # of characters; few in most languages
    first_bytes = data[firsts]
    for lead, endings in _LONG_SPACES.items():
        leads = firsts[first_bytes == lead]
        for ending in endings if len(leads) else ():
            # UTF-8 is valid, so that a first byte has its followers before the end of the data.
            found = leads
            for place, byte in enumerate(ending, 1):
                found = found[data[found + place] == byte]
            for place in range(len(ending) + 1):
                space[found + place] = True
    return space


def spans(apart: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Runs of bytes that belong together, none of which goes on into the next document.

    Args:
      apart: bool [bytes], true for what lies between.
      bounds: int64 [n + 1], where documents begin.

    Returns:
      int64 [spans] each, where they start and stop: "ab c" and "d", with spaces apart and bounds
      [0, 4, 5], give [0, 3, 4] and [2, 4, 5].
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
    """int64 [n]: how many words `str.split()` finds in each document."""
    from pipelines.filters.word_loop import count_all  # imports numba

    data, bounds = flat_text(text)
    words = np.zeros(len(text), np.int64)
    count_all(data, bounds, _IS_SPACE.view(np.uint8), words)
    return words
