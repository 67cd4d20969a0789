"""Hashes of the words, or of the characters, of many documents at once. Pure.

A word is a run of letters, numbers and marks (Unicode's categories L, N and M, as Python knows
them) that begins with no mark. Case does not count, by Unicode's simple folding: "ΟΔΟΣ" and "οδος"
are one word, and so are "Straße", "STRASSE" and "Strasse". Turkish folds like all others: "I", "ı",
"İ" and "i" are one letter, and U+0307, which lower case makes of İ's dot, is none. What lies
between words does not count at all: "Don't!" is the words "don" and "t".

Scripts without spaces between words have a word for each character with its marks: Han, kana, Thai,
Lao, Khmer, Myanmar. `weigh_words` gives what such a word is worth beside others.

Legend: N bytes, D documents, W words, C characters, R runs of words.
"""

import sys
import unicodedata
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.host.compiled import entry, inner
from pipelines.rows.text_bytes import code_point, slices, utf8_bytes

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


def weigh_words(text: pa.LargeStringArray, starts: np.ndarray) -> np.ndarray:
    """What words are worth, int64 [words], in twelfths of a word of letters (`WORD`).

    Questions of XQuAD have 10.5 words in English, 16.5 characters in Chinese and 43 in Thai, which
    weigh 11 and 10.7 words: "two" -> 12, "二" -> 8, "ふ" -> 4, "ส" -> 3.

    Args:
      text: of documents.
      starts: int64 [words], as `hash_words` gives them.
    """
    return np.array([WORD, 3, 4, 8])[find_scripts(utf8_bytes(text)[0], starts, character_table())]


@cache
def character_table() -> np.ndarray:
    """Folded code points of what words are of, or 0: uint32 [code points].

    MARK is set for marks; THAI, KANA or HAN for characters that are words; SKIP is no letter.
    """
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
    table[_DOTLESS], table[_DOT] = ord("i"), SKIP
    table[[*map(ord, "ßẞ")]] = SHARP
    for flag, ranges in _WORDS.items():
        for points in ranges:
            is_letter = (table[points] > 0) & (table[points] < MARK)
            table[points][is_letter] |= flag
    return table


# ---- compiled ----

MARK = np.uint32(1 << 31)  # continues a word, but begins none
SKIP = MARK  # of no code point: neither continues a word nor ends it
WORD = 12  # what a word of letters is worth
THAI, KANA, HAN = np.uint32(1 << 29), np.uint32(2 << 29), np.uint32(3 << 29)  # words alone
_1 = np.uint32(1)
SHARP = MARK | np.uint32(0xDF)  # two letters s; begins no word
_S = np.uint64(0x73)
_DOTLESS, _DOT = 0x131, 0x307
_WORDS = {
    HAN: (
        *(slice(0x3005, 0x3008), slice(0x3400, 0x4DC0), slice(0x4E00, 0xA000)),
        *(slice(0xF900, 0xFB00), slice(0x20000, 0x40000)),
    ),
    KANA: (
        *(slice(0x3040, 0x3130), slice(0x3192, 0x31C0), slice(0x31F0, 0x3200)),  # and bopomofo
        *(slice(0xFF66, 0xFFA0), slice(0x1AFF0, 0x1B170)),
    ),
    THAI: (
        slice(0x0E00, 0x0F00),  # Thai, Lao
        *(slice(0x1000, 0x10A0), slice(0xA9E0, 0xAA00), slice(0xAA60, 0xAA80)),  # Myanmar
        slice(0x1780, 0x1800),  # Khmer
    ),
}
_SEED = np.uint64(0x9E3779B97F4A7C15)
_STEP = np.uint64(0xD6E8FEB86659FD93)
_LAST = np.uint64(0xC2B2AE3D27D4EB4F)
_32 = np.uint64(32)
_29 = np.uint64(29)
_SPACE = np.uint64(0x20)


@inner
def _finish(mixed):
    mixed = (mixed ^ mixed >> _29) * _LAST
    return mixed ^ mixed >> _32


def _inputs(types: Any) -> tuple[Any, Any, Any]:
    """The types of bytes, of places and of `character_table`: numba takes 0.3 s to import."""
    kinds = (types.uint8, types.int64, types.uint32)
    return tuple(types.Array(kind, 1, "C", readonly=True) for kind in kinds)  # pyright: ignore


def _same_words(types: Any) -> Any:
    data, ints, table = _inputs(types)
    return types.boolean[::1](data, ints, ints, ints, data, ints, ints, ints, ints, table)


@entry(lambda t: t.int64(*_inputs(t), t.uint64[::1], *[t.int64[::1]] * 3))
def hash_text(data, bounds, table, hashes, starts, stops, offsets):
    """Finds and hashes words.

    Args:
      data: uint8[N], UTF-8.
      bounds: int64[D + 1], where documents begin.
      table: uint32[code points], of `character_table`.
      hashes: uint64[W], becomes the hash of each word; has room for (N + D + 1) // 2.
      starts: int64[W], becomes its first byte.
      stops: int64[W], becomes the byte after its last one.
      offsets: int64[D + 1], becomes the first word of each document.

    Returns:
      How many words there are.
    """
    found, offsets[0] = 0, 0
    for document in range(bounds.size - 1):
        place, stop = bounds[document], bounds[document + 1]
        inside, alone, mixed = False, False, _SEED
        while place < stop:
            code, size = np.int64(data[place]), 1
            if code >= 0x80:
                code, size = code_point(data, place)
            folded = table[code]
            if inside and folded - _1 < THAI - _1:  # most: a letter of a word
                mixed = (mixed ^ np.uint64(folded)) * _STEP
                mixed ^= mixed >> _32
                place += size
                continue
            if folded >= MARK:
                if (inside or alone) and folded != SKIP:
                    letter = np.uint64(folded)
                    if folded == SHARP:
                        letter = _S
                        mixed = (mixed ^ letter) * _STEP
                        mixed ^= mixed >> _32
                    mixed = (mixed ^ letter) * _STEP
                    mixed ^= mixed >> _32
            else:
                if inside or alone:
                    hashes[found] = _finish(mixed)
                    stops[found] = place
                    found += 1
                inside, alone = 0 < folded < THAI, folded >= THAI
                if folded != 0:
                    starts[found] = place
                    mixed = (_SEED ^ np.uint64(folded)) * _STEP
                    mixed ^= mixed >> _32
            place += size
        if inside or alone:
            hashes[found] = _finish(mixed)
            stops[found] = stop
            found += 1
        offsets[document + 1] = found
    return found


@entry(lambda t: t.int64(*_inputs(t), t.uint64[::1], t.int64[::1]))
def hash_characters(data, bounds, table, hashes, offsets):
    """Hashes the characters of words, and a space for what lies between two.

    Args:
      data: uint8[N], UTF-8.
      bounds: int64[D + 1], where documents begin.
      table: uint32[code points], of `character_table`.
      hashes: uint64[C], becomes the hash of each; has room for N.
      offsets: int64[D + 1], becomes the first of each document.

    Returns:
      How many there are.
    """
    found, offsets[0] = 0, 0
    space = _finish(_SPACE * _STEP)
    for document in range(bounds.size - 1):
        place, stop = bounds[document], bounds[document + 1]
        inside = False
        while place < stop:
            code, size = np.int64(data[place]), 1
            if code >= 0x80:
                code, size = code_point(data, place)
            folded = table[code]
            if folded == SKIP:
                pass
            elif folded == 0 or (not inside and folded >= MARK):
                inside = False
            else:
                if not inside and found > offsets[document]:
                    hashes[found] = space
                    found += 1
                inside = True
                letter = _S if folded == SHARP else np.uint64(folded)
                hashes[found] = _finish(letter * _STEP)
                found += 1
                if folded == SHARP:
                    hashes[found] = hashes[found - 1]
                    found += 1
            place += size
        offsets[document + 1] = found
    return found


@inner
def _next_letter(data, place, stop, table):
    """The letter that a word has from a byte on, folded, and the byte after it; 0 at its end."""
    while place < stop:
        code, size = np.int64(data[place]), 1
        if code >= 0x80:
            code, size = code_point(data, place)
        place += size
        if table[code] != SKIP:
            return table[code], place
    return np.uint32(0), place


@inner
def _is_same_word(data, start, stop, others, place, end, table):
    letter = other = np.uint32(0)
    while True:
        if letter == SHARP:  # of which one s was compared
            letter = np.uint32(_S)
        else:
            letter, start = _next_letter(data, start, stop, table)
        if other == SHARP:
            other = np.uint32(_S)
        else:
            other, place = _next_letter(others, place, end, table)
        first = np.uint32(_S) if letter == SHARP else letter
        if first != (np.uint32(_S) if other == SHARP else other):
            return False
        if letter == 0:
            return True


@entry(lambda t: t.int64[::1](*_inputs(t)))
def find_scripts(data, starts, table):
    """What words begin with: int64[W], 1 for THAI, 2 for KANA, 3 for HAN, 0 for all others.

    Args:
      data: uint8[N], UTF-8.
      starts: int64[W], the first byte of each word.
      table: uint32[code points], of `character_table`.
    """
    scripts = np.zeros(starts.size, np.int64)
    for word in range(starts.size):
        code, _ = code_point(data, starts[word])
        scripts[word] = (table[code] & HAN) >> np.uint32(29)
    return scripts


@entry(_same_words)
def are_same_words(
    data, starts, stops, first_R, others, other_starts, other_stops, other_R, length_R, table
):
    """Whether runs of words are spelt alike, folded as their hashes are: for R pairs of runs.

    Args:
      data: uint8[N], UTF-8.
      starts: int64[W], the first byte of each word.
      stops: int64[W], the byte after its last one.
      first_R: int64, the first word of each run.
      others: uint8, UTF-8, in which the other runs are.
      other_starts: as `starts`, of these.
      other_stops: as `stops`.
      other_R: as `first_R`.
      length_R: int64, words of both runs.
      table: uint32[code points], of `character_table`.
    """
    same_R = np.ones(first_R.size, np.bool_)
    for run in range(first_R.size):
        for step in range(length_R[run]):
            a, b = first_R[run] + step, other_R[run] + step
            if not _is_same_word(
                data, starts[a], stops[a], others, other_starts[b], other_stops[b], table
            ):
                same_R[run] = False
                break
    return same_R
