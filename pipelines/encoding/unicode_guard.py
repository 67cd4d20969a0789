"""Code points that gigatoken and `tokenizers` class differently: documents with one are set apart.

GPT-2's pattern splits text by letters, numbers, white space and the rest. Each library carries its
own Unicode tables, and gigatoken's are newer: a letter assigned in between is a letter to one and
a symbol to the other, and the words around it come out cut differently. Pure: numpy and pyarrow.
"""

from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

import numpy as np
import pyarrow as pa

from pipelines.encoding.splitting.character_sets import CODE_POINTS, property_set
from pipelines.rows.text_bytes import utf8_bytes

# What `derive_disputed` finds with these versions: 4,657 code points (a test derives them anew).
DERIVED_WITH = {"gigatoken": "0.10.0", "tokenizers": "0.23.3"}
DISPUTED_RANGES = (
    (0x88F, 0x88F),
    (0xC5C, 0xC5C),
    (0xCDC, 0xCDC),
    (0xA7CE, 0xA7CF),
    (0xA7D2, 0xA7D2),
    (0xA7D4, 0xA7D4),
    (0xA7F1, 0xA7F1),
    (0x10940, 0x10959),
    (0x10EC5, 0x10EC7),
    (0x11DB0, 0x11DDB),
    (0x11DE0, 0x11DE9),
    (0x16EA0, 0x16EB8),
    (0x16EBB, 0x16ED3),
    (0x16FF2, 0x16FF6),
    (0x187F8, 0x187FF),
    (0x18D09, 0x18D1E),
    (0x18D80, 0x18DF2),
    (0x1E6C0, 0x1E6DE),
    (0x1E6E0, 0x1E6E2),
    (0x1E6E4, 0x1E6E5),
    (0x1E6E7, 0x1E6ED),
    (0x1E6F0, 0x1E6F4),
    (0x1E6FE, 0x1E6FF),
    (0x2B73A, 0x2B73F),
    (0x2CEA2, 0x2CEAD),
    (0x323B0, 0x33479),
)
_LETTER, _NUMBER, _SPACE, _OTHER = range(4)


@cache
def disputed_code_points() -> np.ndarray:
    """The set, ascending, as uint32: as stored, or derived where other versions are installed."""
    if all(version(name) == derived for name, derived in DERIVED_WITH.items()):
        ranges = [np.arange(first, last + 1) for first, last in DISPUTED_RANGES]
        return np.concatenate(ranges).astype(np.uint32)
    return derive_disputed()


def holds_disputed(text: pa.LargeStringArray) -> np.ndarray:
    """Which documents hold a disputed code point: bool [documents].

    Only bytes that can begin such a code point are looked at, so ASCII costs three comparisons a
    byte, done by numpy 64 at a time.

    Args:
      text: UTF-8 without nulls; may be a slice.
    """
    return _Finder.of_disputed().find(*utf8_bytes(text))


def derive_disputed() -> np.ndarray:
    """Asks both libraries for the class of every code point: ascending uint32, in about a second.

    Surrogates are left out: UTF-8 has none.

    Raises:
      RuntimeError: they differ over ASCII, so that the two cannot be compared in this way.
    """
    everything = np.arange(CODE_POINTS, dtype=np.uint32)
    everything = everything[(everything < 0xD800) | (everything >= 0xE000)]
    differ = _classes_in_tokenizers()[everything] != _classes_in_gigatoken(everything)
    if differ[:0x80].any():
        raise RuntimeError(f"gigatoken and tokenizers differ over ASCII: {everything[differ][:9]}")
    return everything[differ]


def _text_of(code_points: np.ndarray) -> str:
    return code_points.astype("<u4").tobytes().decode("utf-32-le")


def _classes_in_tokenizers() -> np.ndarray:
    """The class of each code point: 0 a letter, 1 a number, 2 white space, 3 another."""
    sets = [property_set(atom) for atom in (r"\p{L}", r"\p{N}", r"\s")]
    return np.select(sets, [_LETTER, _NUMBER, _SPACE], _OTHER)


def _classes_in_gigatoken(code_points: np.ndarray) -> np.ndarray:
    """By where it splits `a?1?!?`, each ? being the code point: it joins what is of its class."""
    # Where the package is missing, there is no engine whose classes would matter.
    from gigatoken import pretokenizer

    probes = np.tile(np.frombuffer("a?1?!?\n".encode("utf-32-le"), "<u4"), (len(code_points), 1))
    probes[:, [1, 3, 5]] = code_points[:, None]
    text = np.frombuffer(_text_of(probes.ravel()).encode(), np.uint8)
    lengths = np.fromiter((len(piece) for piece in pretokenizer(text.tobytes())), np.int64)
    starts = np.zeros(len(text) + 1, bool)
    starts[np.cumsum(lengths)] = True
    begins_piece = starts[:-1][(text & 0xC0) != 0x80].reshape(len(code_points), 7)
    joins_letter, joins_number, joins_other = ~begins_piece[:, [1, 3, 5]].T
    return np.select([joins_letter, joins_number, joins_other], [_LETTER, _NUMBER, _OTHER], _SPACE)


@dataclass(frozen=True)
class _Finder:
    """Finds documents with one of some code points above ASCII.

    Attributes:
      leads: the bytes that begin them in UTF-8.
      starts: bool [65536], whether two bytes begin one of them.
      wanted: bool [code points].
    """

    leads: tuple[int, ...]
    starts: np.ndarray
    wanted: np.ndarray

    @classmethod
    @cache
    def of_disputed(cls) -> "_Finder":
        return cls.of(disputed_code_points())

    @classmethod
    def of(cls, code_points: np.ndarray) -> "_Finder":
        wanted = np.zeros(CODE_POINTS, bool)
        wanted[code_points] = True
        code_points = np.flatnonzero(wanted)
        three, four = code_points >= 0x800, code_points >= 0x10000
        shift = np.select([four, three], [12, 6], 0)  # what follows the second byte's six bits
        leads = np.select([four, three], [0xF0, 0xE0], 0xC0) | code_points >> (shift + 6)
        starts = np.zeros(1 << 16, bool)
        starts[leads << 8 | 0x80 | code_points >> shift & 0x3F] = True
        return cls(tuple(np.unique(leads).tolist()), starts, wanted)

    def find(self, data: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Which documents hold one: bool [documents]."""
        found = np.zeros(len(bounds) - 1, bool)
        for lead in self.leads:
            at = np.flatnonzero(data == lead)
            at = at[self.starts[lead << 8 | data[at + 1].astype(np.int32)]]
            at = at[self.wanted[_code_points_at(data, at, lead)]]
            found[np.searchsorted(bounds, at, side="right") - 1] = True
        return found


def _code_points_at(data: np.ndarray, at: np.ndarray, lead: int) -> np.ndarray:
    """Puts code points together from UTF-8; the text is valid, so no byte is missing."""
    length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    code_points = np.full(len(at), lead & (0xFF >> (length + 1)), np.int32)
    for step in range(1, length):
        code_points = code_points << 6 | data[at + step] & 0x3F
    return code_points
