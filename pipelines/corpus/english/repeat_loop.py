"""Measures repetition in documents: repeated lines, paragraphs and n-grams; compiled by numba.

Text is compared by 64-bit hashes. Legend: N bytes, D documents, W words.
"""

import numpy as np

from pipelines.host.compiled import entry, inner

_NEWLINE = 10
_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd
_FNV, _FNV_BASIS = np.uint64(0x100000001B3), np.uint64(0xCBF29CE484222325)


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
