r"""Normalizes text columns: documents for --normalize, and as a tokenizer.json prescribes. Pure.

For --normalize, "\r\n" and a lone "\r" become "\n"; then characters are brought into the normal
form. A quick check in Arrow (UAX #15) finds documents with a character that may not be normal; only
these go through `unicodedata`, so usual text passes at 0.7 to 5 GB/s. Arrow's own `utf8_normalize`
decomposes but does not compose, up to version 25 (apache/arrow#51225).

`tokenizers` normalizes only texts in which a compiled loop finds a character that could change or
join with the one before it. Those characters are found by normalizing each code point once.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal

import numpy as np
import pyarrow as pa
from tokenizers import normalizers

from pipelines.encoding.character_sets import CODE_POINTS
from pipelines.encoding.splitter import find_characters
from pipelines.host.imports import pc
from pipelines.rows.text_bytes import utf8_bytes

Form = Literal["NFC", "NFKC"]
# Normalizers that change each character regardless of its neighbours, except joining ones.
NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")
_LEADS = {"NFC": 0xCC, "NFKC": 0xC2}  # smallest first byte in UTF-8 of a suspect character
_FIRST = {"NFC": 0xC0, "NFKC": 0xA0}  # all code points below are normal
_DECOMPOSED: dict[Form, Literal["NFD", "NFKD"]] = {"NFC": "NFD", "NFKC": "NFKD"}
_RETURN = 13
_LONG, _RUN = 1000, 32  # characters of a text, and combining marks in a row, that need sorting
_HAN = 0x20000  # no code point from here on combines with another
_STABLE = 0x30000  # all code points from here on are normal: Unicode adds no composed characters
# Hangul vowels and final consonants: they compose by rule, and no table lists them.
_JAMO = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}
_ASSIGNED = 0x32400  # code points from here on are unassigned, private, or tags
_PIECE = 1 << 14  # characters that are normalized at once


def apply_form(text: pa.LargeStringArray, flag: str) -> pa.LargeStringArray:
    """Applies --normalize to texts; `none` leaves them unchanged."""
    if flag == "none":
        return text
    return normalize(normalize_line_ends(text), "NFC" if flag == "nfc" else "NFKC")


def normalize(text: pa.LargeStringArray, form: Form) -> pa.LargeStringArray:
    """Brings documents into a normal form; returns the same array if all are normal.

    Args:
      text: large_string [n], without nulls.
      form: NFC or NFKC.
    """
    mask = _may_change(text, form)
    suspects = text.filter(mask).to_pylist()
    results = [normalize_text(document, form) for document in suspects]
    if results == suspects:
        return text
    return pc.replace_with_mask(text, mask, pa.array(results, pa.large_string()))


def normalize_line_ends(text: pa.LargeStringArray) -> pa.LargeStringArray:
    r"""Replaces "\r\n" and lone "\r" by "\n"; returns the same array if there are none."""
    replace = pc.replace_substring
    if not (utf8_bytes(text)[0] == _RETURN).any():
        return text
    return replace(replace(text, "\r\n", "\n"), "\r", "\n")


def normalize_text(text: str, form: Form) -> str:
    """`unicodedata.normalize`, but not in quadratic time for long runs of combining marks."""
    if len(text) > _LONG:
        text = _long_runs(form).sub(lambda run: _in_order(run[0], form), text)
    return unicodedata.normalize(form, text)


@cache
def _long_runs(form: Form) -> re.Pattern[str]:
    """A pattern for long runs of characters that decompose into combining marks only."""
    marks = {
        point
        for point in range(_FIRST["NFKC"], _HAN)
        if all(map(unicodedata.combining, unicodedata.normalize(_DECOMPOSED[form], chr(point))))
    }
    inside = "".join(map(chr, sorted(marks)))
    return re.compile(f"[{inside}]{{{_RUN},}}")


def _in_order(marks: str, form: Form) -> str:
    """Decomposes combining marks and sorts them canonically, which changes no normal form."""
    parts = {mark: unicodedata.normalize(_DECOMPOSED[form], mark) for mark in set(marks)}
    return "".join(sorted("".join(map(parts.__getitem__, marks)), key=unicodedata.combining))


def _may_change(text: pa.LargeStringArray, form: Form) -> pa.BooleanArray:
    """Bool [n]: whether a document has a character that may not be normal."""
    data, bounds = utf8_bytes(text)
    may = np.zeros(len(text), bool)
    # Only documents with such a byte can have a suspect, so ASCII passes at memory speed.
    places = np.flatnonzero(data >= _LEADS[form])
    may[np.unique(np.searchsorted(bounds, places, side="right") - 1)] = True
    some = np.flatnonzero(may)
    if len(some):
        pattern = _suspects_of_form(form)
        may[some] = pc.match_substring_regex(text.take(pa.array(some)), pattern=pattern)
    return pa.array(may)


@cache
def _suspects_of_form(form: Form) -> str:
    """A pattern for characters with quick check No or Maybe, or that may be reordered."""
    suspects = set(_joining_characters())
    for point in range(_FIRST[form], _STABLE):
        if 0xD800 <= point < 0xE000:
            continue
        character = chr(point)
        if unicodedata.normalize(form, character) != character:
            suspects.add(point)
    return _set_of_characters(suspects)


@cache
def _joining_characters() -> frozenset[int]:
    """Code points that may be composed or reordered with a character before them."""
    joining = set(_JAMO)
    for point in range(_FIRST["NFKC"], _HAN):
        if unicodedata.combining(chr(point)):
            joining.add(point)
        elif parts := _composed_of(chr(point)):
            joining.add(parts[1])
    return frozenset(joining)


def _set_of_characters(suspects: Iterable[int]) -> str:
    """Code points as a character class of a regular expression."""
    ranges: list[list[int]] = []
    for point in sorted(suspects):
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges) + "]"


def _composed_of(character: str) -> list[int]:
    """The two code points that compose to the character; [] if there are none."""
    decomposition = unicodedata.decomposition(character)
    if not decomposition or decomposition.startswith("<"):
        return []
    parts = [int(part, 16) for part in decomposition.split()]
    return parts if len(parts) == 2 else []


# ---- normalizers of a tokenizer.json ----


def normalizer_of(names: Sequence[str]) -> normalizers.Normalizer:
    """The normalizer with these names, a Sequence if there are several."""
    steps = [getattr(normalizers, name)() for name in names]
    return steps[0] if len(steps) == 1 else normalizers.Sequence(steps)


def apply_normalizers(text: pa.LargeStringArray, names: tuple[str, ...]) -> pa.LargeStringArray:
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
    return utf8_bytes(apply_normalizers(text, names))


@cache
def _suspect_characters(names: tuple[str, ...]) -> np.ndarray:
    """The characters that may change: a text without them stays as it is. bool[code points].

    They include unassigned code points, to which a later Unicode may give a meaning.
    """
    normalize = normalizer_of(names).normalize_str
    suspects = np.zeros(CODE_POINTS, bool)
    suspects[_ASSIGNED:] = True
    suspects[list(_joining_characters())] = True
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
