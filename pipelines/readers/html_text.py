"""Converts web pages: bytes -> characters -> text. Pure.

Encodings are detected as in browsers: byte order mark, HTTP header, meta element, statistics. A
declaration that the bytes contradict does not count, since many servers send a default.
"""

import codecs
import importlib.util
import re
from dataclasses import dataclass

from pipelines.readers.main_text import extract_plain_text, main_text, parse_html
from pipelines.readers.stored import ENCODED, find_utf_16, is_binary
from schemas.commands.entry import import_later
from schemas.errors import UsageError

# Optional packages; this file is imported with the table of formats.
_find_html5_name = import_later("resiliparse.parse.encoding:map_encoding_to_html5")
_detect_encoding = import_later("resiliparse.parse.encoding:detect_encoding")
_extract_by_trafilatura = import_later("trafilatura:extract")

HTML = ("main", "all", "trafilatura")
_PACKAGES = {"main": "resiliparse", "all": "resiliparse", "trafilatura": "trafilatura"}
_EXTRAS = {"resiliparse": "web", "trafilatura": "trafilatura"}

_MARKS = (*ENCODED, (codecs.BOM_UTF8, "utf-8"))
_META = re.compile(
    rb"<!--.*?-->|<(?:meta\b|\?xml\b)[^>]*?\b(?:charset|encoding)\s*=\s*[\"']?\s*([\w:.-]+)",
    re.IGNORECASE | re.DOTALL,
)
_META_BYTES = 1 << 14  # bytes searched for a declaration of the encoding
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
_LATIN = {*(f"cp{n}" for n in (1250, 1252, 1254, 1257, 1258)), "iso8859-2", "iso8859-15", "utf-8"}
_ESCAPES = (b"\x1b$", b"\x1b(")  # ISO-2022-JP, whose bytes are all ASCII
_TAGS = re.compile(rb"<[^<>]*>")
_SAMPLE_BYTES = 1 << 17
_FEW_BYTES = 8  # bytes beyond ASCII; fewer may be UTF-8 by chance

_HTML_TYPES = ("text/html", "application/xhtml+xml")
_VAGUE_TYPES = ("", "text/plain", "application/octet-stream", "unknown/unknown", "text/xml")
_VAGUE_TYPES += ("application/xml",)
_HTML_MARK = re.compile(
    rb"(?:\s|<!--.*?-->|<\?xml[^>]*>)*<(?:!doctype\s+html|html|head|body|title)\b",
    re.IGNORECASE | re.DOTALL,
)
_OTHER_MARKS = re.compile(
    rb"\s*(?:%PDF-|\x89PNG|GIF8[79]a|\xff\xd8\xff|PK\x03\x04|\x1f\x8b|\x7fELF|RIFF|OggS|ID3|BM"
    rb"|%!PS|Rar!|wOF[F2]|\0\0\x01\0|\0asm|<svg\b|<rss\b|<feed\b|<\?xml(?![^>]*>\s*<(?:!|html))"
    rb"|[{\[]\s*[\"{\[])"
)
_PEEKED = 1024
_NULS = 0.1  # share of NULs above which a page is binary data

_DEEPEST = 512  # nested elements; extracting main content takes quadratic time in them
_TOO_DEEP = "*" + " > *" * _DEEPEST
_MOST_TAGS = 500_000  # tags of a page; the parser takes half a kilobyte for each and its text
# A tag with a thousand attributes; parsing takes quadratic time in them.
_LONG_TAG = re.compile(
    r"""<[a-zA-Z](?:[^>\s/=]*+(?:[\s/]++|=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?+)){1000}"""
)
_NO_TAGS = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1|\Z)", re.IGNORECASE | re.DOTALL
)


class UnusablePageError(Exception):
    """A page without text; pages are counted by `reason`."""

    def __init__(self, reason: str):
        """`reason` is not_html, html_too_large, html_too_deep or html_broken."""
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Page:
    """The text, title and canonical URL of a page; "" if it has none."""

    text: str
    title: str = ""
    url: str = ""


def check_packages(html: str) -> None:
    """Checks that the packages for --html are installed.

    Raises:
      UsageError: a package is missing; names the command that installs it.
    """
    for package in sorted({"resiliparse", _PACKAGES[html]}):
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"web pages and --html={html} need the package {package}: pip install "
                f"'/path/to/textmill[{_EXTRAS[package]}]', on every worker"
            )


def read_page(data: bytes, content_type: str, html: str) -> Page:
    """Extracts the text, title and URL of a page.

    Args:
      data: bytes of the page, or of anything else.
      content_type: content type in the HTTP header, `text/html; charset=koi8-r`; "" without one.
      html: main, all or trafilatura.

    Raises:
      UnusablePageError: it is no page, or cannot be parsed in bounded time.
    """
    kind = page_kind(data, content_type)
    if not kind:
        raise UnusablePageError("not_html")
    markup = decode_page(data, charset_of(content_type))
    if is_binary(markup):
        raise UnusablePageError("not_html")
    if kind == "text":
        return Page(markup.replace("\0", ""))
    return _convert(markup, html)


def may_be_page(content_type: str) -> bool:
    """Whether content with this declared type can be a page or plain text."""
    return _media_type(content_type) in (*_HTML_TYPES, *_VAGUE_TYPES)


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def page_kind(data: bytes, content_type: str) -> str:
    """The kind of content: html, text (plain), or "" for anything else.

    The first bytes decide too, since servers declare images as text/html, and pages as nothing.
    """
    declared = _media_type(content_type)
    if not may_be_page(content_type):
        return ""
    head = data[:_PEEKED]
    is_wide = bool(find_utf_16(head))
    for mark, _ in _MARKS:
        head = head.removeprefix(mark)
    if is_wide:
        head = head.replace(b"\0", b"")
    if _HTML_MARK.match(head):
        return "html"
    if _OTHER_MARKS.match(head) or (not is_wide and head.count(0) > _NULS * len(head)):
        return ""
    if declared in _HTML_TYPES:
        return "html"
    return "text" if declared == "text/plain" else ""


def charset_of(content_type: str) -> str:
    """The charset of a content type: `text/html; charset="UTF-8"` -> `UTF-8`."""
    match = re.search(r"charset\s*=\s*[\"']?\s*([\w:.-]+)", content_type, re.IGNORECASE)
    return match[1] if match else ""


def decode_page(data: bytes, declared: str = "") -> str:
    """The characters of a page, `declared` in the HTTP header; invalid bytes become U+FFFD."""
    for mark, codec in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(codec, "replace")
    if data.isascii() and not any(escape in data for escape in _ESCAPES) and b"\0" not in data:
        return data.decode("ascii")
    wide = find_utf_16(data[:_SAMPLE_BYTES])
    if wide:
        return data.decode(wide, "replace")
    meta = next((match[1] for match in _META.finditer(data[:_META_BYTES]) if match[1]), b"")
    names = [codec_of(declared), codec_of(meta.decode("ascii"))]
    # UTF-16 would have NULs, so a page whose meta element declares it is UTF-8.
    names = [name for name in names if name and name != "utf-8" and not name.startswith("utf-16")]
    if not data.isascii():
        text = data.decode(errors="replace")
        beyond = len(data) - len(text)  # at least half of the bytes beyond ASCII, if it is UTF-8
        if 20 * text.count("\ufffd") <= beyond and (beyond >= _FEW_BYTES or not names):
            return text
    return data.decode(_find_codec(data, names), "replace")


def _find_codec(data: bytes, declared: list[str]) -> str:
    """The Python codec of a page that is not UTF-8, from its bytes and declared codecs."""
    sample = _TAGS.sub(b"<>", data[:_SAMPLE_BYTES])
    detected = codec_of(_detect_encoding(sample, html5_compatible=False) or "")
    if detected in declared or not declared or data.isascii():
        return detected or "cp1252"
    # A server's default for a page that is clearly in another script.
    if declared[0] == "cp1252" and detected and detected not in _LATIN and _is_beyond_latin(data):
        return detected
    return declared[0]


def codec_of(label: str) -> str:
    """The Python codec for the name of an encoding on the web; "" if there is none."""
    label = label.strip().lower()
    html5_name = _find_html5_name(label, fallback_utf8=False) if label else ""
    try:
        name = codecs.lookup(html5_name or label.removeprefix("x-")).name if label else ""
    except (LookupError, ValueError):
        return ""
    return _WIDER.get(name, name) if _CODECS.fullmatch(name) else ""


def _is_beyond_latin(data: bytes) -> bool:
    """Whether at least a third of the letters are beyond ASCII."""
    sample = _TAGS.sub(b" ", data[:_SAMPLE_BYTES])
    letters = sum(map(sample.count, (bytes([n]) for n in b"etaoinshrdlucmfwypvbgkjqxz")))
    return 2 * len(sample.translate(None, bytes(range(0x80)))) >= letters


def _convert(markup: str, html: str) -> Page:
    """Extracts the text; raises UnusablePageError if that could take more than bounded time."""
    tags = markup.count("<")
    if tags > _MOST_TAGS:
        raise UnusablePageError("html_too_large")
    if _LONG_TAG.search(markup) and _LONG_TAG.search(_NO_TAGS.sub("", markup)):
        raise UnusablePageError("html_broken")
    try:
        tree = parse_html(markup)
        body = tree.body
        if body is None:
            return Page("")
        if tags > _DEEPEST and body.query_selector(_TOO_DEEP) is not None:
            raise UnusablePageError("html_too_deep")
        if html == "trafilatura":
            text = _extract_by_trafilatura(markup, fast=True, include_comments=False) or ""
        elif html == "main":
            text = main_text(markup, tree)
        else:
            text = extract_plain_text(tree, alt_texts=False)
        link = tree.head.query_selector("link[rel=canonical]") if tree.head else None
        url = link.get_attribute("href", "") if link else ""
        return Page(_valid(text), _valid(" ".join((tree.title or "").split())), _valid(url or ""))
    except BaseException as error:
        # The panic of a Rust parser is no Exception, and its class cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise UnusablePageError("html_broken") from error


def _valid(text: str) -> str:
    """The text without NULs, and with U+FFFD for lone surrogates from character references."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
