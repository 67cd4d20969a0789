"""Documents as the normalizer of a tokenizer.json writes them.

`tokenizers` does the work, document by document, but only where a quick check in Arrow finds a
character that it could change or that could join with the one before it. Which ones these are is
asked of that library. Pure.
"""
# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import, where pyright cannot see them.)

import sys
import unicodedata
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import normalizers

from pipelines.filters.normalization import joining_characters, set_of_characters
from pipelines.train.cutting import NORMALIZERS

_PIECE = 1 << 14  # characters that are asked at once


def normalizer_of(names: tuple[str, ...]) -> normalizers.Normalizer:
    """The normalizer as tokenizer.json has it; of several, a sequence."""
    found = [getattr(normalizers, NORMALIZERS[name])() for name in names]
    return found[0] if len(found) == 1 else normalizers.Sequence(found)


def normalized(text: pa.LargeStringArray, names: tuple[str, ...]) -> pa.LargeStringArray:
    """Documents after some normalizers of NORMALIZERS; the same array where nothing changes.

    Args:
      text: large_string without nulls.
      names: of the normalizers, the first one first.
    """
    if not names:
        return text
    mask = pc.match_substring_regex(text, pattern=_suspect_characters(names))
    normalizer = normalizer_of(names)
    suspects = text.filter(mask).to_pylist()
    results = [normalizer.normalize_str(document) for document in suspects]
    if results == suspects:
        return text
    return pc.replace_with_mask(text, mask, pa.array(results, pa.large_string()))


@cache
def _suspect_characters(names: tuple[str, ...]) -> str:
    """A set of all characters without which a document stays as it is, as a regular expression.

    Unassigned ones are among them: a later Unicode may give them a meaning.
    """
    normalizer = normalizer_of(names)
    suspects = set(joining_characters())
    known = []
    for point in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(point))
        if category == "Cn":
            suspects.add(point)
        elif category != "Cs" and point != ord("\n"):
            known.append(chr(point))
    for start in range(0, len(known), _PIECE):
        asked = known[start : start + _PIECE]
        answers = normalizer.normalize_str("\n".join(asked)).split("\n")
        suspects.update(
            ord(character)
            for character, answer in zip(asked, answers, strict=True)
            if character != answer
        )
    return set_of_characters(suspects)
