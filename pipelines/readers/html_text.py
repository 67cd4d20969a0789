"""Converts web pages: bytes -> characters -> text. Pure."""

import importlib.util
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from textmill.pipelines.readers.encodings import find_utf_16, is_binary
from textmill.pipelines.readers.main_text import LITTLE, extract_plain_text, main_text, parse_html
from textmill.pipelines.readers.page_encoding import MARKS, charset_of, decode_page
from textmill.pipelines.readers.page_guard import count_tags
from textmill.pipelines.readers.page_rights import NO_RIGHTS, RIGHTS, find_rights
from textmill.pipelines.readers.xhtml import to_html
from textmill.schemas.commands.entry import import_later
from textmill.schemas.errors import UsageError, flag

# An optional package; this file is imported with the table of formats.
_extract_by_trafilatura = import_later("trafilatura:extract")

HTML = ("main", "markdown", "all", "trafilatura")
COMMENTS = ("drop", "keep")
HTML_VERSION = 2  # of the extraction: another one makes other texts of the same pages
_PACKAGES = {**dict.fromkeys(HTML, "resiliparse"), "trafilatura": "trafilatura"}
_EXTRAS = {"resiliparse": "web", "trafilatura": "trafilatura"}

_HTML_TYPES = ("text/html", "application/xhtml+xml")
_TEXT_TYPES = ("text/html", "text/plain")  # which browsers never read as XML
_VAGUE_TYPES = ("", "text/plain", "application/octet-stream", "unknown/unknown", "text/xml")
_VAGUE_TYPES += ("application/xml",)
_XML_TYPES = ("application/xhtml+xml", "text/xml", "application/xml")
_SPACE = re.compile(rb"\s*+")
_HTML_MARK = re.compile(rb"<(?:!doctype\s++html|html|head|body|title)\b", re.IGNORECASE)
_OTHER_MARKS = re.compile(
    rb"%PDF-|\x89PNG|GIF8[79]a|\xff\xd8\xff|PK\x03\x04|\x1f\x8b|\x7fELF|RIFF.{4}(?:WAVE|WEBP|AVI)"
    rb"|OggS\0|ID3[\2-\4]|%!PS|Rar!\x1a|wOF[F2]|\0\0\x01\0|\0asm|\x80[\2-\5]|\x93NUMPY"
    rb"|<svg\b|<rss\b|<feed\b|<\?xml|[{\[]\s*+[\"{\[]",
    re.DOTALL,
)
_PARSER_ERRORS = ("HTMLParserException", "PanicException")
_PEEKED = 1024  # first bytes that may show UTF-16
SHORT = 0.1  # a main text with a smaller share of the visible text is short

_DEEPEST = 512  # nested elements; extracting main content takes quadratic time in them
_TOO_DEEP = "*" + " > *" * _DEEPEST
_MOST_TAGS = 500_000  # tags of a page; the parser takes half a kilobyte for each and its text


REASONS = ("not_html", "html_too_large", "html_too_deep", "html_broken", "page_too_costly")


@dataclass(frozen=True)
class Extraction:
    """A choice of the text that is taken from pages.

    Attributes:
      html: one of HTML; "" where pages are rejected.
      comments: one of COMMENTS, what happens to readers' comments beside a main text; "all" takes
        them with either value.
      rights: whether licences and reservations of rights are looked up.
    """

    html: str = "main"
    comments: str = "drop"
    rights: bool = False

    @classmethod
    def of_fields(cls, html: str, comments: str, fields: Iterable[str]) -> "Extraction":
        """The extraction for fields that are read, with rights if one of them is in RIGHTS."""
        return cls(html, comments, not {*RIGHTS}.isdisjoint(fields))

    @property
    def keeps_comments(self) -> bool:
        """Whether readers' comments are part of the text."""
        return self.html == "all" or self.comments == "keep"


NO_PAGES = Extraction("")


class UnusablePageError(Exception):
    """A page without text; pages are counted by `reason`."""

    def __init__(self, reason: str):
        """`reason` is one of REASONS, or one of the reader."""
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Page:
    """The text, title and canonical URL of a page; "" if it has none.

    Attributes:
      share: share of the visible text that is main text; 1 if all text was taken.
      rights: see `page_rights.find_rights`.
    """

    text: str
    title: str = ""
    url: str = ""
    share: float = 1.0
    rights: tuple[str, ...] = NO_RIGHTS

    @property
    def is_short(self) -> bool:
        """Whether the main text is short beside the visible text; false if all text was taken."""
        return self.share < SHORT


def check_packages(html: str) -> None:
    """Checks that the packages for --html are installed.

    Raises:
      UsageError: a package is missing; names the command that installs it.
    """
    for package in sorted({"resiliparse", _PACKAGES[html]}):
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"web pages and {flag('html', html)} need the package {package}: pip install "
                f"'/path/to/textmill[{_EXTRAS[package]}]', on every worker"
            )


def read_page(data: bytes, content_type: str, extraction: Extraction) -> Page:
    """Extracts the text, title and URL of a page.

    Args:
      data: bytes of the page, or of anything else.
      content_type: content type in the HTTP header, `text/html; charset=koi8-r`; "" without one.
      extraction: what text is taken.

    Raises:
      UnusablePageError: it is not a page, or cannot be parsed in bounded time.
    """
    kind = page_kind(data, content_type)
    if not kind:
        raise UnusablePageError("not_html")
    markup = decode_page(data, charset_of(content_type))
    utf_8 = markup.encode()
    if is_binary(markup, utf_8):
        raise UnusablePageError("not_html")
    if kind == "text":
        return Page(markup.replace("\0", ""))
    if kind == "xhtml":
        markup = to_html(markup)
        utf_8 = markup.encode("utf-8", "replace")
    tags, has_long_tag = count_tags(utf_8)
    if tags > _MOST_TAGS:
        raise UnusablePageError("html_too_large")
    if has_long_tag:
        raise UnusablePageError("html_broken")
    return _convert(markup, extraction, may_be_deep=tags > _DEEPEST)


def may_be_page(content_type: str) -> bool:
    """Whether content with this declared type can be a page or plain text."""
    return _media_type(content_type) in (*_HTML_TYPES, *_VAGUE_TYPES)


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def page_kind(data: bytes, content_type: str) -> str:
    """The kind of content: html, xhtml (to be read as XML), text (plain), or "" for anything else.

    The first bytes decide too, since servers declare images as text/html, and pages as nothing.
    """
    declared = _media_type(content_type)
    if not may_be_page(content_type):
        return ""
    start, at, has_declaration = _skip_prolog(data)
    is_xml = declared in _XML_TYPES or (has_declaration and declared not in _TEXT_TYPES)
    if _HTML_MARK.match(start, at):
        return "xhtml" if is_xml else "html"
    is_other = has_declaration and start[at : at + 1] == b"<" and start[at : at + 2] != b"<!"
    if is_other or _OTHER_MARKS.match(start, at):
        return ""
    if declared in _HTML_TYPES:
        return "xhtml" if is_xml else "html"
    return "text" if declared == "text/plain" else ""


def has_xml_declaration(data: bytes) -> bool:
    """Whether a page begins with an XML declaration."""
    return _skip_prolog(data)[2]


def _skip_prolog(data: bytes) -> tuple[bytes, int, bool]:
    """Skips what may precede the first element or text of a page.

    Returns:
      The page, or in UTF-16 its first bytes as ASCII; the place after white space, comments and
      instructions; and whether one of these was an XML declaration.
    """
    if find_utf_16(data[:_PEEKED]):
        data = data[:_PEEKED].replace(b"\0", b"")
    at = next((len(mark) for mark, _ in MARKS if data.startswith(mark)), 0)
    has_declaration = False
    while space := _SPACE.match(data, at):
        at = space.end()
        end = b"-->" if data.startswith(b"<!--", at) else b">"
        is_skipped = data.startswith((b"<!--", b"<?"), at)
        stop = data.find(end, at + 2) if is_skipped else -1
        if stop < 0:
            break
        has_declaration = has_declaration or data.startswith(b"<?xml", at)
        at = stop + len(end)
    return data, at, has_declaration


def _convert(markup: str, extraction: Extraction, *, may_be_deep: bool) -> Page:
    """Extracts the text; raises UnusablePageError if that could take more than bounded time."""
    try:
        tree = parse_html(markup)
        body = tree.body
        if body is None:
            return Page("")
        if may_be_deep and body.query_selector(_TOO_DEEP) is not None:
            raise UnusablePageError("html_too_deep")
        html, comments = extraction.html, extraction.keeps_comments
        if html == "trafilatura":
            text = _extract_by_trafilatura(markup, fast=True, include_comments=comments) or ""
            share = _main_share(text, markup, tree)
        elif html == "all":
            text, share = extract_plain_text(tree, alt_texts=False), 1.0
        else:
            text, share = main_text(str(tree), markdown=html == "markdown", comments=comments)
        link = tree.head.query_selector("link[rel=canonical]") if tree.head else None
        url = link.get_attribute("href", "") if link else ""
        title = " ".join((tree.title or "").split())
        rights = find_rights(tree.document) if extraction.rights else NO_RIGHTS
        texts = (_valid(text), _valid(title), _valid(url or ""))
        return Page(*texts, share, tuple(map(_valid, rights)))
    except BaseException as error:
        # Classes that cannot be imported; the panic of a Rust parser is not an Exception.
        if type(error).__name__ not in _PARSER_ERRORS:
            raise
        raise UnusablePageError("html_broken") from error


def _main_share(text: str, markup: str, tree: Any) -> float:
    """The share of the main text in the visible text; 1 if it is not short."""
    if len(text) >= SHORT * len(markup):  # the visible text is no longer than the markup
        return 1.0
    visible = len(extract_plain_text(tree, alt_texts=False))
    return len(text) / visible if visible >= LITTLE and len(text) < SHORT * visible else 1.0


def _valid(text: str) -> str:
    """The text without NULs, and with U+FFFD for lone surrogates from character references."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
