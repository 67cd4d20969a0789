r"""GPT-2's splitting pattern.

It is tried from left to right, where the last word ended:

    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

Source: Radford et al. 2019, https://github.com/openai/gpt-2/blob/master/src/encoder.py. In terms of
runs of characters of one class (letters, numbers, white space, others) that is: a word is a run,
but the last white space of a run goes to what follows it if it is a space, and is a word of its own
if not; and an apostrophe that begins a word takes such letters along.

Cutting a whole chunk before its words are looked up keeps the loops without branches that a
processor must guess: five times as fast as word by word.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
from numba import types
from tokenizers import pre_tokenizers

from pipelines.encoding.unicode_guard import classes_in_tokenizers
from pipelines.host.compiled import entry, inner

CHUNK = 1 << 14  # words, and bytes of text, that are cut at once
_LETTER, _NUMBER, _SPACE, _OTHER, _NOTHING = range(5)  # what comes before a document has no class
_STARTS, _RUNS, _CHANGES = range(3)  # scratch[3, 3 CHUNK + 4]: at most two starts a byte are found
# at[5]: the next document, the next byte in it, the class and size of the character before it, and
# how many starts were found
_DOCUMENT, _PLACE, _KIND, _STEP, _FOUND = range(5)
_APOSTROPHE, _BLANK = 39, 32
_PLANES = 0x40000  # code points from here on are private, or will never be letters


def pre_tokenizer(add_prefix_space: bool) -> pre_tokenizers.PreTokenizer:
    """The pattern as tokenizer.json has it."""
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)


def cut(data: np.ndarray, offsets: np.ndarray) -> Iterator[np.ndarray]:
    """Where the words of documents start, chunk by chunk; see `patterns.table`."""
    scratch, at = np.empty((3, 3 * CHUNK + 4), np.int64), np.zeros(5, np.int64)
    at[_PLACE], at[_KIND] = offsets[0], _NOTHING
    while at[_DOCUMENT] < len(offsets) - 1:
        words = _cut_chunk(data, offsets, _character_classes(), scratch, at)
        yield scratch[_STARTS, : words + 1]
        scratch[_STARTS, 0] = scratch[_STARTS, words]
        at[_FOUND] -= words


@cache
def _character_classes() -> np.ndarray:
    """Whether a code point is a letter, a number, white space or another: uint8[code points].

    As the installed `tokenizers` has it; takes 0.05 s.
    """
    classes = np.full(0x110000, _OTHER, np.uint8)
    points = np.arange(_PLANES, dtype=np.uint32)
    points = points[(points < 0xD800) | (points >= 0xE000)]
    classes[points] = classes_in_tokenizers(points)
    return classes


@inner
def _code_point(data, i):
    """The code point that begins at byte i, above ASCII, and how many bytes it takes."""
    lead = np.int64(data[i])
    if lead < 0xE0:
        return (lead & 0x1F) << 6 | (data[i + 1] & 0x3F), 2
    if lead < 0xF0:
        return (lead & 0x0F) << 12 | np.int64(data[i + 1] & 0x3F) << 6 | (data[i + 2] & 0x3F), 3
    code = (lead & 0x07) << 18 | np.int64(data[i + 1] & 0x3F) << 12
    return code | np.int64(data[i + 2] & 0x3F) << 6 | (data[i + 3] & 0x3F), 4


@inner
def _find_runs(data, kinds, i, stop, kind, step, runs, changes):
    """Notes where the class of characters changes, from what to what, and the step back."""
    number = 0
    while i < stop:
        code, size = np.int64(data[i]), 1
        if code >= 0x80:
            code, size = _code_point(data, i)
        new = np.int64(kinds[code])
        runs[number] = i
        changes[number] = kind | new << 3 | step << 6
        number += new != kind
        kind, step = new, size
        i += size
    return number, i, kind, step


@inner
def _contraction(data, i, stop):
    """How many letters of s, t, re, ve, m, ll or d begin at byte i."""
    first = data[i]
    if first == 115 or first == 116 or first == 109 or first == 100:  # s t m d
        return 1
    if i + 1 < stop:
        second = data[i + 1]
        if (first == 114 or first == 118) and second == 101 or first == second == 108:  # re ve ll
            return 2
    return 0


@inner
def _find_starts(data, runs, changes, number, stop, starts, found):
    """Notes where words start, from the changes of class; may note the document's end."""
    last = starts[found - 1] if found else np.int64(-1)
    for change in range(number):
        place, what = runs[change], changes[change]
        before = place - (what >> 6)
        after_space = what & 7 == _SPACE
        start = before if after_space else place  # the last white space goes to what follows it
        if (
            (data[before] == _APOSTROPHE)
            & (what & 63 == _OTHER | _LETTER << 3)
            & (before == last)  # it begins a word
        ):
            start += _contraction(data, place, stop)
        starts[found] = start
        found += start != last  # a run of one space, or nothing left of the letters
        alone = after_space & (data[before] != _BLANK)
        starts[found] = place
        found += alone
        last = place if alone else start
    return found


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INTS = types.Array(types.int64, 1, "C", readonly=True)


@entry(types.int64(_BYTES, _INTS, _BYTES, types.int64[:, ::1], types.int64[::1]))
def _cut_chunk(data, offsets, kinds, scratch, at):
    """Notes where words start, from where `at` says on; returns how many words are whole."""
    starts = scratch[_STARTS]
    found, kind, step = at[_FOUND], at[_KIND], at[_STEP]
    while found <= CHUNK and at[_DOCUMENT] < offsets.size - 1:
        stop = offsets[at[_DOCUMENT] + 1]
        until = min(at[_PLACE] + CHUNK, stop)
        runs, changes = scratch[_RUNS], scratch[_CHANGES]
        number, place, kind, step = _find_runs(
            data, kinds, at[_PLACE], until, kind, step, runs, changes
        )
        found = _find_starts(data, runs, changes, number, stop, starts, found)
        if place == stop:
            kind, step = np.int64(_NOTHING), np.int64(0)
            at[_DOCUMENT] += 1
            found -= found > 0 and starts[found - 1] == stop
        at[_PLACE] = place
    at[_FOUND], at[_KIND], at[_STEP] = found, kind, step
    if at[_DOCUMENT] == offsets.size - 1:
        starts[found] = offsets[offsets.size - 1]  # where the last word ends is known now
        return found
    return found - 1
