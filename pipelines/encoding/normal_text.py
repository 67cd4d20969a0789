"""Normalizes text as a tokenizer.json prescribes.

`tokenizers` normalizes only texts in which a compiled loop finds a character that could change or
join with the one before it. Those characters are found by normalizing each code point once.
"""
# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import, where pyright cannot see them.)

import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import normalizers

from pipelines.corpus.normalization import joining_characters
from pipelines.encoding.splitting.character_sets import CODE_POINTS
from pipelines.encoding.splitting.splitter import find_characters
from pipelines.rows.text_bytes import utf8_bytes

# Normalizers that change each character regardless of its neighbours, except joining ones.
NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")
_ASSIGNED = 0x32400  # code points from here on are unassigned, private, or tags
_PIECE = 1 << 14  # characters that are normalized at once


def normalizer_of(names: Sequence[str]) -> normalizers.Normalizer:
    """The normalizer with these names, a Sequence if there are several."""
    steps = [getattr(normalizers, name)() for name in names]
    return steps[0] if len(steps) == 1 else normalizers.Sequence(steps)


def normalized(text: pa.LargeStringArray, names: tuple[str, ...]) -> pa.LargeStringArray:
    """Applies some of NORMALIZERS; returns the same array if nothing changes.

    Args:
      text: large_string without nulls.
      names: names of the normalizers, in order.
    """
    if not names:
        return text
    is_suspect = np.empty(len(text), bool)
    find_characters(*utf8_bytes(text), _suspect_characters(names), is_suspect)
    mask = pa.array(is_suspect)
    suspects = text.filter(mask).to_pylist()
    normalize = normalizer_of(names).normalize_str
    results = [normalize(document) for document in suspects]
    if results == suspects:
        return text
    return pc.replace_with_mask(text, mask, pa.array(results, pa.large_string()))


def normalize_pieces(
    data: np.ndarray, offsets: np.ndarray, names: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Normalizes pieces of UTF-8 text, data[offsets[i] : offsets[i + 1]]."""
    buffers = pa.py_buffer(offsets), pa.py_buffer(data)
    text = pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers)
    return utf8_bytes(normalized(text, names))


@cache
def _suspect_characters(names: tuple[str, ...]) -> np.ndarray:
    """The characters that may change: a text without them stays as it is. bool[code points].

    They include unassigned code points, to which a later Unicode may give a meaning.
    """
    normalize = normalizer_of(names).normalize_str
    suspects = np.zeros(CODE_POINTS, bool)
    suspects[_ASSIGNED:] = True
    suspects[list(joining_characters())] = True
    known = []
    for point in range(_ASSIGNED):
        category = unicodedata.category(chr(point))
        if category == "Cn":
            suspects[point] = True
        elif category != "Cs" and point != ord("\n"):
            known.append(chr(point))
    for start in range(0, len(known), _PIECE):
        before = known[start : start + _PIECE]
        after = normalize("\n".join(before)).split("\n")
        suspects[[ord(c) for c, normal in zip(before, after, strict=True) if c != normal]] = True
    return suspects
