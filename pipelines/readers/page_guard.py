"""Counts the tags of a page, and finds one with too many attributes, in one pass. Pure.

A parser takes quadratic time in the attributes of a tag.
"""

import numpy as np

from textmill.pipelines.readers.page_scan import find_text, matches
from textmill.pipelines.runtime.compiled import entry, inner

_PLAIN = 9  # attributes such as ` class="x"` that a tag may begin with besides


def count_tags(data: bytes, most: int = 999) -> tuple[int, bool]:
    """The number of `<`, and whether a tag has a thousand attributes.

    Args:
      data: UTF-8 of a page, or of anything else. Comments and scripts have no tags.
      most: maximum number of attributes of a tag; white space before the first counts as one.
    """
    return _count_tags(np.frombuffer(data, np.uint8), most)


# ---- compiled ----

_LT, _GT, _EQUALS, _SLASH, _SPACE, _DASH, _QUOTE, _SINGLE = (ord(sign) for sign in "<>=/ -\"'")
_COMMENT, _COMMENT_END, _SCRIPT, _STYLE = (
    np.frombuffer(text, np.uint8) for text in (b"!--", b"-->", b"script", b"style")
)


@entry()
def _count_tags(data: np.ndarray, most: int) -> tuple[int, bool]:
    count = 0
    for sign in data:
        count += sign == _LT
    return count, _has_long_tag(data, most)


@inner
def _has_long_tag(data: np.ndarray, most: int) -> bool:
    at = 0
    while True:
        at = _find(data, at, _LT) + 1
        if at >= len(data):
            return False
        if matches(data, at, len(data), _COMMENT):
            at = find_text(data, at + len(_COMMENT), len(data), _COMMENT_END)
            continue
        start = at + (data[at] == _SLASH)
        if start == len(data) or not ord("a") <= data[start] | 32 <= ord("z"):
            continue
        stop = start
        while stop < len(data) and not _ends_name(data[stop]):
            stop += 1
        if start == at and _is_raw(data, at, stop):
            end = _find_end(data, stop, most)
            if end >= 0:
                at = _find_raw_end(data, end)
                continue
        at = _find_end(data, _skip_plain(data, stop), most)
        if at < 0:
            return True


@inner
def _find(data: np.ndarray, at: int, sign: int) -> int:
    """The next place of a byte; the number of bytes if there is none."""
    while at < len(data) and data[at] != sign:
        at += 1
    return at


@inner
def _is_space(sign: int) -> bool:
    return sign == _SPACE or ord("\t") <= sign <= ord("\r")


@inner
def _ends_name(sign: int) -> bool:
    return sign == _GT or sign == _SLASH or sign == _EQUALS or _is_space(sign)


@inner
def _is_raw(data: np.ndarray, start: int, stop: int) -> bool:
    """Whether a name in any case, with a byte after it, is that of a script or style."""
    text = _SCRIPT if stop - start == len(_SCRIPT) else _STYLE
    if stop - start != len(text) or stop == len(data) or data[stop] == _EQUALS:
        return False
    for n in range(len(text)):
        if data[start + n] | 32 != text[n]:
            return False
    return True


@inner
def _find_raw_end(data: np.ndarray, at: int) -> int:
    """The next `</s`, in any case."""
    while True:
        at = _find(data, at, _LT)
        if at + 2 >= len(data) or (data[at + 1] == _SLASH and data[at + 2] | 32 == ord("s")):
            return at
        at += 1


@inner
def _skip_plain(data: np.ndarray, at: int) -> int:
    """The byte after the first attributes of a tag, as most tags have them: ` class="x"`."""
    for _ in range(_PLAIN):
        stop = at + 1
        while stop < len(data) and (ord("a") <= data[stop] <= ord("z") or data[stop] == _DASH):
            stop += 1
        if stop == at + 1 or stop + 1 >= len(data) or data[at] != _SPACE:
            break
        if data[stop] != _EQUALS or data[stop + 1] != _QUOTE:
            break
        stop = _find(data, stop + 2, _QUOTE)
        if stop == len(data):
            break
        at = stop + 1
    return at


@inner
def _find_end(data: np.ndarray, at: int, most: int) -> int:
    """The `>` of a tag or the end of the page; -1 if the tag has more attributes than `most`."""
    for _ in range(most + 1):
        while at < len(data) and not _ends_name(data[at]):
            at += 1
        if at == len(data) or data[at] == _GT:
            return at
        if data[at] == _EQUALS:
            at += 1
            while at < len(data) and _is_space(data[at]):
                at += 1
            at = _skip_value(data, at)
        while at < len(data) and (data[at] == _SLASH or _is_space(data[at])):
            at += 1
    return -1


@inner
def _skip_value(data: np.ndarray, at: int) -> int:
    if at == len(data):
        return at
    sign = data[at]
    if sign == _QUOTE or sign == _SINGLE:
        return min(_find(data, at + 1, sign) + 1, len(data))
    while at < len(data) and data[at] != _GT and not _is_space(data[at]):
        at += 1
    return at
