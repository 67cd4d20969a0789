r"""Sets of characters, as the regular expressions of the installed `tokenizers` have them.

What a property such as `\p{L}` or `\s` holds is asked of that library: its Unicode tables are those
that count, whichever version is installed. And the characters that stand for bytes in byte-level
vocabularies. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate

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


# ---- bytes as characters ----


def byte_characters() -> list[str]:
    """The printable character that stands for each of the 256 bytes: GPT-2's alphabet.

    Printable Latin-1 characters stand for themselves; the 68 other bytes take the code points
    from 256 on, in order: byte 0 is chr(256), a space chr(288). Source: Radford et al. 2019.
    """
    itself = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in itself]
    return [chr(byte) if byte in itself else chr(256 + others.index(byte)) for byte in range(256)]


def first_tokens(special_tokens: Sequence[str]) -> list[str]:
    """The vocabulary before any merge: special tokens, then the byte characters not among them."""
    return list(dict.fromkeys([*special_tokens, *sorted(byte_characters())]))


def spelt_bytes(tokens: Iterable[str]) -> list[bytes]:
    r"""The bytes that each token stands for in `byte_characters`: "Ġé" is b" \xe9".

    A token with another character stands for itself. A vocabulary of 50,000 takes 20 ms.
    """
    tokens = list(tokens)
    whole = "".join(tokens)
    table = {ord(character): chr(byte) for byte, character in enumerate(byte_characters())}
    others = {character for character in set(whole) if ord(character) not in table}
    if others:
        return [
            token.encode() if others.intersection(token) else _in_bytes(token, table)
            for token in tokens
        ]
    data, stops = _in_bytes(whole, table), list(accumulate(map(len, tokens)))
    return [data[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]


def _in_bytes(token: str, table: Mapping[int, str]) -> bytes:
    return token.translate(table).encode("latin-1")
