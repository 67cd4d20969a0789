r"""Sets of characters, as the regular expressions of the installed `tokenizers` have them.

What a property such as `\p{L}` or `\s` holds is asked of that library: its Unicode tables are those
that count, whichever version is installed. Pure.
"""

from functools import cache

import numpy as np
from tokenizers import Regex
from tokenizers.normalizers import Replace

CODE_POINTS = 0x110000
_ASSIGNED = 0x40000  # code points from here on are of no known use, tags and private ones apart
_CASED = 0x20000  # code points from here on are Han characters
_TAGS = range(0xE0000, 0xE1000)
_PRIVATE = 0xF0000
_PIECE = 1 << 14  # code points asked at once: a replacement takes time that grows faster than them


@cache
def property_set(atom: str) -> np.ndarray:
    r"""The characters of `\p{L}`, `\s` and the like: bool[code points], not to be changed.

    Raises:
      ValueError: `tokenizers` has no such property.
    """
    try:
        taken_out = Replace(Regex(f"[{atom}]+"), "")
    except Exception as error:
        raise ValueError(f"{atom} is no class of characters") from error
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
    """Code points that are asked one by one; the others are as the last before them."""
    points = np.arange(_ASSIGNED + 1, dtype="<u4")
    points = points[(points < 0xD800) | (points >= 0xE000)]
    return np.concatenate([points, np.array([*_TAGS, _PRIVATE], "<u4")])


def characters(first: str, last: str) -> np.ndarray:
    """The characters from one to another: bool[code points]."""
    found = np.zeros(CODE_POINTS, bool)
    found[ord(first) : ord(last) + 1] = True
    return found


def ignoring_case(character: str) -> np.ndarray:
    """The characters that are this one but for case: s, S and ſ for s."""
    found = np.zeros(CODE_POINTS, bool)
    folded = character.casefold()
    found[ord(character)] = True
    found[[point for point, other in _folded() if other == folded]] = True
    return found


@cache
def folds_to_several() -> frozenset[str]:
    """What single characters become when case is ignored, if it is several: ss of ß."""
    return frozenset(folded for _, folded in _folded() if len(folded) > 1)


@cache
def _folded() -> tuple[tuple[int, str], ...]:
    """Code points with case, and what they become when it is ignored."""
    points = [point for point in range(_CASED) if not 0xD800 <= point < 0xE000]
    cased = ((point, chr(point)) for point in points)
    return tuple((p, c.casefold()) for p, c in cased if c.casefold() != c or c.upper() != c)
