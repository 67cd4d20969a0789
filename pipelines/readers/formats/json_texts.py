"""Finds the texts of fields in JSON Lines, without a Python object per line. Pure.

A line is accepted only if it follows RFC 8259, so that `json.loads` returns the same texts. Rare
lines are refused, and left to slower readers: those with NaN, lone surrogates, a wanted field
twice, a name with escapes, or more than 60 nested values.

Strings are searched and copied 64 bytes at a time.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from textmill.pipelines.readers.documents import take_slices
from textmill.pipelines.runtime.byte_vectors import AT_ONCE, copy, first_bit, in_range
from textmill.pipelines.runtime.compiled import entry, inner

_DEEPEST = 60
_BAD = -1
_NOT_THERE = -1
_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _DOT = (np.uint8(ord(c)) for c in '"\\,:-.')
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = (np.uint8(ord(c)) for c in "{}[]")
_ZERO, _U, _N = (np.uint8(ord(c)) for c in "0un")
_SPACE, _ONE = np.uint8(0x20), np.uint8(1)
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
    text = np.empty(len(data) + AT_ONCE, np.uint8)  # no longer than the lines
    spans = np.empty((2, len(fields), len(starts)), np.int64)
    is_there = np.zeros((len(fields), len(starts)), np.bool_)
    if not _scan(data, starts, stops, keys, bounds, text, spans, is_there):
        return None
    columns = []
    for begins, ends, is_text in zip(*spans, is_there, strict=True):
        if len(fields) == 1:  # the texts are next to each other
            buffers = [None, pa.py_buffer(np.append(0, ends)), pa.py_buffer(text)]
        else:
            buffers = take_slices(text, begins, ends).buffers()
        if not is_text.all():
            buffers[0] = pa.py_buffer(np.packbits(is_text, bitorder="little"))
        columns.append(pa.Array.from_buffers(pa.large_string(), len(starts), buffers))
    return pa.record_batch(columns, list(fields))


@entry()
def _scan(data, starts, stops, keys, bounds, text, spans, is_there):
    """Copies the strings of fields to `text`, without their escapes; false if a line is refused."""
    to, line_of = 0, np.full(len(bounds) - 1, -1)  # in which each field was last seen
    for line in range(len(starts)):
        spans[:, :, line] = to
        place, stop = _skip_spaces(data, starts[line], stops[line]), stops[line]
        if place >= stop or data[place] != _OPEN:
            return False
        place = _skip_spaces(data, place + 1, stop)
        is_first = True
        while place < stop and (data[place] != _CLOSE or not is_first):
            end, name_end = _copy_string(data, place, stop, text, to)
            if end == _BAD or end - place - 2 != name_end - to:  # has an escape
                return False
            field = _find(text, to, name_end, keys, bounds)
            place = _skip_spaces(data, end, stop)
            if place >= stop or data[place] != _COLON:
                return False
            place = _skip_spaces(data, place + 1, stop)
            if field != _NOT_THERE:
                if line_of[field] == line:
                    return False
                line_of[field] = line
            if field == _NOT_THERE or (place < stop and data[place] == _N):
                end = _end_of_value(data, place, stop, text, to)
            else:
                spans[0, field, line], is_there[field, line] = to, True
                end, to = _copy_string(data, place, stop, text, to)
                spans[1, field, line] = to
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
def _copy_string(data, place, stop, text, to):
    """Copies a string that begins at a byte, without its escapes.

    Returns:
      The byte after the string, and after its copy; what is not wanted is copied over later.
    """
    if place >= stop or data[place] != _QUOTE:
        return _BAD, to
    place += 1
    while place < stop:
        if place + 2 * AT_ONCE <= data.size:
            size, to = _copy_characters(data, place, text, to)
            place += size
            if size >= AT_ONCE or place >= stop:
                continue
        byte = data[np.uint64(place)]
        if byte == _QUOTE:
            return place + 1, to
        if byte < _SPACE:
            return _BAD, to
        if byte != _BACKSLASH:
            text[np.uint64(to)] = byte
            place, to = place + 1, to + 1
            continue
        meant = _ESCAPES[data[np.uint64(place + 1)]] if place + 1 < stop else np.uint8(0)
        if meant:
            text[np.uint64(to)] = meant
            place, to = place + 2, to + 1
        else:
            size, code = _escape(data, place, stop)
            if not size:
                return _BAD, to
            place, to = place + size, _put(text, to, code)
    return _BAD, to


@inner
def _copy_characters(data, place, text, to):
    """Copies 64 bytes, or those before a quote, a control character or an escape by a number.

    Returns:
      How many bytes were read, 65 if the last is a backslash; and the byte after their copy.
    """
    special = in_range(data, place, np.uint8(0), _SPACE)
    special |= in_range(data, place, _QUOTE, _ONE) | in_range(data, place, _BACKSLASH, _ONE)
    begin = 0
    while begin < AT_ONCE:
        end = first_bit(special)
        copy(data, place + begin, text, to)
        to += end - begin
        meant = np.uint8(0)
        if end < AT_ONCE and data[np.uint64(place + end)] == _BACKSLASH:
            meant = _ESCAPES[data[np.uint64(place + end + 1)]]
        if not meant:
            return end, to
        text[np.uint64(to)] = meant
        begin, to = end + 2, to + 1
        special &= -1 << begin
    return begin, to


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
def _end_of_value(data, place, stop, text, to):
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
                    place = _after_name(data, place, stop, text, to)
                    if place == _BAD:
                        return _BAD
                continue
        elif byte == _QUOTE:
            place, _ = _copy_string(data, place, stop, text, to)
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
            place = _after_name(data, place, stop, text, to)
            if place == _BAD:
                return _BAD


@inner
def _after_name(data, place, stop, text, to):
    """The value after a name and a colon."""
    place, _ = _copy_string(data, place, stop, text, to)
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
