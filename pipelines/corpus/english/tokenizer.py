"""Cuts columns of English text into words and punctuation. Pure.

A run without white space is a chunk. Punctuation is cut off its beginning and end. The rest is a
known spelling or a web address, or is cut at dots, commas and hyphens between letters. Rules and
their order are those of spaCy's English tokenizer (3.8), whose words datatrove's filters count.

Legend: N bytes, P pieces, W words. A chunk is int64[4, characters + 1]: code points, properties,
first byte of each character (and one more, where the last ends), and ends of suffixes cut off.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.english.metrics import skip_spaces
from textmill.pipelines.corpus.english.tables import (
    ALPHA,
    BEGINS,
    CURRENCY,
    DIGIT,
    ENDS,
    ENDS_BEFORE_DOT,
    ICON,
    LOWER,
    QUOTE,
    SPACE,
    UNIT,
    UPPER,
    character_table,
    spelling_table,
)
from textmill.pipelines.rows.text_bytes import code_point, slices, utf8_bytes
from textmill.pipelines.runtime.compiled import entry, inner

_MOST = 1 << 16  # characters of a chunk; a longer one is cut there
_LONGEST = 17  # bytes of the longest spelling
_POINT, _KIND, _PLACE, _ENDING = range(4)  # the rows of a chunk
_DOT, _PLUS, _HYPHEN, _COMMA = 0x2E, 0x2B, 0x2D, 0x2C
_AT_ONCE = 1 << 18  # bytes of text cut together, so that they fit the CPU's cache


@dataclass(frozen=True)
class Words:
    """The words of some documents.

    Attributes:
      data: uint8, the bytes of the documents.
      bounds: int64 [D + 1], where documents begin in `data`.
      spans: int64 [2, W], where words start and stop in `data`.
      offsets: int64 [D + 1], the first word of each document.
    """

    data: np.ndarray
    bounds: np.ndarray
    spans: np.ndarray
    offsets: np.ndarray


def english_words(text: pa.LargeStringArray) -> Iterator[Words]:
    """Yields the words of documents, a slice of documents at a time."""
    for some in slices(text, _AT_ONCE):
        data, bounds = utf8_bytes(some)
        yield Words(data, bounds, *cut(data, np.stack([bounds[:-1], bounds[1:]])))


def cut(
    data: np.ndarray, pieces: np.ndarray, spaces: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Spans of words, and the first word of each piece: see `cut_words`."""
    return cut_words(data, pieces, character_table(), spelling_table(), spaces)


# ---- compiled ----


@inner
def _look_up(hashed, spellings):
    wanted = np.int64(hashed)
    place = wanted & (spellings.shape[1] - 1)
    while spellings[1, place] and spellings[0, place] != wanted:
        place = (place + 1) & (spellings.shape[1] - 1)
    return spellings[1, place]


@inner
def _spelling(data, start, stop, salt, spellings):
    """Value of a spelling, 0 if unknown; `salt` prefixes the byte 0, which marks units."""
    if stop - start > _LONGEST or stop <= start:
        return np.int64(0)
    hashed = np.uint64(0xCBF29CE484222325)
    if salt:
        hashed = hashed * np.uint64(0x100000001B3)
    for i in range(start, stop):
        hashed = (hashed ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    return _look_up(hashed, spellings)


@inner
def _dots(chunk, low, high):
    """Number of full stops from `low` on."""
    i = low
    while i < high and chunk[_POINT, i] == _DOT:
        i += 1
    return i - low


@inner
def _beginning(chunk, low, high):
    """Number of characters to cut off the beginning."""
    point = chunk[_POINT, low]
    if point == _DOT:
        dots = _dots(chunk, low, high)
        return dots if dots > 1 else 0
    if point == _PLUS:
        return 0 if low + 1 < high and chunk[_KIND, low + 1] & DIGIT else 1
    if chunk[_KIND, low] & BEGINS:
        return 1
    if (
        point == 0x55
        and high - low > 2
        and chunk[_POINT, low + 1] == 0x53
        and chunk[_POINT, low + 2] == 0x24
    ):
        return 3
    if (point == 0x43 or point == 0x41) and high - low > 1 and chunk[_POINT, low + 1] == 0x24:
        return 2
    return 0


@inner
def _ending(data, chunk, low, high, spellings):
    """Number of characters to cut off the end."""
    if low >= high:
        return 0
    last = high - 1
    point, kind = chunk[_POINT, last], chunk[_KIND, last]
    before = chunk[_KIND, last - 1] if last > low else np.int64(0)
    if point == _DOT:
        first = last
        while first > low and chunk[_POINT, first - 1] == _DOT:
            first -= 1
        if first < last:
            return high - first
        if before & ENDS_BEFORE_DOT:
            return 1
        if last - 1 <= low or not before & UPPER:
            return 0
        return 1 if chunk[_KIND, last - 2] & UPPER or chunk[_POINT, last - 2] == 0xB0 else 0
    if (point == 0x73 or point == 0x53) and last > low:
        quote = chunk[_POINT, last - 1]
        if quote == 0x27 or quote == 0x2019:
            return 2
    if kind & ENDS:
        return 1
    if before & DIGIT and (point == _PLUS or kind & CURRENCY):
        return 1
    for size in range(1, min(4, last - low) + 1):
        if chunk[_KIND, high - size - 1] & DIGIT:
            unit = _spelling(data, chunk[_PLACE, high - size], chunk[_PLACE, high], 1, spellings)
            return size if unit == UNIT else 0
    return 0


@inner
def _is_address(chunk, low, high):
    """Whether it looks like a lower-case host name, with or without scheme, user, port and path."""
    for i in range(low, high - 2):
        if (
            chunk[_POINT, i] == 0x3A
            and chunk[_POINT, i + 1] == 0x2F
            and chunk[_POINT, i + 2] == 0x2F
            and i - low > 1
        ):
            low = i + 3
            break
    for i in range(low, high):
        if chunk[_POINT, i] == 0x40 and i > low:
            if _is_host(chunk, i + 1, high):
                return True
    return _is_host(chunk, low, high)


@inner
def _is_host_character(point, kind):
    return kind & (ALPHA | DIGIT) != 0 and point < 0x80 or 0xA1 <= point <= 0xFFFF


@inner
def _is_host(chunk, low, high):
    stop, label, dots, last_dot = low, low, 0, -1
    while stop < high:
        point = chunk[_POINT, stop]
        if point == _DOT:
            if stop == label or stop - label > 64:
                return False
            first, last = label, stop - 1
            if not _is_host_character(chunk[_POINT, first], chunk[_KIND, first]):
                return False
            if not _is_host_character(chunk[_POINT, last], chunk[_KIND, last]):
                return False
            dots, last_dot, label = dots + 1, stop, stop + 1
        elif not (
            _is_host_character(point, chunk[_KIND, stop]) or point == 0x5F or point == _HYPHEN
        ):
            break
        stop += 1
    if not dots or not 2 <= stop - last_dot - 1 <= 63:
        return False
    for i in range(last_dot + 1, stop):
        if not chunk[_KIND, i] & LOWER:
            return False
    if stop < high and chunk[_POINT, stop] == 0x3A:
        port = stop + 1
        while port < high and chunk[_KIND, port] & DIGIT:
            port += 1
        if not 2 <= port - stop - 1 <= 5:
            return False
        stop = port
    return (
        stop == high
        or chunk[_POINT, stop] == 0x2F
        or chunk[_POINT, stop] == 0x3F
        or chunk[_POINT, stop] == 0x23
    )


@inner
def _inside(chunk, low, high, i):
    """Number of characters from `i` on that split a word in two; 0 if none."""
    point, kind = chunk[_POINT, i], chunk[_KIND, i]
    if kind & (ALPHA | DIGIT):
        return 0
    if point == 0x2026 or kind & ICON:
        return 1
    before = chunk[_KIND, i - 1] if i > low else np.int64(0)
    after = chunk[_KIND, i + 1] if i + 1 < high else np.int64(0)
    if point == _DOT:
        dots = _dots(chunk, i, high)
        if dots > 1:
            return dots
        return 1 if before & (LOWER | QUOTE) and after & (UPPER | QUOTE) else 0
    if before & DIGIT and (point == _PLUS or point == _HYPHEN or point == 0x2A or point == 0x5E):
        if after & DIGIT or i + 1 < high and chunk[_POINT, i + 1] == _HYPHEN:
            return 1
    if point == _COMMA:
        return 1 if before & ALPHA and after & ALPHA else 0
    if not before & (ALPHA | DIGIT):
        return 0
    if point == _HYPHEN or point == 0x2014:
        size = 1
        while i + size < high and chunk[_POINT, i + size] == point:
            size += 1
        most = 3 if point == _HYPHEN else 2
        return size if size <= most and i + size < high and chunk[_KIND, i + size] & ALPHA else 0
    if point == 0x2013 or point == 0x7E or point == 0x3A or 0x3C <= point <= 0x3E or point == 0x2F:
        return 1 if after & ALPHA else 0
    return 0


@inner
def _add(words, count, start, stop):
    words[0, count], words[1, count] = start, stop
    return count + 1


@inner
def _add_spelling(words, count, start, stop, value):
    """Adds the words of a spelling by its value; an unknown spelling is one word."""
    cuts = value - 1 if value else value
    first = start
    while cuts:
        cut = start + (cuts & 0xFF)
        count = _add(words, count, first, cut)
        first, cuts = cut, cuts >> 8
    return _add(words, count, first, stop)


@inner
def _add_core(data, chunk, low, high, spellings, words, count):
    """Adds the words of a chunk without its outer punctuation."""
    value = _spelling(data, chunk[_PLACE, low], chunk[_PLACE, high], 0, spellings)
    if value:
        return _add_spelling(words, count, chunk[_PLACE, low], chunk[_PLACE, high], value)
    begin, i, is_known = low, low, False
    while i < high:
        size = _inside(chunk, low, high, i)
        if not size:
            i += 1
            continue
        if not is_known:
            is_known = True
            if _is_address(chunk, low, high):
                break
        if i > low:
            if i > begin:
                count = _add(words, count, chunk[_PLACE, begin], chunk[_PLACE, i])
            count = _add(words, count, chunk[_PLACE, i], chunk[_PLACE, i + size])
            begin = i + size
        i += size
    if begin < high:
        count = _add(words, count, chunk[_PLACE, begin], chunk[_PLACE, high])
    return count


@inner
def _cut_chunk(data, chunk, high, spellings, words, count):
    """Adds the words of a chunk that has characters other than ASCII letters."""
    low, end, last = 0, high, 0
    while low < end:
        if _spelling(data, chunk[_PLACE, low], chunk[_PLACE, end], 0, spellings):
            break
        size = _beginning(chunk, low, end)
        if size and low + size < end:
            if _spelling(data, chunk[_PLACE, low + size], chunk[_PLACE, end], 0, spellings):
                count = _add(words, count, chunk[_PLACE, low], chunk[_PLACE, low + size])
                low += size
                break
        ending = _ending(data, chunk, low + size, end, spellings)
        if ending and low < end - ending:
            if _spelling(data, chunk[_PLACE, low], chunk[_PLACE, end - ending], 0, spellings):
                chunk[_ENDING, last] = end
                last, end = last + 1, end - ending
                break
        if not size and not ending:
            break
        if size:
            count = _add(words, count, chunk[_PLACE, low], chunk[_PLACE, low + size])
            low += size
        if ending:
            chunk[_ENDING, last] = end
            last, end = last + 1, end - ending
    if low < end:
        count = _add_core(data, chunk, low, end, spellings, words, count)
    while last:
        last -= 1
        count = _add(words, count, chunk[_PLACE, end], chunk[_PLACE, chunk[_ENDING, last]])
        end = chunk[_ENDING, last]
    return count


@inner
def _join(data, first, spellings, words, count):
    """Joins punctuation that spells a word, such as an emoticon: the longest from the left."""
    into = i = first
    while i < count:
        last = i
        for j in range(min(count - 1, i + 4), i, -1):
            if _spelling(data, words[0, i], words[1, j], 0, spellings) == 1:
                last = j
                break
        words[0, into], words[1, into] = words[0, i], words[1, last]
        into, i = into + 1, last + 1
    return into


@inner
def _read_chunk(data, begin, stop, table, chunk):
    """Reads characters up to white space, at most _MOST.

    Returns:
      End of the characters, and their number: 0 at white space.
    """
    i, length = begin, 0
    while i < stop and length < _MOST:
        point, size = code_point(data, i)
        kind = table[point]
        if kind & SPACE:
            break
        chunk[_POINT, length], chunk[_KIND, length] = point, kind
        chunk[_PLACE, length] = i
        length += 1
        i += size
    chunk[_PLACE, length] = i
    return i, length


@inner
def _ends_plainly(data, begin, i, stop, hashed, spellings):
    """Whether letters are followed by one character that is always cut off, and white space."""
    if i + 1 < stop and data[i + 1] != 0x20 and data[i + 1] != 0x0A:
        return False
    mark = data[i]
    if mark == _DOT:
        if data[i - 1] < 0x61:
            return False
    elif not (mark == _COMMA or mark == 0x21 or mark == 0x22 or mark == 0x29 or mark == 0x3F):
        if mark != 0x3A and mark != 0x3B:
            return False
    if i + 1 - begin > _LONGEST:
        return True
    return not _look_up((hashed ^ np.uint64(mark)) * np.uint64(0x100000001B3), spellings)


@inner
def _make_room(words, count, more):
    """Grows the array by at least `more` words; a call costs as much as a word, so check first."""
    grown = np.empty((2, 2 * words.shape[1] + more), np.int64)
    grown[:, :count] = words[:, :count]
    return grown


@entry()
def cut_words(data, pieces, table, spellings, spaces):
    """Finds the words and punctuation of pieces of text.

    Args:
      data: uint8[N], UTF-8.
      pieces: int64[2, P], where pieces start and stop in `data`.
      table: uint32[code points], see `character_table`.
      spellings: int64[2, slots], see `spelling_table`.
      spaces: bool, whether to add white space as words, except one space after a word.

    Returns:
      int64[2, W], where words start and stop; int64[P + 1], the first word of each piece.
    """
    words, chunk = np.empty((2, 1024), np.int64), np.empty((4, _MOST + 1), np.int64)
    offsets, count = np.zeros(pieces.shape[1] + 1, np.int64), np.int64(0)
    for piece in range(pieces.shape[1]):
        first, stop = pieces[0, piece], pieces[1, piece]
        begin = first
        while begin < stop:
            if data[begin] == 0x20 and begin > first and begin + 1 < stop:
                if 0x21 <= data[begin + 1] < 0x7F and data[begin - 1] > 0x20:
                    begin += 1  # one space belongs to the word before it
                    continue
            i, hashed = begin, np.uint64(0xCBF29CE484222325)
            while i < stop and 0x61 <= data[i] | 0x20 <= 0x7A:
                hashed = (hashed ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
                i += 1
            if count + 4 > words.shape[1]:
                words = _make_room(words, count, 4)
            ends = i == stop or data[i] == 0x20 or data[i] == 0x0A
            if i > begin and (ends or _ends_plainly(data, begin, i, stop, hashed, spellings)):
                value = _look_up(hashed, spellings) if i - begin <= _LONGEST else np.int64(0)
                count = _add_spelling(words, count, begin, i, value)
                if not ends:
                    count = _add(words, count, i, i + 1)
                begin = i + (not ends)
                continue
            i, length = _read_chunk(data, begin, stop, table, chunk)
            if length:
                before = count
                if count + length + 4 > words.shape[1]:
                    words = _make_room(words, count, length)
                count = _cut_chunk(data, chunk, length, spellings, words, count)
                if count > before + 1:
                    count = _join(data, before, spellings, words, count)
            else:
                i = skip_spaces(data, begin, stop, table)
                begin += begin > first and data[begin] == 0x20
                if spaces and begin < i:
                    count = _add(words, count, begin, i)
            begin = i
        offsets[piece + 1] = count
    return words[:, :count], offsets
