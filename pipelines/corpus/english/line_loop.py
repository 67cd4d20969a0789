"""Chooses lines of documents as C4 does, and counts sentences; compiled by numba.

Legend: N bytes, D documents, L lines.
"""

import numpy as np

from pipelines.corpus.english.characters import BREAK, MARK, SPACE, TERMINAL
from pipelines.host.compiled import entry, inner
from pipelines.rows.text_bytes import code_point

_NOTES = (b"[edit]", b"[citation needed]")


@inner
def _line(data, start, stop, table):
    """End of the line that begins at `start`, and begin of the next."""
    i = start
    while i < stop:
        point, size = code_point(data, i)
        if table[point] & BREAK:
            after = i + size
            if point == 13 and after < stop and data[after] == 10:
                after += 1
            return i, after
        i += size
    return stop, stop


@inner
def _words(data, start, stop, table):
    """Start and stop of a stripped line, its number of words, and characters of the longest."""
    first, last, words, longest, length, i = stop, start, 0, 0, 0, start
    while i < stop:
        point, size = code_point(data, i)
        if table[point] & SPACE:
            length = 0
        else:
            words += length == 0
            length += 1
            longest = max(longest, length)
            first, last = min(first, i), i + size
        i += size
    return first, last, words, longest


@inner
def _holds_at(data, i, stop, phrase):
    """Whether the text at `i` begins with a lower-case phrase, ignoring case."""
    if i + phrase.size > stop:
        return False
    for j in range(phrase.size):
        byte = data[i + j]
        if 0x41 <= byte <= 0x5A:
            byte |= 0x20
        if byte != phrase[j]:
            return False
    return True


@inner
def _holds_any(data, start, stop, phrases, bounds, firsts):
    for i in range(start, stop):
        if firsts[data[i]]:
            for n in range(bounds.size - 1):
                if _holds_at(data, i, stop, phrases[bounds[n] : bounds[n + 1]]):
                    return True
    return False


@inner
def _first_held(data, start, stop, phrases, bounds, firsts):
    """Number of the first phrase that the text contains; the number of phrases if none."""
    for n in range(bounds.size - 1):
        phrase = phrases[bounds[n] : bounds[n + 1]]
        for i in range(start, stop):
            if firsts[data[i]] and _holds_at(data, i, stop, phrase):
                return n
    return bounds.size - 1


@inner
def _note(data, i, stop):
    """Bytes of the note that begins at `i`: [3], [], [edit] or [citation needed]; 0 if none."""
    j = i + 1
    while j < stop and 0x30 <= data[j] <= 0x39:
        j += 1
    if j < stop and data[j] == 0x5D:
        return j + 1 - i
    for note in _NOTES:
        size = len(note)
        if i + size <= stop:
            same = True
            for k in range(size):
                same = same and data[i + k] == note[k]
            if same:
                return size
    return 0


@inner
def _copy(data, start, stop, notes, out, into):
    """Copies a line without notes; returns where the copy ends."""
    i = start
    while i < stop:
        size = _note(data, i, stop) if notes and data[i] == 0x5B else 0
        if size:
            i += size
        else:
            out[into] = data[i]
            into, i = into + 1, i + 1
    return into


@inner
def _ends_a_sentence(out, start, stop):
    if start == stop:
        return False
    last = out[stop - 1]
    if last == 0x2E:
        return not (stop - start >= 3 and out[stop - 2] == 0x2E and out[stop - 3] == 0x2E)
    return last == 0x3F or last == 0x21 or last == 0x22 or last == 0x27


@entry()
def choose_lines(data, bounds, table, limits, pages, lines):
    """Copies the lines to keep.

    Args:
      data: uint8[N], UTF-8.
      bounds: int64[D + 1], where documents begin.
      table: uint32[code points], see `characters`.
      limits: int64[4]: minimum words of a line; maximum characters of a word, 0 for no limit;
        whether to remove notes; whether a line must end a sentence.
      pages: phrases that drop a document: uint8[bytes]; int64[P + 1], where they begin; bool[256],
        their first bytes in either case.
      lines: phrases that remove a line, like `pages`. The two lists alternate: first of `pages`,
        first of `lines`, second of `pages`, and so on.

    Returns:
      uint8[bytes], the lines, with a newline after each; int64[2, L], where they start and stop;
      int64[D + 1], the first line of each document; bool[D], whether a phrase drops a document.
    """
    number = bounds.size - 1
    for i in range(data.size):
        number += data[i] < 0x20 or data[i] >= 0xC2
    out = np.empty(data.size + bounds.size, np.uint8)
    spans, offsets = np.empty((2, number), np.int64), np.zeros(bounds.size, np.int64)
    is_dropped = np.zeros(bounds.size - 1, np.bool_)
    into, count = 0, 0
    for document in range(bounds.size - 1):
        i, stop = bounds[document], bounds[document + 1]
        while i < stop and not is_dropped[document]:
            end, after = _line(data, i, stop, table)
            first, last, words, longest = _words(data, i, end, table)
            i = after
            if limits[1] and longest > limits[1] or words < limits[0] or not words:
                continue
            written = _copy(data, first, last, limits[2] != 0, out, into)
            if limits[3] and not _ends_a_sentence(out, into, written):
                continue
            has_line = _holds_any(out, into, written, *lines)
            if _holds_any(out, into, written, *pages):
                page = _first_held(out, into, written, *pages)
                is_dropped[document] = not has_line or page <= _first_held(
                    out, into, written, *lines
                )
            if not has_line and not is_dropped[document]:
                is_first = count == offsets[document]  # may have begun with a note and a space
                begin = _words(out, into, written, table)[0] if is_first else into
                spans[0, count], spans[1, count] = begin, written
                out[written] = 10
                into, count = written + 1, count + 1
        offsets[document + 1] = count
    return out, spans[:, :count], offsets, is_dropped


@entry()
def count_sentences(data, words, offsets, table):
    """Counts the sentences of pieces of text; all punctuation at the end belongs to a sentence.

    Args:
      data: uint8[N], UTF-8.
      words: int64[2, W], where words and white space start and stop.
      offsets: int64[P + 1], the first word of each piece.
      table: uint32[code points], see `characters`.

    Returns:
      int64[P], number of sentences of each piece.
    """
    counts = np.zeros(offsets.size - 1, np.int64)
    for piece in range(offsets.size - 1):
        ends = False
        for word in range(offsets[piece], offsets[piece + 1]):
            i, stop, is_mark, characters, kind = (
                words[0, word],
                words[1, word],
                True,
                0,
                np.int64(0),
            )
            while i < stop:
                point, size = code_point(data, i)
                kind = np.int64(table[point])
                is_mark = is_mark and kind & MARK != 0
                i, characters = i + size, characters + 1
            if characters == 1 and kind & TERMINAL:
                ends = True
            elif ends and not is_mark:
                counts[piece] += 1
                ends = False
        counts[piece] += offsets[piece + 1] > offsets[piece]
    return counts
