"""Removes paragraphs or lines with evaluation text from documents. Pure."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pipelines.host.arrow import pc
from pipelines.readers.documents import BOUNDARIES


def cut_out(text: pa.LargeStringArray, spans: np.ndarray, unit: str) -> pa.LargeStringArray:
    r"""Removes the units that overlap spans; a document is "" if only white space is left.

    "a\n\nb c\n\nd" without the paragraph of its bytes 3 to 6 -> "a\n\nd".

    Args:
      text: large_string [n], the documents.
      spans: int64 [m, 3], sorted: document, first byte, and the byte after the last.
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
    """The text of a document without the units that overlap spans."""
    begins, stops, ends = map(np.array, zip(*_units(data, unit), strict=True))
    touched = np.zeros(len(begins) + 1, np.int64)
    np.add.at(touched, np.searchsorted(ends, spans[:, 0], side="right"), 1)
    np.add.at(touched, np.searchsorted(begins, spans[:, 1]), -1)
    kept = np.flatnonzero(np.cumsum(touched)[:-1] == 0).tolist()
    pieces = [data[begins[unit] : ends[unit]] for unit in kept]
    if kept and kept[-1] < len(begins) - 1:  # cuts the separator at the end
        pieces[-1] = data[begins[kept[-1]] : stops[kept[-1]]]
    left = b"".join(pieces).decode()
    return left if left.strip() else ""


def _units(data: bytes, unit: str) -> Iterator[tuple[int, int, int]]:
    """Begin and stop of each unit, and begin of the next one."""
    begin = 0
    for end in BOUNDARIES[unit].finditer(data):
        yield begin, end.start(), end.end()
        begin = end.end()
    if begin < len(data):
        yield begin, len(data), len(data)
