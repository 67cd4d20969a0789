"""Text as the normalizer of a tokenizer.json writes it.

`tokenizers` does the work, text by text, but only where a compiled loop finds a character that it
could change, or that could join with the one before it. Which ones these are is asked of that
library. Pure.
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

# Those that change a character whatever stands beside it, but for what joins with it.
NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")
_ASSIGNED = 0x32400  # code points from here on are unassigned, private, or tags
_PIECE = 1 << 14  # characters that are asked at once


def normalizer_of(names: Sequence[str]) -> normalizers.Normalizer:
    """The normalizer as tokenizer.json has it; of several, a sequence."""
    found = [getattr(normalizers, name)() for name in names]
    return found[0] if len(found) == 1 else normalizers.Sequence(found)


def normalized(text: pa.LargeStringArray, names: tuple[str, ...]) -> pa.LargeStringArray:
    """Texts after some of NORMALIZERS; the same array where nothing changes.

    Args:
      text: large_string without nulls.
      names: of the normalizers, the first one first.
    """
    if not names:
        return text
    found = np.empty(len(text), bool)
    find_characters(*utf8_bytes(text), _suspect_characters(names), found)
    mask = pa.array(found)
    suspects = text.filter(mask).to_pylist()
    normalize = normalizer_of(names).normalize_str
    results = [normalize(document) for document in suspects]
    if results == suspects:
        return text
    return pc.replace_with_mask(text, mask, pa.array(results, pa.large_string()))


def normalize_pieces(
    data: np.ndarray, offsets: np.ndarray, names: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """The same for pieces of text, data[offsets[i] : offsets[i + 1]] of UTF-8."""
    buffers = pa.py_buffer(offsets), pa.py_buffer(data)
    text = pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers)
    return utf8_bytes(normalized(text, names))


@cache
def _suspect_characters(names: tuple[str, ...]) -> np.ndarray:
    """All characters without which a text stays as it is: bool[code points].

    Unassigned ones are among them: a later Unicode may give them a meaning.
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
        asked = known[start : start + _PIECE]
        answers = normalize("\n".join(asked)).split("\n")
        changed = zip(asked, answers, strict=True)
        suspects[[ord(character) for character, answer in changed if character != answer]] = True
    return suspects
