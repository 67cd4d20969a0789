"""Hashes of the words, or of the characters, of many documents at once. Pure.

A word is a run of letters, numbers and marks (Unicode's categories L, N and M, as Python knows
them) that begins with no mark. Case does not count, by Unicode's simple folding: "ΟΔΟΣ" and "οδος"
are one word, "ß" and "ss" two. What lies between words does not count at all: "Don't!" is the words
"don" and "t". In text that has no spaces between words (Chinese, Japanese, Thai) a word is as long
as a clause: count characters there.
"""

import sys
import unicodedata
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.rows.hash_loop import MARK, hash_characters, hash_text
from pipelines.rows.text_bytes import slices, utf8_bytes

_AT_ONCE = 1 << 18  # bytes of which words are hashed together, so that the cache holds them


class Words(NamedTuple):
    """The words of n documents, one after another.

    Attributes:
      hashes: uint64 [words]; equal words have equal ones.
      offsets: int64 [n + 1]; document i has hashes[offsets[i]:offsets[i + 1]].
      starts: int64 [words], the byte in which each begins, from the first text's first byte on.
      stops: int64 [words], the byte after its last one.
    """

    hashes: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


def hash_words(text: pa.LargeStringArray) -> Words:
    """Finds and hashes the words: those of "A b" and "", "é" have offsets [0, 2, 2, 3]."""
    parts, first_word, first_byte = [], 0, 0
    for some in slices(text, _AT_ONCE):
        data, bounds = utf8_bytes(some)
        words = hash_some_words(data, bounds)
        parts.append(
            Words(
                words.hashes,
                words.offsets[1:] + first_word,
                words.starts + first_byte,
                words.stops + first_byte,
            )
        )
        first_word, first_byte = first_word + len(words.hashes), first_byte + len(data)
    hashes, offsets, starts, stops = map(np.concatenate, zip(_NONE, *parts, strict=True))
    return Words(hashes, offsets, starts, stops)


_NONE = Words(np.zeros(0, np.uint64), *np.zeros((3, 1), np.int64))
_NONE = _NONE._replace(starts=np.zeros(0, np.int64), stops=np.zeros(0, np.int64))


def hash_some_words(data: np.ndarray, bounds: np.ndarray) -> Words:
    """The words of text that the cache holds: uint8 [bytes] and int64 [n + 1], as `utf8_bytes`."""
    room = (len(data) + len(bounds)) // 2
    hashes, spans = np.empty(room, np.uint64), np.empty((2, room), np.int64)
    offsets = np.empty(len(bounds), np.int64)
    found = hash_text(data, bounds, character_table(), hashes, spans[0], spans[1], offsets)
    return Words(hashes[:found], offsets, spans[0, :found], spans[1, :found])


def hash_some_characters(data: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The characters of words, and one space for what lies between two words of a document.

    Returns:
      uint64 [characters]; int64 [n + 1] offsets. "Ab, c!" is the four of "ab c" and a space's.
    """
    hashes, offsets = np.empty(len(data), np.uint64), np.empty(len(bounds), np.int64)
    found = hash_characters(data, bounds, character_table(), hashes, offsets)
    return hashes[:found], offsets


@cache
def character_table() -> np.ndarray:
    """Folded code points of what words are of, MARK set for marks, or 0: uint32 [code points]."""
    table = np.zeros(sys.maxunicode + 1, np.uint32)
    for point in (*range(0x40000), *range(0xE0000, 0xE1000)):  # no other planes have any
        character = chr(point)
        category = unicodedata.category(character)
        if category[0] in "LN":
            folded = character.casefold()
            folded = folded if len(folded) == 1 else character.lower()
            table[point] = ord(folded[0])
        elif category[0] == "M":
            table[point] = MARK | point
    return table
