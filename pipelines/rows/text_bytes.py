"""The bytes of text columns, without a copy; their characters and words. Pure.

Words are those of `str.split()`, which splits at the 29 white-space characters of Unicode.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from textmill.pipelines.runtime.byte_vectors import AT_ONCE, count_bits, first_bit, in_range
from textmill.pipelines.runtime.compiled import entry, inner

# White space of several bytes, whose first bytes are C2, E1, E2 and E3.
_SPACES = (0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
_C2, _E1, _ONE, _THREE = np.uint8(0xC2), np.uint8(0xE1), np.uint8(1), np.uint8(3)
_TAB, _SEPARATOR, _FIVE = np.uint8(0x09), np.uint8(0x1C), np.uint8(5)
_BLOCK = 64  # bytes that are compared at once


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


def word_spans(data: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of words, as from `spans`.

    Args:
      data: uint8 [bytes], valid UTF-8.
      bounds: int64 [n + 1], where documents begin in `data`.
    """
    apart = np.empty(len(data), np.bool_)
    _mark_spaces(data, apart)
    return spans(apart, bounds)


@entry()
def _mark_spaces(data, apart):
    """Marks the bytes of white space in valid UTF-8."""
    place = 0
    while place < len(data):
        size = _space_bytes(data, place)
        apart[place] = size > 0
        for i in range(place + 1, place + size):
            apart[i] = True
        place += max(size, 1)


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
    data, bounds = utf8_bytes(text)
    counts = np.empty(len(bounds) - 1, np.int64)
    _count_words(data, bounds, counts)
    return counts


@entry()
def _count_words(data, bounds, counts):
    """Counts the words of each document, 64 bytes at a time."""
    for document in range(len(counts)):
        place, stop = bounds[document], bounds[document + 1]
        words, after_space, carried = np.int64(0), np.int64(1), np.int64(0)
        while place + AT_ONCE <= stop:
            spaces = in_range(data, place, _TAB, _FIVE) | in_range(data, place, _SEPARATOR, _FIVE)
            spaces |= (1 << carried) - 1
            carried = np.int64(0)
            # The first bytes of characters that may be white space of several bytes.
            long = in_range(data, place, _E1, _THREE) | in_range(data, place, _C2, _ONE)
            while long:
                at = first_bit(long)
                long &= long - 1
                size = np.int64(_space_bytes(data, place + at))
                spaces |= ((1 << size) - 1) << at
                carried = max(at + size - AT_ONCE, 0) * (size > 0)
            words += count_bits(~spaces & (spaces << 1 | after_space))
            place, after_space = place + AT_ONCE, np.int64(spaces < 0)
        counts[document] = words + _count_singly(data, place + carried, stop, after_space)


def find_characters(text: pa.LargeStringArray, wanted: np.ndarray, run: int = 1) -> np.ndarray:
    """Finds the texts with this many consecutive characters of a set: bool [n].

    Args:
      text: the texts.
      wanted: bool[code points], the set.
      run: number of characters in a row.
    """
    data, bounds = utf8_bytes(text)
    found = np.empty(len(text), np.bool_)
    _find_characters(data, bounds, wanted, _least_byte(wanted), run, found)
    return found


def _least_byte(wanted: np.ndarray) -> np.uint8:
    """The least byte that a character of a set begins with."""
    return np.uint8(chr(int(wanted.argmax())).encode("utf-8", "surrogatepass")[0])


@entry()
def _find_characters(data, bounds, wanted, least, run, found):
    """Tests each character, but skips blocks of bytes that none wanted begins with."""
    for document in range(len(found)):
        place, stop, length = bounds[document], bounds[document + 1], 0
        tried = place  # blocks before have such a byte
        while place < stop and length < run:
            if data[place] >= least:
                code, size = code_point(data, place)
                length = length + 1 if wanted[code] else 0
                place += size
                continue
            length = 0
            place += 1
            while place >= tried and place + _BLOCK <= stop:
                high = np.uint8(0)
                for i in range(_BLOCK):  # LLVM compares 32 bytes at once
                    high |= np.uint8(data[np.uint64(place + i)] >= least)
                if high:
                    tried = place + _BLOCK
                else:
                    place += _BLOCK
        found[document] = length >= run


@inner
def _may_be_long(byte):
    return np.uint8((np.uint8(byte - _E1) < _THREE) | (byte == _C2))


@inner
def _count_singly(data, place, stop, after_space):
    """Counts the words that begin before `stop`, character by character."""
    words = np.int64(0)
    while place < stop:
        size = np.int64(_space_bytes(data, place))
        words += after_space & np.int64(size == 0)
        place, after_space = place + max(size, 1), np.int64(size > 0)
    return words


@inner
def _space_bytes(data, place):
    """The bytes of the white space at a byte of valid UTF-8; 0 for other characters."""
    byte = data[place]
    if not _may_be_long(byte):
        return np.int64(_is_ascii_space(byte))
    code, size = code_point(data, place)
    for space in _SPACES:
        if code == space:
            return size
    return 0


@inner
def _is_ascii_space(byte):
    # \t \n \v \f \r; the separators 0x1c to 0x1f, and the space. Smaller bytes wrap around.
    return np.uint8((np.uint8(byte - _TAB) < _FIVE) | (np.uint8(byte - _SEPARATOR) < _FIVE))


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
