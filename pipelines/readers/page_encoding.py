"""The characters of a web page. Pure.

Encodings are detected as in browsers: byte order mark, HTTP header, meta element, statistics. A
declaration that the bytes contradict does not count, since many servers send a default. Without
one, a page is in windows-1252 unless its bytes are clearly of a different encoding.
"""

import codecs
import re
from collections.abc import Iterator

from textmill.pipelines.readers.encodings import ENCODED, count_replaced, find_utf_16
from textmill.schemas.commands.entry import import_later

# An optional package; this file is imported with the table of formats.
_find_html5_name = import_later("resiliparse.parse.encoding:map_encoding_to_html5")
_detect_encoding = import_later("resiliparse.parse.encoding:detect_encoding")

MARKS = (*ENCODED, (codecs.BOM_UTF8, "utf-8"))
_META_BYTES = 1 << 14  # bytes searched for a declaration of the encoding
# No pattern of this file can match the same bytes in two ways, so that each takes linear time.
_DECLARES = re.compile(rb"<(?:!--|(meta)[\s/]|\?xml\s)", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    rb"""[\s/]*+([^\s/>=]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>"']?+[^\s>]*+)))?+"""
)
_CHARSET = re.compile(r"charset\s*+=\s*+[\"']?+\s*+([\w:.-]++)", re.IGNORECASE)
# Declared encoding -> the superset that pages use in fact, as names of Python's codecs.
_WIDER = {
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    **dict.fromkeys(("gb2312", "gbk", "hz"), "gb18030"),
    **dict.fromkeys(("tis-620", "iso8859-11"), "cp874"),
    "iso8859-9": "cp1254",
    "koi8-r": "koi8-u",
    "big5": "big5hkscs",
    "euc_kr": "cp949",
    "shift_jis": "cp932",
}
# Python's text codecs; others are for bytes or escapes, or cannot replace errors.
_CODECS = re.compile(
    r"(?:cp|iso8859-|iso2022_|koi8-|mac-|big5|gb|euc_|shift_jis|utf-8|utf-16|utf-32)[\w-]*"
    r"|ascii|johab|hz|tis-620|kz1048|ptcp154"
)
# Encodings of Latin letters that browsers know.
_LATIN = {f"cp{n}" for n in (1250, 1252, 1254, 1257, 1258)} | {
    *(f"iso8859-{n}" for n in (2, 3, 4, 10, 13, 14, 15, 16)),
    "utf-8",
}
# Encodings without characters at 0x80 to 0x9f -> those that have quotes and dashes there.
_WITH_QUOTES = {"iso8859-2": "cp1250", "iso8859-7": "cp1253", "iso8859-13": "cp1257"}
_ESCAPES = (b"\x1b$", b"\x1b(")  # ISO-2022-JP, whose bytes are all ASCII
_MARKUP = re.compile(
    rb"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1|\Z)|<[^<>]*+>", re.IGNORECASE | re.DOTALL
)
_SAMPLE_BYTES = 1 << 17
_FEW_BYTES = 8  # bytes beyond ASCII; fewer may be UTF-8 by chance
_ASCII = bytes(range(0x80))
_QUOTES = bytes(range(0x80, 0xA0))  # quotes and dashes in cp1252, control characters elsewhere
_LETTERS = bytes(n for n in range(0x80) if chr(n).isalpha())
# Leaves the words of a different script than Latin, with spaces between them.
_TO_WORDS = bytes(n if n >= 0x80 and n != 0xA0 else 0x20 for n in range(0x100))
_LEAST_LATIN = 0.02  # share of letters beyond ASCII in languages that windows-1252 lacks
_MOST_BAD = 20  # one byte beyond ASCII of so many may be invalid


def charset_of(content_type: str) -> str:
    """The charset of a content type: `text/html; charset="UTF-8"` -> `UTF-8`."""
    match = _CHARSET.search(content_type)
    return match[1] if match else ""


def decode_page(data: bytes, declared: str = "") -> str:
    """The characters of a page, `declared` in the HTTP header; invalid bytes become U+FFFD."""
    for mark, codec in MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(codec, "replace")
    if data.isascii() and not any(escape in data for escape in _ESCAPES) and b"\0" not in data:
        return data.decode("ascii")
    wide = find_utf_16(data[:_SAMPLE_BYTES])
    if wide:
        return data.decode(wide, "replace")
    names = [codec_of(declared), next(_declared_codecs(data[:_META_BYTES]), "")]
    # UTF-16 would have NULs, so a page whose meta element declares it is UTF-8.
    names = [name for name in names if name and name != "utf-8" and not name.startswith("utf-16")]
    if not data.isascii():
        text = data.decode(errors="replace")
        beyond = len(data) - len(text)  # at least half of the bytes beyond ASCII, if it is UTF-8
        if _MOST_BAD * count_replaced(text) <= beyond and (beyond >= _FEW_BYTES or not names):
            return text
    return data.decode(_find_codec(data, names), "replace")


def _declared_codecs(head: bytes) -> Iterator[str]:
    """The codecs that meta elements and an XML declaration name, as browsers search for them."""
    at = 0
    while begin := _DECLARES.search(head, at):
        if begin[0] == b"<!--":
            at = head.find(b"-->", begin.end() - 2)
            if at < 0:
                return
            continue
        attributes, at = _attributes(head, begin.end())
        label = attributes.get("charset" if begin[1] else "encoding", "")
        if not label and attributes.get("http-equiv", "").lower() == "content-type":
            label = charset_of(attributes.get("content", ""))
        if codec := codec_of(label):
            yield codec


def _attributes(head: bytes, at: int) -> tuple[dict[str, str], int]:
    """The attributes of a tag from `at` on, by name in lower case, and where they end."""
    attributes: dict[str, str] = {}
    while match := _ATTRIBUTE.match(head, at):
        name, *values = (part.decode("latin-1") for part in match.groups(b""))
        attributes.setdefault(name.lower(), "".join(values).strip())
        at = match.end()
    return attributes, at


def _find_codec(data: bytes, declared: list[str]) -> str:
    """The Python codec of a page that is not UTF-8, from its bytes and declared codecs."""
    detected, is_beyond_latin = _detect(data)
    if detected in declared or not declared or data.isascii():
        return detected or "cp1252"
    # A server's default for a page that is clearly in a different script.
    if declared[0] == "cp1252" and detected and is_beyond_latin:
        return detected
    return next((name for name in declared if _can_be(data, name)), detected or declared[0])


def _can_be(data: bytes, codec: str) -> bool:
    """Whether the bytes are valid in an encoding, but for a few."""
    sample = data[:_SAMPLE_BYTES]
    bad = sample.decode(codec, "replace").count("\ufffd")
    return bad <= max(len(sample.translate(None, _ASCII)) / _MOST_BAD, 2)


def _detect(data: bytes) -> tuple[str, bool]:
    """The codec of the bytes, "" if it is unclear, and whether most letters are not Latin.

    Statistics of few bytes choose any encoding. Words of bytes beyond ASCII are of a different
    script; other pages have Latin letters, of which few languages need more than windows-1252 has.
    """
    sample = _MARKUP.sub(b"<>", data[:_SAMPLE_BYTES])
    codec = codec_of(_detect_encoding(sample, html5_compatible=False) or "")
    if data.isascii():
        return codec, False
    beyond = sample.translate(None, _ASCII)
    letters = len(sample) - len(sample.translate(None, _LETTERS)) + len(beyond)
    is_most = 3 * len(beyond) >= letters
    words = sum(len(word) for word in sample.translate(_TO_WORDS).split() if len({*word}) > 2)
    if codec not in _LATIN and 2 * words >= len(beyond) and (is_most or words >= _FEW_BYTES):
        return codec, is_most
    if len(beyond) > len(beyond.translate(None, _QUOTES)):
        codec = _WITH_QUOTES.get(codec, codec)
    own = sum(map(str.isalpha, beyond.decode(codec or "ascii", "replace")))
    is_likely = own > 2 and own >= _LEAST_LATIN * letters
    return codec if codec in _LATIN and is_likely else "", False


def codec_of(label: str) -> str:
    """The Python codec for the name of an encoding on the web; "" if there is none."""
    label = label.strip().lower()
    html5_name = _find_html5_name(label, fallback_utf8=False) if label else ""
    try:
        name = codecs.lookup(html5_name or label.removeprefix("x-")).name if label else ""
    except (LookupError, ValueError):
        return ""
    return _WIDER.get(name, name) if _CODECS.fullmatch(name) else ""
