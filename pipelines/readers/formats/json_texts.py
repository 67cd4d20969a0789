"""Finds the texts of fields in JSON Lines, without a Python object per line. Pure.

A line is accepted only if it follows RFC 8259, so that `json.loads` returns the same texts. Rare
lines are refused, and left to slower readers: those with NaN, lone surrogates, a wanted field
twice, a name with escapes, or more than 60 nested values.

Strings are searched and copied eight bytes at a time (H. S. Warren, "Hacker's Delight", 6-1: the
first byte of a word that is 0). Their indices are unsigned, which numba need not compare with 0.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from textmill.pipelines.readers.documents import take_slices
from textmill.pipelines.runtime.compiled import entry, inner, overlapping_eights

_DEEPEST = 60
_BAD = -1
_NOT_THERE = -1
_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _DOT = (np.uint8(ord(c)) for c in '"\\,:-.')
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = (np.uint8(ord(c)) for c in "{}[]")
_ZERO, _U, _N = (np.uint8(ord(c)) for c in "0un")
_SPACE = np.uint8(0x20)
_ONES, _TOPS = np.int64(0x0101010101010101), np.int64(-0x7F7F7F7F7F7F7F80)
_QUOTES, _BACKSLASHES, _SPACES = _ONES * 0x22, _ONES * 0x5C, _ONES * 0x20
_ESCAPES = np.zeros(256, np.uint8)  # the character after a backslash to what both mean
_ESCAPES[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
_HEX = np.full(256, 255, np.uint8)
_HEX[list(b"0123456789abcdefABCDEF")] = [*range(16), *range(10, 16)]
_WORDS = np.frombuffer(b"true\0false\0null\0", np.uint8)  # by 0, 5 and 11


def read_texts(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray, fields: Sequence[str]
) -> pa.RecordBatch | None:
    """The texts of fields of each line; null where a line has null or no such field.

    Args:
      data: uint8 [bytes], valid UTF-8.
      starts: int64 [lines].
      stops: int64 [lines].
      fields: different names at the top of each line's object.

    Returns:
      A large_string column for each field; None if a line may not be an object with these texts.
    """
    names = [field.encode() for field in fields]
    keys = np.frombuffer(b"".join(names), np.uint8)
    bounds = np.cumsum([0, *map(len, names)])
    # A string begins after its line, so a span that begins with the line stands for none.
    spans = np.tile(starts, (len(fields), 2, 1))
    has_escapes = np.zeros(len(fields), np.bool_)
    if not _scan(data, overlapping_eights(data), starts, stops, keys, bounds, spans, has_escapes):
        return None
    columns = []
    for (begins, ends), is_escaped in zip(spans, has_escapes, strict=True):
        if is_escaped:
            text, text_bounds = _unescaped(data, begins, ends)
            buffers = [None, pa.py_buffer(text_bounds), pa.py_buffer(text)]
        else:
            buffers = take_slices(data, begins, ends).buffers()
        if (begins == starts).any():
            buffers[0] = pa.py_buffer(np.packbits(begins > starts, bitorder="little"))
        columns.append(pa.Array.from_buffers(pa.large_string(), len(starts), buffers))
    return pa.record_batch(columns, list(fields))


def _unescaped(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Strings without their escapes: their bytes, and where each begins in them."""
    text = np.empty(int((stops - starts).sum()) + 8, np.uint8)
    bounds = np.zeros(len(starts) + 1, np.int64)
    _unescape(data, overlapping_eights(data), starts, stops, text, overlapping_eights(text), bounds)
    return text, bounds


@inner
def _has_zero(word):
    """A number whose lowest one is the top bit of the first byte that is 0; 0 if there is none."""
    return (word - _ONES) & ~word & _TOPS


@inner
def _first_byte(found):
    """The byte of eight whose top bit is the lowest one of a number other than 0."""
    below = (found & -found) - 1  # ones up to this top bit, hence the last bit of each byte
    return ((below & _ONES) * _ONES >> 56) - 1


@entry()
def _scan(data, eights, starts, stops, keys, bounds, spans, has_escapes):
    """Finds the strings of fields between their quotes; false if a line is refused."""
    line_of = np.full(len(bounds) - 1, -1)  # in which each field was last seen
    for line in range(len(starts)):
        place, stop = _skip_spaces(data, starts[line], stops[line]), stops[line]
        if place >= stop or data[place] != _OPEN:
            return False
        place = _skip_spaces(data, place + 1, stop)
        is_first = True
        while place < stop and (data[place] != _CLOSE or not is_first):
            end, is_escaped = _end_of_string(data, eights, place, stop)
            if end == _BAD or is_escaped:
                return False
            field = _find(data, place + 1, end - 1, keys, bounds)
            place = _skip_spaces(data, end, stop)
            if place >= stop or data[place] != _COLON:
                return False
            place = _skip_spaces(data, place + 1, stop)
            if field == _NOT_THERE:
                end = _end_of_value(data, eights, place, stop)
            else:
                if line_of[field] == line:
                    return False
                line_of[field] = line
                if place < stop and data[place] == _N:
                    end = _end_of_value(data, eights, place, stop)
                else:
                    end, is_escaped = _end_of_string(data, eights, place, stop)
                    spans[field, 0, line], spans[field, 1, line] = place + 1, end - 1
                    has_escapes[field] |= is_escaped
            if end == _BAD:
                return False
            place = _skip_spaces(data, end, stop)
            if place >= stop:
                return False
            if data[place] == _CLOSE:
                break
            if data[place] != _COMMA:
                return False
            place, is_first = _skip_spaces(data, place + 1, stop), False
        if place >= stop or _skip_spaces(data, place + 1, stop) != stop:
            return False
    return True


@inner
def _skip_spaces(data, place, stop):
    while place < stop and data[place] <= _SPACE:
        byte = data[place]
        if byte != 0x20 and byte != 0x09 and byte != 0x0A and byte != 0x0D:
            return place
        place += 1
    return place


@inner
def _find(data, start, stop, keys, bounds):
    """The number of a field's name."""
    for field in range(len(bounds) - 1):
        if stop - start != bounds[field + 1] - bounds[field]:
            continue
        same = True
        for i in range(stop - start):
            same = same and data[start + i] == keys[bounds[field] + i]
        if same:
            return field
    return _NOT_THERE


@inner
def _end_of_string(data, eights, place, stop):
    """The byte after a string that begins at a byte, and whether it has escapes."""
    is_escaped = False
    if place >= stop or data[place] != _QUOTE:
        return _BAD, is_escaped
    place += 1
    while place < stop:
        if place + 8 <= stop:
            word = eights[np.uint64(place)]
            # A quote, a backslash, or a byte below the space (Hacker's Delight: x - n, x < 128).
            found = _has_zero(word ^ _QUOTES) | _has_zero(word ^ _BACKSLASHES)
            found |= (word - _SPACES) & ~word & _TOPS
            if found == 0:
                place += 8
                continue
            place += _first_byte(found)
        byte = data[np.uint64(place)]
        if byte == _QUOTE:
            return place + 1, is_escaped
        if byte < _SPACE:
            return _BAD, is_escaped
        if byte != _BACKSLASH:
            place += 1
            continue
        is_escaped = True
        size = 2  # of an escape by a letter
        if place + 1 >= stop or not _ESCAPES[data[np.uint64(place + 1)]]:
            size, _ = _escape(data, place, stop)
            if not size:
                return _BAD, is_escaped
        place += size
    return _BAD, is_escaped


@inner
def _escape(data, place, stop):
    """The bytes of an escape by a number, and its code point; 0 bytes: it is refused."""
    if place + 1 >= stop or data[place + 1] != _U:
        return 0, 0
    code = _hex(data, place + 2, stop)
    if code < 0xD800 or code > 0xDFFF:
        return 6 * np.int64(code >= 0), code
    if code > 0xDBFF or place + 8 > stop:
        return 0, 0
    if data[place + 6] != _BACKSLASH or data[place + 7] != _U:
        return 0, 0
    low = _hex(data, place + 8, stop)
    if low < 0xDC00 or low > 0xDFFF:
        return 0, 0
    return 12, 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)


@inner
def _hex(data, place, stop):
    """The number of four digits; _BAD if they are none."""
    code = np.int64(0)
    if place + 4 > stop:
        return np.int64(_BAD)
    for i in range(4):
        digit = _HEX[data[place + i]]
        if digit == 255:
            return np.int64(_BAD)
        code = code << 4 | np.int64(digit)
    return code


@inner
def _end_of_value(data, eights, place, stop):
    """The byte after a value of any kind that begins at a byte."""
    depth, objects = 0, np.int64(0)  # a bit for each level: whether it is an object
    while True:
        if place >= stop:
            return _BAD
        byte = data[place]
        if byte == _OPEN or byte == _OPEN_LIST:
            if depth == _DEEPEST:
                return _BAD
            depth, objects = depth + 1, objects << 1 | np.int64(byte == _OPEN)
            place = _skip_spaces(data, place + 1, stop)
            if place >= stop:
                return _BAD
            if data[place] != _CLOSE and data[place] != _CLOSE_LIST:
                if objects & 1:
                    place = _after_name(data, eights, place, stop)
                    if place == _BAD:
                        return _BAD
                continue
        elif byte == _QUOTE:
            place, _ = _end_of_string(data, eights, place, stop)
        else:
            place = _end_of_scalar(data, place, stop)
        if place == _BAD:
            return _BAD
        while True:  # a value has ended
            if depth == 0:
                return place
            place = _skip_spaces(data, place, stop)
            if place >= stop:
                return _BAD
            if data[place] != (_CLOSE if objects & 1 else _CLOSE_LIST):
                break
            depth, objects, place = depth - 1, objects >> 1, place + 1
        if data[place] != _COMMA:
            return _BAD
        place = _skip_spaces(data, place + 1, stop)
        if objects & 1:
            place = _after_name(data, eights, place, stop)
            if place == _BAD:
                return _BAD


@inner
def _after_name(data, eights, place, stop):
    """The value after a name and a colon."""
    place, _ = _end_of_string(data, eights, place, stop)
    if place == _BAD:
        return _BAD
    place = _skip_spaces(data, place, stop)
    if place >= stop or data[place] != _COLON:
        return _BAD
    return _skip_spaces(data, place + 1, stop)


@inner
def _end_of_scalar(data, place, stop):
    """The byte after a number, true, false or null."""
    for word in (0, 5, 11):
        if data[place] == _WORDS[word]:
            while _WORDS[word]:
                if place >= stop or data[place] != _WORDS[word]:
                    return _BAD
                place, word = place + 1, word + 1
            return place
    if data[place] == _MINUS:
        place += 1
    if place < stop and data[place] == _ZERO:
        place += 1
    else:
        place = _after_digits(data, place, stop)
    if place != _BAD and place < stop and data[place] == _DOT:
        place = _after_digits(data, place + 1, stop)
    if place != _BAD and place < stop and data[place] | 0x20 == 0x65:  # e, E
        place += 1
        if place < stop and (data[place] == 0x2B or data[place] == _MINUS):
            place += 1
        place = _after_digits(data, place, stop)
    return place


@inner
def _after_digits(data, place, stop):
    start = place
    while place < stop and 0x30 <= data[place] <= 0x39:
        place += 1
    return place if place > start else _BAD


@entry()
def _unescape(data, eights, starts, stops, text, text_eights, bounds):
    """Copies strings without their escapes to `text`, which has eight bytes to spare."""
    to = 0
    for i in range(len(starts)):
        place, stop = starts[i], stops[i]
        while place < stop:
            if place + 8 <= stop:
                word = eights[np.uint64(place)]
                text_eights[np.uint64(to)] = word
                found = _has_zero(word ^ _BACKSLASHES)
                size = 8 if found == 0 else _first_byte(found)
                place, to = place + size, to + size
                if found == 0:
                    continue
            if data[np.uint64(place)] != _BACKSLASH:
                text[to] = data[place]
                place, to = place + 1, to + 1
                continue
            meant = _ESCAPES[data[np.uint64(place + 1)]]
            if meant:
                text[np.uint64(to)] = meant
                place, to = place + 2, to + 1
            else:
                size, code = _escape(data, place, stop)
                place, to = place + size, _put(text, to, code)
        bounds[i + 1] = to


@inner
def _put(text, to, code):
    """Writes a character; returns the byte after it."""
    if code < 0x80:
        text[to] = code
        return to + 1
    if code < 0x800:
        text[to], text[to + 1] = 0xC0 | code >> 6, 0x80 | code & 0x3F
        return to + 2
    if code < 0x10000:
        text[to], text[to + 1] = 0xE0 | code >> 12, 0x80 | code >> 6 & 0x3F
        text[to + 2] = 0x80 | code & 0x3F
        return to + 3
    text[to], text[to + 1] = 0xF0 | code >> 18, 0x80 | code >> 12 & 0x3F
    text[to + 2], text[to + 3] = 0x80 | code >> 6 & 0x3F, 0x80 | code & 0x3F
    return to + 4
