"""The bytes of text columns, without a copy, and their characters."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pipelines.host.compiled import inner


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
