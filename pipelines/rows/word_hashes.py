"""Hashes the words, or the characters, of many documents at once.

A word is a run of letters, numbers and marks (Python's Unicode categories L, N and M) that does not
begin with a mark. Case is ignored, by Unicode's simple folding: "ΟΔΟΣ" and "οδος" are one word, and
so are "Straße", "STRASSE" and "Strasse". "I", "ı", "İ" and "i" are one letter, also in Turkish, and
U+0307, which lower-casing makes of İ's dot, is ignored. So is all text between words: "Don't!" has
the words "don" and "t".

In scripts without spaces (Han, kana, Thai, Lao, Khmer, Myanmar) each character with its marks is a
word. `weigh_words` gives the weight of such a word relative to others.

Legend: N bytes, D documents, W words, C characters, R runs of words.
"""

import sys
import unicodedata
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from textmill.pipelines.rows.text_bytes import code_point, slices, utf8_bytes
from textmill.pipelines.runtime.byte_vectors import first_bit
from textmill.pipelines.runtime.compiled import entry, inner, overlapping_eights

_AT_ONCE = 1 << 18  # bytes whose words are hashed together, small enough for the cache


class HashedWords(NamedTuple):
    """The words of n documents, one after another.

    Attributes:
      hashes: uint64 [words]; equal words have equal hashes.
      offsets: int64 [n + 1]; document i has hashes[offsets[i]:offsets[i + 1]].
      starts: int64 [words], the first byte of each, counted from the first byte of all documents.
      stops: int64 [words], the byte after the last one of each.
    """

    hashes: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


def hash_words(text: pa.LargeStringArray) -> HashedWords:
    """Finds and hashes the words: those of "A b" and "", "é" have offsets [0, 2, 2, 3]."""
    parts, first_word, first_byte = [], 0, 0
    for some in slices(text, _AT_ONCE):
        data, bounds = utf8_bytes(some)
        words = hash_some_words(data, bounds)
        parts.append(
            HashedWords(
                words.hashes,
                words.offsets[1:] + first_word,
                words.starts + first_byte,
                words.stops + first_byte,
            )
        )
        first_word, first_byte = first_word + len(words.hashes), first_byte + len(data)
    hashes, offsets, starts, stops = map(np.concatenate, zip(_NONE, *parts, strict=True))
    return HashedWords(hashes, offsets, starts, stops)


_NONE = HashedWords(np.zeros(0, np.uint64), *np.zeros((3, 1), np.int64))
_NONE = _NONE._replace(starts=np.zeros(0, np.int64), stops=np.zeros(0, np.int64))


def hash_some_words(data: np.ndarray, bounds: np.ndarray) -> HashedWords:
    """Hashes the words of a text that fits in the cache, given as by `utf8_bytes`."""
    room = (len(data) + len(bounds)) // 2
    hashes, spans = np.empty(room, np.uint64), np.empty((2, room), np.int64)
    offsets = np.empty(len(bounds), np.int64)
    text = data, overlapping_eights(data), bounds, character_table()
    words = hash_text(*text, hashes, spans[0], spans[1], offsets)
    return HashedWords(hashes[:words], offsets, spans[0, :words], spans[1, :words])


def hash_some_characters(data: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hashes the characters of words, and one space between two words of a document.

    Returns:
      uint64 [characters], int64 [n + 1] offsets: "Ab, c!" has the hashes of "ab c".
    """
    hashes, offsets = np.empty(len(data), np.uint64), np.empty(len(bounds), np.int64)
    characters = hash_characters(data, bounds, character_table(), hashes, offsets)
    return hashes[:characters], offsets


def weigh_words(text: pa.LargeStringArray, starts: np.ndarray) -> np.ndarray:
    """Weights of words, int64 [words], in twelfths of a word of letters (`WORD`).

    "two" -> 12, "二" -> 8, "ふ" -> 4, "ส" -> 3: questions of XQuAD have 10.5 words in English, and
    16.5 characters in Chinese and 43 in Thai, which weigh 11 and 10.7 words.

    Args:
      text: the documents.
      starts: int64 [words], the first byte of each word, from `hash_words`.
    """
    return np.array([WORD, 3, 4, 8])[find_scripts(utf8_bytes(text)[0], starts, character_table())]


@cache
def character_table() -> np.ndarray:
    """The folded code point of each character of words, 0 for others: uint32 [code points].

    MARK is set for marks; THAI, KANA or HAN for characters that are words; SKIP is ignored.
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
SKIP = MARK  # without a code point: neither continues a word nor ends it
WORD = 12  # the weight of a word of letters
THAI, KANA, HAN = np.uint32(1 << 29), np.uint32(2 << 29), np.uint32(3 << 29)  # each is a word
_1 = np.uint32(1)
SHARP = MARK | np.uint32(0xDF)  # ß: two letters s; begins no word
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
_8 = np.uint64(8)
_NO_BITS, _ALL_BITS = np.uint64(0), np.uint64(0xFFFFFFFFFFFFFFFF)
_LOW_BYTE, _TOP_BYTE = np.uint64(0xFF), np.uint64(0xFF << 56)
_GATHER = np.uint64(0x0102040810204080)  # the lowest bits of eight bytes become the top byte
_CASE, _CASES = np.uint8(0x20), np.uint64(0x2020202020202020)  # set in "a" and "1", not in "A"
_A, _LETTERS, _ZERO, _DIGITS = np.uint8(0x61), np.uint8(26), np.uint8(0x30), np.uint8(10)
_OTHER, _NOT_ASCII = np.uint8(0x80), np.uint64(0x8080808080808080)
_RUNS_AT_ONCE = 512


@inner
def _finish(mixed):
    mixed = (mixed ^ mixed >> _29) * _LAST
    return mixed ^ mixed >> _32


def _inputs(types: Any) -> tuple[Any, Any, Any]:
    """The types of bytes, offsets and `character_table`, made late: numba takes 0.3 s to import."""
    kinds = (types.uint8, types.int64, types.uint32)
    return tuple(types.Array(kind, 1, "C", readonly=True) for kind in kinds)  # pyright: ignore


def _same_words(types: Any) -> Any:
    data, ints, table = _inputs(types)
    return types.boolean[::1](data, ints, ints, ints, data, ints, ints, ints, ints, table)


@inner
def _may_be_of_word(byte):
    """1 for ASCII's letters and digits, and for all bytes of other characters."""
    is_letter = np.uint8((byte | _CASE) - _A) < _LETTERS
    return np.uint8(is_letter | (np.uint8(byte - _ZERO) < _DIGITS) | (byte >= _OTHER))


@inner
def _find_runs(data, place, stop, strip, bits, turns):
    """Finds runs of bytes that may be of words, until `turns` is full.

    Args:
      data: uint8[N], UTF-8.
      place: the byte to begin at, which continues no run.
      stop: the byte after the last one of the document.
      strip: uint8[2, 64], scratch.
      bits: uint64[8], the bytes of strip[1].
      turns: int64, out: the first byte of each run, and the byte after its last one.

    Returns:
      The number of runs; the byte to continue at, or `stop`.
    """
    count, before = 0, _NO_BITS
    while place < stop and count + 64 <= turns.size:
        size = min(64, stop - place)
        some = data[place : place + size]
        if size < 64:
            strip[0] = 0
            strip[0, :size] = some
            some = strip[0]
        for i in range(64):  # LLVM compares all at once
            strip[1, np.uint64(i)] = _may_be_of_word(some[np.uint64(i)])
        mask = _NO_BITS
        for i in range(8):
            mask = mask >> _8 | (bits[np.uint64(i)] * _GATHER & _TOP_BYTE)
        turning = mask ^ (mask << np.uint64(1) | before)
        before = mask >> np.uint64(63)
        while turning != _NO_BITS:
            turns[np.uint64(count)] = place + first_bit(np.int64(turning))
            turning &= turning - np.uint64(1)
            count += 1
        place += size
    if count & 1 and place < stop:
        count -= 1
        place = turns[count]
    elif count & 1:
        turns[count] = stop
        count += 1
    return count >> 1, place


@inner
def _hash_letters(letters, count):
    """Mixes up to eight letters, the bytes of each uint64 that are not 0, in place."""
    for word in range(count):  # LLVM mixes eight words at once
        rest, mixed = letters[np.uint64(word)], _SEED
        for _ in range(8):
            letter = rest & _LOW_BYTE
            more = (mixed ^ letter) * _STEP
            more ^= more >> _32
            mixed = more if letter != _NO_BITS else mixed
            rest >>= _8
        letters[np.uint64(word)] = mixed


def _text_and_words(types: Any) -> Any:
    data, ints, table = _inputs(types)
    eights = types.Array(types.int64, 1, "A", readonly=True, aligned=False)
    return types.int64(data, eights, ints, table, types.uint64[::1], *[types.int64[::1]] * 3)


@entry(_text_and_words)
def hash_text(data, eights, bounds, table, hashes, starts, stops, offsets):
    """Finds and hashes words.

    Runs of ASCII's letters and digits are words, and hashed many at once. Runs with other
    characters are scanned character by character.

    Args:
      data: uint8[N], UTF-8.
      eights: int64[N - 7], `overlapping_eights` of the data.
      bounds: int64[D + 1], where documents begin.
      table: uint32[code points], from `character_table`.
      hashes: uint64 of at least (N + D + 1) // 2 elements, receives the hash of each word.
      starts: int64 of the same size, receives the first byte of each word.
      stops: int64 of the same size, receives the byte after the last one of each word.
      offsets: int64[D + 1], receives the first word of each document.

    Returns:
      W, the number of words.
    """
    found, offsets[0] = 0, 0
    strip, turns = np.empty((2, 64), np.uint8), np.empty(2 * _RUNS_AT_ONCE, np.int64)
    bits, letters = strip[1].view(np.uint64), np.empty(_RUNS_AT_ONCE, np.uint64)
    is_ascii = np.empty(_RUNS_AT_ONCE, np.bool_)
    for document in range(bounds.size - 1):
        place, stop = bounds[document], bounds[document + 1]
        while place < stop:
            count, place = _find_runs(data, place, stop, strip, bits, turns)
            for run in range(count):
                start, end = turns[np.uint64(2 * run)], turns[np.uint64(2 * run + 1)]
                eight = _NOT_ASCII  # near the end of the data: byte by byte
                if start < eights.size:
                    eight = np.uint64(eights[np.uint64(start)]) | _CASES
                eight &= _ALL_BITS >> np.uint64(64 - 8 * min(end - start, 8))
                letters[np.uint64(run)] = eight
                is_ascii[np.uint64(run)] = eight & _NOT_ASCII == _NO_BITS
            _hash_letters(letters, count)
            for run in range(count):
                start, end = turns[np.uint64(2 * run)], turns[np.uint64(2 * run + 1)]
                mixed, is_plain = letters[np.uint64(run)], is_ascii[np.uint64(run)]
                if is_plain:
                    seen = np.uint8(0)
                    for number in range(start + 8, end):
                        byte = data[np.uint64(number)]
                        seen |= byte
                        mixed = (mixed ^ np.uint64(byte | _CASE)) * _STEP
                        mixed ^= mixed >> _32
                    is_plain = seen < _OTHER
                if is_plain:
                    hashes[np.uint64(found)] = _finish(mixed)
                    starts[np.uint64(found)], stops[np.uint64(found)] = start, end
                    found += 1
                else:
                    found = _hash_run(data, start, end, table, hashes, starts, stops, found)
        offsets[document + 1] = found
    return found


@inner
def _hash_run(data, place, stop, table, hashes, starts, stops, found):
    """Finds and hashes the words of a run, character by character; returns their last number."""
    inside, alone, mixed = False, False, _SEED
    while place < stop:
        code, size = np.int64(data[place]), 1
        if code >= 0x80:
            code, size = code_point(data, place)
        folded = table[code]
        if inside and folded - _1 < THAI - _1:  # the common case: a letter within a word
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
    return found


@entry(lambda t: t.int64(*_inputs(t), t.uint64[::1], t.int64[::1]))
def hash_characters(data, bounds, table, hashes, offsets):
    """Hashes the characters of words, and one space between two words.

    Args:
      data: uint8[N], UTF-8.
      bounds: int64[D + 1], where documents begin.
      table: uint32[code points], from `character_table`.
      hashes: uint64[N], receives the hash of each character.
      offsets: int64[D + 1], receives the first character of each document.

    Returns:
      C, the number of characters.
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
    """The folded letter of a word at or after a byte (0 at its end), and the byte after it."""
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
        if letter == SHARP:  # its first s is compared already
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
    """The script of each word's first character, int64[W]: 1 THAI, 2 KANA, 3 HAN, 0 any other.

    Args:
      data: uint8[N], UTF-8.
      starts: int64[W], the first byte of each word.
      table: uint32[code points], from `character_table`.
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
    """Whether two runs of words are spelt alike when folded, for R pairs of runs.

    Args:
      data: uint8[N], UTF-8, the text of the first runs.
      starts: int64[W], the first byte of each word.
      stops: int64[W], the byte after the last one of each word.
      first_R: int64, the first word of each run.
      others: uint8, UTF-8, the text of the second runs.
      other_starts: like `starts`, in `others`.
      other_stops: like `stops`, in `others`.
      other_R: like `first_R`, in `others`.
      length_R: int64, the words in each of the two runs.
      table: uint32[code points], from `character_table`.
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
