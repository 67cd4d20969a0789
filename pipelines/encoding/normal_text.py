r"""Normalizes text columns: documents for --normalize, and as a tokenizer.json prescribes. Pure.

For --normalize, "\r\n" and a lone "\r" become "\n"; then `unicodedata` brings characters into the
normal form. Arrow's own `utf8_normalize` decomposes but does not compose, up to version 25
(apache/arrow#51225). `tokenizers` applies the normalizers of a tokenizer.json.

Both get only texts in which a compiled loop finds a character that could change or join with the
one before it. Those characters are found by normalizing each code point once.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache, partial
from typing import Literal

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding.character_sets import CODE_POINTS
from textmill.pipelines.encoding.reference import normalizers
from textmill.pipelines.rows.text_bytes import find_characters, utf8_bytes
from textmill.pipelines.runtime.byte_vectors import AT_ONCE, copy, first_bit, in_range
from textmill.pipelines.runtime.compiled import entry, inner
from textmill.pipelines.runtime.imports import pc

Form = Literal["NFC", "NFKC"]
# Normalizers that change each character regardless of its neighbours, except joining ones.
NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")
_FIRST = 0xA0  # all code points below are normal
_DECOMPOSED: dict[Form, Literal["NFD", "NFKD"]] = {"NFC": "NFD", "NFKC": "NFKD"}
_RETURN, _NEWLINE, _ONE = np.uint8(13), np.uint8(10), np.uint8(1)
_RUN = 32  # combining marks in a row that need sorting
_HAN = 0x20000  # no code point from here on combines with another
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
    return _replace_suspects(text, form)


def normalize_line_ends(text: pa.LargeStringArray) -> pa.LargeStringArray:
    r"""Replaces "\r\n" and lone "\r" by "\n"; returns the same array if there are none."""
    data, bounds = utf8_bytes(text)
    result, offsets = np.empty(len(data), np.uint8), np.empty(len(bounds), np.int64)
    if not _replace_returns(data, bounds, result, offsets):
        return text
    buffers = pa.py_buffer(offsets), pa.py_buffer(result[: offsets[-1]])
    return pa.LargeStringArray.from_buffers(len(text), *buffers)


@entry()
def _replace_returns(data, bounds, result, offsets):
    r"""Copies texts with "\n" for "\r\n" and for a lone "\r".

    Args:
      data: uint8[N], UTF-8.
      bounds: int64[n + 1], where texts begin in `data`.
      result: uint8[N], receives the texts.
      offsets: int64[n + 1], receives where they begin in `result`.

    Returns:
      Whether there is any "\r"; if not, nothing is copied.
    """
    if not _has_return(data):
        return False
    to = np.int64(0)
    for number in range(len(bounds) - 1):
        place, stop = bounds[number], bounds[number + 1]
        offsets[number] = to
        while place < stop:
            if place + AT_ONCE <= len(data):
                copy(data, place, result, to)  # whatever is too much is overwritten
                size = min(first_bit(in_range(data, place, _RETURN, _ONE)), stop - place)
            else:
                size = np.int64(data[place] != _RETURN)
                result[to] = data[place]
            place, to = place + size, to + size
            if place < stop and data[place] == _RETURN:
                result[to] = _NEWLINE
                place, to = place + 1, to + 1
                place += place < stop and data[place] == _NEWLINE
    offsets[-1] = to
    return True


@inner
def _has_return(data):
    r"""Whether there is any "\r"."""
    place = 0
    while place + AT_ONCE <= len(data):
        if in_range(data, place, _RETURN, _ONE) != 0:
            return True
        place += AT_ONCE
    for i in range(place, len(data)):
        if data[i] == _RETURN:
            return True
    return False


def _normalize_all(texts: pa.LargeStringArray, form: Form) -> list[str]:
    """`unicodedata.normalize`, but not in quadratic time for long runs of combining marks."""
    are_marks = np.zeros(CODE_POINTS, bool)
    are_marks[list(_marks(form))] = True
    has_run = find_characters(texts, are_marks, _RUN).tolist()
    sort = partial(_long_runs(form).sub, lambda run: _in_order(run[0], form))
    sorted_ = (sort(t) if long else t for t, long in zip(texts.to_pylist(), has_run, strict=True))
    return [unicodedata.normalize(form, text) for text in sorted_]


@cache
def _marks(form: Form) -> frozenset[int]:
    """The characters that decompose only into combining marks."""
    return frozenset(
        point
        for point in range(_FIRST, _HAN)
        if all(map(unicodedata.combining, unicodedata.normalize(_DECOMPOSED[form], chr(point))))
    )


@cache
def _long_runs(form: Form) -> re.Pattern[str]:
    """A pattern for long runs of marks."""
    inside = "".join(map(chr, sorted(_marks(form))))
    return re.compile(f"[{inside}]{{{_RUN},}}")


def _in_order(marks: str, form: Form) -> str:
    """Decomposes combining marks and sorts them canonically, which changes no normal form."""
    parts = {mark: unicodedata.normalize(_DECOMPOSED[form], mark) for mark in set(marks)}
    return "".join(sorted("".join(map(parts.__getitem__, marks)), key=unicodedata.combining))


@cache
def _joining_characters() -> frozenset[int]:
    """Code points that may be composed or reordered with a character before them."""
    joining = set(_JAMO)
    for point in range(_FIRST, _HAN):
        if unicodedata.combining(chr(point)):
            joining.add(point)
        elif parts := _composed_of(chr(point)):
            joining.add(parts[1])
    return frozenset(joining)


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
    return _replace_suspects(text, names)


def normalize_pieces(
    data: np.ndarray, offsets: np.ndarray, names: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Normalizes pieces of UTF-8 text, data[offsets[i] : offsets[i + 1]]."""
    buffers = pa.py_buffer(offsets), pa.py_buffer(data)
    text = pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers)
    return utf8_bytes(apply_normalizers(text, names))


def _replace_suspects(
    text: pa.LargeStringArray, how: Form | tuple[str, ...]
) -> pa.LargeStringArray:
    """Normalizes the texts that may change; returns the same array if nothing changes."""
    mask = pa.array(find_characters(text, _suspect_characters(how)))
    suspects = text.filter(mask)
    if isinstance(how, str):
        results = _normalize_all(suspects, how)
    else:
        results = [*map(normalizer_of(how).normalize_str, suspects.to_pylist())]
    replaced = pa.array(results, pa.large_string())
    return text if replaced.equals(suspects) else pc.replace_with_mask(text, mask, replaced)


@cache
def _suspect_characters(how: Form | tuple[str, ...]) -> np.ndarray:
    """The characters that may change: a text without them stays as it is. bool[code points].

    They include unassigned code points, to which a later Unicode may give a meaning.
    """
    is_form = isinstance(how, str)
    normalize = partial(unicodedata.normalize, how) if is_form else normalizer_of(how).normalize_str
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
