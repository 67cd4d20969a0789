r"""Sets of characters, as the regular expressions of the installed `tokenizers` define them.

The characters of a property such as `\p{L}` or `\s` are found by trying each with that library, so
they match its Unicode tables in any version.
"""

from functools import cache

import numpy as np

from textmill.pipelines.encoding.reference import Regex, normalizers

CODE_POINTS = 0x110000
_ASSIGNED = 0x40000  # code points from here on are unassigned, except tags and private ones
_CASED = 0x20000  # code points from here on are Han characters
_TAGS = range(0xE0000, 0xE1000)
_PRIVATE = 0xF0000
_PIECE = 1 << 14  # code points tried at once: the time of a replacement is more than linear


@cache
def property_set(atom: str) -> np.ndarray:
    r"""The characters of `\p{L}`, `\s` and the like: bool[code points], read-only.

    Raises:
      ValueError: `tokenizers` has no such property.
    """
    try:
        taken_out = normalizers.Replace(Regex(f"[{atom}]+"), "")
    except Exception as error:
        raise ValueError(f"{atom} is not a character class") from error
    kept = np.zeros(CODE_POINTS, bool)
    asked = _asked()
    for start in range(0, len(asked), _PIECE):
        text = asked[start : start + _PIECE].tobytes().decode("utf-32-le")
        left = taken_out.normalize_str(text).encode("utf-32-le")
        kept[np.frombuffer(left, "<u4")] = True
    kept[_ASSIGNED + 1 : _TAGS.start] = kept[_ASSIGNED]
    kept[_TAGS.stop : _PRIVATE] = kept[_ASSIGNED]
    kept[_PRIVATE + 1 :] = kept[_PRIVATE]
    kept[0xD800:0xE000] = kept[_ASSIGNED]  # surrogates never occur in UTF-8
    kept.flags.writeable = False
    return ~kept


@cache
def _asked() -> np.ndarray:
    """Code points that are tried; the others equal the last one before them."""
    points = np.arange(_ASSIGNED + 1, dtype="<u4")
    points = points[(points < 0xD800) | (points >= 0xE000)]
    return np.concatenate([points, np.array([*_TAGS, _PRIVATE], "<u4")])


def characters(first: str, last: str) -> np.ndarray:
    """The characters from `first` to `last`: bool[code points]."""
    members = np.zeros(CODE_POINTS, bool)
    members[ord(first) : ord(last) + 1] = True
    return members


def ignoring_case(character: str) -> np.ndarray:
    """The characters that equal this one if case is ignored: s, S and ſ for s."""
    members = np.zeros(CODE_POINTS, bool)
    folded = character.casefold()
    members[ord(character)] = True
    members[[point for point, other in _folded() if other == folded]] = True
    return members


@cache
def folds_to_several() -> frozenset[str]:
    """The case-folded forms of single characters that have several: ss for ß."""
    return frozenset(folded for _, folded in _folded() if len(folded) > 1)


@cache
def _folded() -> tuple[tuple[int, str], ...]:
    """Code points with case, and their case-folded forms."""
    points = [point for point in range(_CASED) if not 0xD800 <= point < 0xE000]
    cased = ((point, chr(point)) for point in points)
    return tuple((p, c.casefold()) for p, c in cased if c.casefold() != c or c.upper() != c)
