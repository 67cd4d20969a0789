r"""Unicode normal forms and line ends of columns of text. Pure.

A line ends with "\n": "\r\n" and a lone "\r" become it. Then characters get their normal form.
`unicodedata` does the work, document by document, but only where a quick check in Arrow finds a
character that could be other than normal (UAX #15, section 9): usual text passes at 0.7 to 5 GB/s.
Arrow's own `utf8_normalize` decomposes and does not compose up to version 25 (apache/arrow#51225).
"""

import functools
import re
import unicodedata
from collections.abc import Iterable
from typing import Literal

import numpy as np
import pyarrow as pa

from pipelines.host.arrow import pc
from pipelines.rows.text_bytes import utf8_bytes

Form = Literal["NFC", "NFKC"]
_LEADS = {"NFC": 0xCC, "NFKC": 0xC2}  # of UTF-8: no suspect begins with a lower byte
_FIRST = {"NFC": 0xC0, "NFKC": 0xA0}  # no character below it is other than normal
_DECOMPOSED: dict[Form, Literal["NFD", "NFKD"]] = {"NFC": "NFD", "NFKC": "NFKD"}
_RETURN = 13
_LONG, _RUN = 1000, 32  # characters of text, and of marks in a row, that are worth a look
_HAN = 0x20000  # from here on, no character joins with another
_STABLE = 0x30000  # from here on, each is normal: Unicode adds no other composed characters
# Conjoining vowels and final consonants: they compose by rule, and no table lists them.
_JAMO = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}


def apply_form(text: pa.LargeStringArray, flag: str) -> pa.LargeStringArray:
    """Texts with lines and characters in the form of --normalize; none leaves them as they are."""
    if flag == "none":
        return text
    return normalize(normalize_line_ends(text), "NFC" if flag == "nfc" else "NFKC")


def normalize(text: pa.LargeStringArray, form: Form) -> pa.LargeStringArray:
    """The documents in a normal form; the very same array if all of them are.

    Args:
      text: large_string without nulls.
      form: NFC or NFKC.
    """
    mask = _may_change(text, form)
    suspects = text.filter(mask).to_pylist()
    results = [normalize_text(document, form) for document in suspects]
    if results == suspects:
        return text
    return pc.replace_with_mask(text, mask, pa.array(results, pa.large_string()))


def normalize_line_ends(text: pa.LargeStringArray) -> pa.LargeStringArray:
    r"""Each "\r\n" and each "\r" left becomes "\n"; the very same array if there are none."""
    replace = pc.replace_substring
    if not (utf8_bytes(text)[0] == _RETURN).any():
        return text
    return replace(replace(text, "\r\n", "\n"), "\r", "\n")


def normalize_text(text: str, form: Form) -> str:
    """As `unicodedata.normalize`, which takes quadratic time to sort many marks in a row."""
    if len(text) > _LONG:
        text = _long_runs(form).sub(lambda run: _in_order(run[0], form), text)
    return unicodedata.normalize(form, text)


@functools.cache
def _long_runs(form: Form) -> re.Pattern[str]:
    """Many characters in a row of which nothing but combining marks is left when decomposed."""
    marks = {
        point
        for point in range(_FIRST["NFKC"], _HAN)
        if all(map(unicodedata.combining, unicodedata.normalize(_DECOMPOSED[form], chr(point))))
    }
    inside = "".join(map(chr, sorted(marks)))
    return re.compile(f"[{inside}]{{{_RUN},}}")


def _in_order(marks: str, form: Form) -> str:
    """Combining marks decomposed and in canonical order (Unicode, D109), which changes no form."""
    parts = {mark: unicodedata.normalize(_DECOMPOSED[form], mark) for mark in set(marks)}
    return "".join(sorted("".join(map(parts.__getitem__, marks)), key=unicodedata.combining))


def _may_change(text: pa.LargeStringArray, form: Form) -> pa.BooleanArray:
    """Whether a document holds a character that normal text may not hold."""
    data, bounds = utf8_bytes(text)
    may = np.zeros(len(text), bool)
    # Only documents with such a byte hold a suspect: ASCII passes at the speed of memory.
    places = np.flatnonzero(data >= _LEADS[form])
    may[np.unique(np.searchsorted(bounds, places, side="right") - 1)] = True
    some = np.flatnonzero(may)
    # pyright: ignore comments: Arrow's compute functions are made when it is imported.
    matches = pc.match_substring_regex
    if len(some):
        may[some] = matches(text.take(pa.array(some)), pattern=_suspect_characters(form))
    return pa.array(may)


@functools.cache
def _suspect_characters(form: Form) -> str:
    """A class of all characters whose quick check says no or maybe, or that may be reordered."""
    suspects = set(joining_characters())
    for point in range(_FIRST[form], _STABLE):
        if 0xD800 <= point < 0xE000:
            continue
        character = chr(point)
        if unicodedata.normalize(form, character) != character:
            suspects.add(point)
    return set_of_characters(suspects)


@functools.cache
def joining_characters() -> frozenset[int]:
    """Code points that may be composed or reordered with a character before them."""
    found = set(_JAMO)
    for point in range(_FIRST["NFKC"], _HAN):
        if unicodedata.combining(chr(point)):
            found.add(point)
        elif parts := _composed_of(chr(point)):
            found.add(parts[1])
    return frozenset(found)


def set_of_characters(suspects: Iterable[int]) -> str:
    """Code points as a set of a regular expression."""
    ranges: list[list[int]] = []
    for point in sorted(suspects):
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges) + "]"


def _composed_of(character: str) -> list[int]:
    """The two code points that compose to it; [] if there are no two."""
    decomposition = unicodedata.decomposition(character)
    if not decomposition or decomposition.startswith("<"):
        return []
    parts = [int(part, 16) for part in decomposition.split()]
    return parts if len(parts) == 2 else []
