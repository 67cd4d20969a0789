"""Counts words, lines and symbols of documents for quality rules, compiled by numba.

Legend: N bytes, D documents, W words, L lines.
"""

import numpy as np

from pipelines.corpus.english import characters
from pipelines.host.compiled import entry, inner
from pipelines.rows.text_bytes import code_point

_SPACE, _LETTER, _SOLID, _BREAK = (
    characters.SPACE,
    characters.LETTER,
    characters.SOLID,
    characters.BREAK,
)
_FNV, _FNV_BASIS = np.uint64(0x100000001B3), np.uint64(0xCBF29CE484222325)
_MOST_STOP_BYTES = 8


@inner
def _stop_word(data, start, stop, stop_words):
    """1 shifted by the number of the stop word; 0 for other words."""
    if stop - start > _MOST_STOP_BYTES:
        return 0
    hashed = _FNV_BASIS
    for i in range(start, stop):
        hashed = (hashed ^ np.uint64(data[i])) * _FNV
    for place in range(stop_words.size):
        if stop_words[place] == hashed:
            return 1 << place
    return 0


@entry()
def measure_words(data, words, offsets, table, stop_words):
    """Counts the words of each document by kind.

    Args:
      data: uint8[N], UTF-8.
      words: int64[2, W], where words start and stop.
      offsets: int64[D + 1], the first word of each document.
      table: uint32[code points], see `characters`.
      stop_words: uint64[S], hashes of stop words, at most 62.

    Returns:
      int64[5, D]: all words; words other than punctuation; the characters of these; words with a
      letter; different stop words.
    """
    counts = np.zeros((5, offsets.size - 1), np.int64)
    for document in range(offsets.size - 1):
        seen = 0
        for word in range(offsets[document], offsets[document + 1]):
            i, stop, kinds, length = words[0, word], words[1, word], 0, 0
            while i < stop:
                point, size = code_point(data, i)
                kinds |= np.int64(table[point])
                i, length = i + size, length + 1
            if kinds & _SOLID:
                counts[1, document] += 1
                counts[2, document] += length
            counts[3, document] += kinds & _LETTER != 0
            seen |= _stop_word(data, words[0, word], stop, stop_words)
        counts[0, document] = offsets[document + 1] - offsets[document]
        while seen:
            counts[4, document] += 1
            seen &= seen - 1
    return counts


@inner
def skip_spaces(data, start, stop, table):
    """The first byte from `start` on that is no white space, or `stop`."""
    i = start
    while i < stop:
        point, size = code_point(data, i)
        if not table[point] & _SPACE:
            break
        i += size
    return i


@inner
def _before_spaces(data, start, stop, table):
    """End of the last character that is no white space; `start` if there is none."""
    end = stop
    while end > start:
        i = end - 1
        while data[i] & 0xC0 == 0x80:
            i -= 1
        if not table[code_point(data, i)[0]] & _SPACE:
            break
        end = i
    return end


@inner
def _is_at(data, start, stop, a, b, c):
    return start + 3 <= stop and data[start] == a and data[start + 1] == b and data[start + 2] == c


@inner
def _count_line(data, start, stop, table, counts, document):
    first = skip_spaces(data, start, stop, table)
    last = _before_spaces(data, start, stop, table)
    counts[0, document] += 1
    is_bullet = first < stop and data[first] == 0x2D
    counts[1, document] += is_bullet or _is_at(data, first, stop, 0xE2, 0x80, 0xA2)
    dots = _is_at(data, max(start, last - 3), last, 0x2E, 0x2E, 0x2E)
    counts[2, document] += dots or _is_at(data, max(start, last - 3), last, 0xE2, 0x80, 0xA6)


@entry()
def measure_text(data, bounds, table):
    """Counts the lines of each document, as `str.splitlines` cuts them, and its symbols.

    Args:
      data: uint8[N], UTF-8.
      bounds: int64[D + 1], where documents begin.
      table: uint32[code points], see `characters`.

    Returns:
      int64[6, D]: lines; lines that begin with a bullet; lines that end in an ellipsis; hash signs;
      ellipses; characters.
    """
    counts = np.zeros((6, bounds.size - 1), np.int64)
    for document in range(bounds.size - 1):
        start, stop, dots = bounds[document], bounds[document + 1], 0
        i = start
        while i < stop:
            point, size = code_point(data, i)
            counts[5, document] += 1
            counts[3, document] += point == 0x23
            dots = dots + 1 if point == 0x2E else 0
            if dots == 3 or point == 0x2026:
                counts[4, document] += 1
                dots = 0
            if table[point] & _BREAK:
                _count_line(data, start, i, table, counts, document)
                start = i + size
                if point == 13 and start < stop and data[start] == 10:
                    start += 1
                    size += 1
                    counts[5, document] += 1
            i += size
        if start < stop:
            _count_line(data, start, stop, table, counts, document)
    return counts


@entry()
def find_runs(data, bounds, least, table, strip):
    """Finds the lines or paragraphs of each document: text between `least` or more newlines.

    Args:
      data: uint8[N], UTF-8.
      bounds: int64[D + 1], where documents begin.
      least: number of newlines that separate two; fewer belong to the text.
      table: uint32[code points], see `characters`.
      strip: bool, whether to strip white space around the document.

    Returns:
      int64[2, L], where they start and stop; int64[D + 1], the first of each document.
    """
    number = bounds.size - 1
    for i in range(data.size):
        number += data[i] == 10
    runs, offsets, count = np.empty((2, number), np.int64), np.zeros(bounds.size, np.int64), 0
    for document in range(bounds.size - 1):
        start, stop = bounds[document], bounds[document + 1]
        if strip:
            start = skip_spaces(data, start, stop, table)
            stop = _before_spaces(data, start, stop, table)
        i = start
        while i < stop:
            if data[i] != 10:
                i += 1
                continue
            end = i
            while i < stop and data[i] == 10:
                i += 1
            if i - end >= least:
                runs[0, count], runs[1, count] = start, end
                count, start = count + 1, i
        runs[0, count], runs[1, count] = start, stop
        count += 1
        offsets[document + 1] = count
    return runs[:, :count], offsets


@entry()
def measure_lines(data, bounds, table, short):
    """Finds the lines that are not blank, and counts them by kind.

    Args:
      data: uint8[N], UTF-8.
      bounds: int64[D + 1], where documents begin.
      table: uint32[code points], see `characters`.
      short: maximum number of characters of a short line.

    Returns:
      int64[2, L], where lines start and stop; int64[D + 1], the first line of each document;
      int64[4, D]: lines that end a sentence; short lines; newlines; characters other than newlines.
    """
    number = bounds.size - 1
    for i in range(data.size):
        number += data[i] == 10
    lines, offsets, count = np.empty((2, number), np.int64), np.zeros(bounds.size, np.int64), 0
    counts = np.zeros((4, bounds.size - 1), np.int64)
    for document in range(bounds.size - 1):
        i, stop = bounds[document], bounds[document + 1]
        while i <= stop:
            start, length, is_blank, kind = i, 0, True, np.int64(0)
            while i < stop and data[i] != 10:
                point, size = code_point(data, i)
                kind = np.int64(table[point])
                is_blank = is_blank and kind & _SPACE != 0
                i, length = i + size, length + 1
            counts[2, document] += i < stop
            counts[3, document] += length
            if not is_blank:
                lines[0, count], lines[1, count] = start, i
                count += 1
                counts[0, document] += kind & characters.ENDS_LINE != 0
                counts[1, document] += length <= short
            i += 1
        offsets[document + 1] = count
    return lines[:, :count], offsets, counts
