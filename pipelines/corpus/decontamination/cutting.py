"""Takes the paragraphs or lines that hold text of targets out of documents. Pure."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pipelines.host.arrow import pc
from pipelines.readers.documents import BOUNDARIES


def cut_out(text: pa.LargeStringArray, spans: np.ndarray, unit: str) -> pa.LargeStringArray:
    r"""The documents without the units that spans touch; "" if only white space is left.

    "a\n\nb c\n\nd" without the paragraph of its bytes 3 to 6 -> "a\n\nd".

    Args:
      text: of n documents.
      spans: int64 [m, 3]: document, first byte, and the byte after the last; by document.
      unit: paragraph or line, as `BOUNDARIES` ends them.
    """
    documents, firsts = np.unique(spans[:, 0], return_index=True)
    parts = np.split(spans[:, 1:], firsts[1:])
    edited = [
        _without(text[document].as_py().encode(), part, unit)
        for document, part in zip(documents.tolist(), parts, strict=False)
    ]
    is_edited = np.zeros(len(text), bool)
    is_edited[documents] = True
    return pc.replace_with_mask(text, pa.array(is_edited), pa.array(edited, pa.large_string()))


def _without(data: bytes, spans: np.ndarray, unit: str) -> str:
    """A document without the units that spans touch."""
    begins, stops, ends = map(np.array, zip(*_units(data, unit), strict=True))
    touched = np.zeros(len(begins) + 1, np.int64)
    np.add.at(touched, np.searchsorted(ends, spans[:, 0], side="right"), 1)
    np.add.at(touched, np.searchsorted(begins, spans[:, 1]), -1)
    kept = np.flatnonzero(np.cumsum(touched)[:-1] == 0).tolist()
    pieces = [data[begins[unit] : ends[unit]] for unit in kept]
    if kept and kept[-1] < len(begins) - 1:  # what ended it led to the next, which is gone
        pieces[-1] = data[begins[kept[-1]] : stops[kept[-1]]]
    left = b"".join(pieces).decode()
    return left if left.strip() else ""


def _units(data: bytes, unit: str) -> Iterator[tuple[int, int, int]]:
    """Where each unit begins, where it stops, and where the next one begins."""
    begin = 0
    for end in BOUNDARIES[unit].finditer(data):
        yield begin, end.start(), end.end()
        begin = end.end()
    if begin < len(data):
        yield begin, len(data), len(data)
