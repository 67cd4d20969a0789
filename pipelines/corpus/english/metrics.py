"""Measures documents for quality rules: words, lines, symbols, repetition; compiled by numba.

Repeats are found by 64-bit hashes. Legend: N bytes, D documents, W words, L lines.
"""

import numpy as np

from textmill.pipelines.corpus.english.tables import BREAK, ENDS_LINE, LETTER, SOLID, SPACE
from textmill.pipelines.rows.text_bytes import code_point
from textmill.pipelines.runtime.compiled import entry, inner

_FNV, _FNV_BASIS = np.uint64(0x100000001B3), np.uint64(0xCBF29CE484222325)
_MOST_STOP_BYTES = 8
_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd


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
      table: uint32[code points], see `character_table`.
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
            if kinds & SOLID:
                counts[1, document] += 1
                counts[2, document] += length
            counts[3, document] += kinds & LETTER != 0
            seen |= _stop_word(data, words[0, word], stop, stop_words)
        counts[0, document] = offsets[document + 1] - offsets[document]
        while seen:
            counts[4, document] += 1
            seen &= seen - 1
    return counts


@inner
def skip_spaces(data, start, stop, table):
    """The first byte from `start` on that is not white space, or `stop`."""
    i = start
    while i < stop:
        point, size = code_point(data, i)
        if not table[point] & SPACE:
            break
        i += size
    return i


@inner
def _before_spaces(data, start, stop, table):
    """End of the last character that is not white space; `start` if there is none."""
    end = stop
    while end > start:
        i = end - 1
        while data[i] & 0xC0 == 0x80:
            i -= 1
        if not table[code_point(data, i)[0]] & SPACE:
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
      table: uint32[code points], see `character_table`.

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
            if table[point] & BREAK:
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
      table: uint32[code points], see `character_table`.
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
      table: uint32[code points], see `character_table`.
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
                is_blank = is_blank and kind & SPACE != 0
                i, length = i + size, length + 1
            counts[2, document] += i < stop
            counts[3, document] += length
            if not is_blank:
                lines[0, count], lines[1, count] = start, i
                count += 1
                counts[0, document] += kind & ENDS_LINE != 0
                counts[1, document] += length <= short
            i += 1
        offsets[document + 1] = count
    return lines[:, :count], offsets, counts


@inner
def _slot(keys, stamps, key, stamp):
    """The slot of a key in a hash table, or a free slot; a slot is used if it has the stamp."""
    mask = keys.size - 1
    place = np.int64((key ^ key >> np.uint64(29)) * _BASE >> np.uint64(20)) & mask
    while stamps[place] == stamp and keys[place] != key:
        place = (place + 1) & mask
    return place


@inner
def _power_of_two(least):
    size = 16
    while size < least:
        size *= 2
    return size


@inner
def _hash_span(data, start, stop):
    """Hash and number of characters of a span."""
    hashed, characters = _FNV_BASIS, 0
    for i in range(start, stop):
        hashed = (hashed ^ np.uint64(data[i])) * _FNV
        characters += data[i] & 0xC0 != 0x80
    return hashed ^ hashed >> np.uint64(32), characters


@entry()
def repeated_spans(data, spans, offsets):
    """Counts the spans of each document that are repeats of earlier ones.

    Args:
      data: uint8[N], UTF-8.
      spans: int64[2, S], where spans start and stop.
      offsets: int64[D + 1], the first span of each document.

    Returns:
      int64[2, D]: number of repeats, and their characters.
    """
    documents, most = offsets.size - 1, 0
    for document in range(documents):
        most = max(most, offsets[document + 1] - offsets[document])
    keys, stamps = np.empty(_power_of_two(2 * most), np.uint64), np.zeros(0, np.int64)
    stamps = np.full(keys.size, -1, np.int64)
    repeats = np.zeros((2, documents), np.int64)
    for document in range(documents):
        for span in range(offsets[document], offsets[document + 1]):
            key, characters = _hash_span(data, spans[0, span], spans[1, span])
            place = _slot(keys, stamps, key, document)
            if stamps[place] == document:
                repeats[0, document] += 1
                repeats[1, document] += characters
            else:
                keys[place], stamps[place] = key, document
    return repeats


@inner
def _top(hashes, lengths, n, powers, keys, stamps, counts, slots, stamp):
    """Characters of all occurrences of the most frequent n-gram, and their number."""
    grams = hashes.size - n
    for i in range(grams):
        key = hashes[i + n] - hashes[i] * powers[n]
        place = _slot(keys, stamps, key, stamp)
        if stamps[place] != stamp:
            keys[place], stamps[place], counts[place] = key, stamp, 0
        counts[place] += 1
        slots[i] = place
    best = 0
    for i in range(grams):
        if counts[slots[i]] > counts[slots[best]]:
            best = i
    times = counts[slots[best]]
    return (lengths[best + n] - lengths[best] + n - 1) * times, times


@inner
def _repeated(hashes, lengths, n, powers, keys, stamps, stamp):
    """Characters of repeated n-grams that do not overlap each other."""
    i, repeated = 0, 0
    while i + n < hashes.size:
        key = hashes[i + n] - hashes[i] * powers[n]
        place = _slot(keys, stamps, key, stamp)
        if stamps[place] == stamp:
            repeated += lengths[i + n] - lengths[i]
            i += n
        else:
            keys[place], stamps[place] = key, stamp
            i += 1
    return repeated


@entry()
def measure_ngrams(data, words, offsets, top, repeated):
    """Counts the characters in the most frequent n-gram of words, and in repeated ones.

    Args:
      data: uint8[N], UTF-8.
      words: int64[2, W], where words start and stop.
      offsets: int64[D + 1], the first word of each document.
      top: int64[T], sizes n for which the most frequent n-gram counts, ascending.
      repeated: int64[R], sizes n for which all repeats count, ascending.

    Returns:
      int64[T + R, D]: characters; the first T count a space between words, the last R do not.
    """
    documents, most = offsets.size - 1, 0
    for document in range(documents):
        most = max(most, offsets[document + 1] - offsets[document])
    keys = np.empty(_power_of_two(2 * most), np.uint64)
    stamps, counts = np.full(keys.size, -1, np.int64), np.empty(keys.size, np.int64)
    slots, totals = (
        np.empty(most, np.int64),
        np.zeros((top.size + repeated.size, documents), np.int64),
    )
    powers = np.ones(
        max(top.max() if top.size else 0, repeated.max() if repeated.size else 0) + 1, np.uint64
    )
    for n in range(1, powers.size):
        powers[n] = powers[n - 1] * _BASE
    all_hashes, all_lengths = np.zeros(most + 1, np.uint64), np.zeros(most + 1, np.int64)
    stamp = 0
    for document in range(documents):
        first, number = offsets[document], offsets[document + 1] - offsets[document]
        for i in range(number):
            key, characters = _hash_span(data, words[0, first + i], words[1, first + i])
            all_hashes[i + 1] = all_hashes[i] * _BASE + key
            all_lengths[i + 1] = all_lengths[i] + characters
        hashes, lengths = all_hashes[: number + 1], all_lengths[: number + 1]
        times = 2
        for t in range(top.size):
            n = top[t]
            if number < n:
                break
            if times == 1:  # no shorter n-gram repeats, so none of this size does
                totals[t, document] = lengths[n] + n - 1
                continue
            stamp += 1
            totals[t, document], times = _top(
                hashes, lengths, n, powers, keys, stamps, counts, slots, stamp
            )
        for r in range(repeated.size):
            stamp += 1
            characters = _repeated(hashes, lengths, repeated[r], powers, keys, stamps, stamp)
            if not characters:
                break
            totals[top.size + r, document] = characters
    return totals
