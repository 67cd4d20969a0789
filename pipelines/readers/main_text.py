"""Extracts the main text of a web page: resiliparse's main content without short surroundings.

Resiliparse skips navigation, footers and comments by the structure of the page, but keeps short
headlines, dates, bylines, captions, teasers and share buttons. This module judges its blocks in
order: text begins with the first long paragraph and the heading above it, and ends with the last
one; between them, blocks of links and fragments outside paragraphs are removed.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from schemas.commands.entry import import_later

# An optional package; this file is imported with the table of formats.
parse_html = import_later("resiliparse.parse.html:HTMLTree.parse")
extract_plain_text = import_later("resiliparse.extract.html2text:extract_plain_text")

# Elements with these words in their class, in any case.
_SKIPPED = ("caption", "cookie", "copyright", "footer", "newsletter", "popup", "related")
_SELECTORS = [f"[class*={word} i]" for word in _SKIPPED]

_SHALLOW = "body > p, body > * > p"
_BODY = re.compile(r"<body\b[^<>]*>", re.IGNORECASE)
_LEVELS = "<div><div><div>"

# Lengths are bytes of UTF-8, so that a Chinese character counts as much as a short word.
_LONG = 80  # minimum of a long paragraph
_LONG_IN_LISTS = 20  # the same if they are less than half of the text: recipes, forums
_DECK = 80  # minimum of a heading that summarizes the text
_FEW = 300  # a shorter main text is compared with the text of the whole page
_LINKS = 0.6  # maximum share of links in a block of the text
_LINKS_AT_EDGE = 0.3  # the same for a short paragraph before or after the text

_OPEN = re.compile(r"\s*<(p|h[1-6]|li|ol|ul|pre)\b")
# A tag without an end reaches to the end, so that no search looks at its characters again.
_TAG_END = r"[^>\"]*+(?:\"[^\"]*+\"?[^>\"]*+)*+>?"
_TAG = re.compile(f"<{_TAG_END}")
_LINK = re.compile(rf"<a\b{_TAG_END}(.*?)(?:</a>|(?=<a\b)|$)", re.DOTALL)
_LAST_OF_SENTENCE = frozenset('.!?…。！？।؟"”»’)]:;」』）')


@dataclass(slots=True)
class _Block:
    """A paragraph, heading, list item, preformatted text, or line outside of these.

    Attributes:
      tag: p, h1 to h6, li, pre, or "" for a line.
      text: text without markup.
      bytes: UTF-8 bytes of the text.
      links: share of the text in links.
      mark: "• " or the number of a list item.
      opens: whether a blank line precedes it.
    """

    tag: str
    text: str
    bytes: int
    links: float
    mark: str = ""
    opens: bool = True

    @property
    def is_heading(self) -> bool:
        return self.tag[:1] == "h"

    @property
    def is_table(self) -> bool:
        """Whether it is a table row with several cells."""
        return not self.tag and "\t" in self.text

    @property
    def is_sentence(self) -> bool:
        return self.text[-1] in _LAST_OF_SENTENCE

    def is_long(self, least: int) -> bool:
        return self.bytes >= least and self.links < 0.5 and not self.is_heading


def main_text(markup: str, tree: Any) -> str:
    """The main text of a page, given its markup and tree; "" if it has none.

    If the main content is very short, resiliparse may have missed the article, so the whole page is
    judged too.
    """
    if tree.body.query_selector(_SHALLOW) is not None:
        tree = _parse_deeper(markup)
    text = _judged(tree, main_content=True)
    if _size(text) < _FEW:
        whole = _judged(tree, main_content=False)
        if len(whole) > 2 * len(text):
            return whole
    return text


def _parse_deeper(markup: str) -> Any:
    """The tree of a page with three more levels above its text.

    Otherwise resiliparse mistakes lists near the body for menus.
    """
    body = _BODY.search(markup)
    at = body.end() if body else 0
    return parse_html(markup[:at] + _LEVELS + markup[at:])


def _judged(tree: Any, *, main_content: bool) -> str:
    markup = extract_plain_text(
        tree,
        preserve_formatting="minimal_html",
        main_content=main_content,
        links=True,
        alt_texts=False,
        comments=False,
        post_meta=False,
        skip_elements=_SELECTORS,
    )
    return _join(_choose(list(_blocks(markup))))


def _blocks(markup: str) -> Iterator[_Block]:
    """The blocks of resiliparse's minimal HTML, each of which begins a line."""
    lists: list[int] = []  # number of the last item of each open list; -1 if unnumbered
    tag, raw, opens = "", "", True
    for line in markup.split("\n"):
        if raw:  # the line continues a block
            raw += "\n" + line
        elif not line.strip():
            opens = True
            continue
        else:
            raw, match = line, _OPEN.match(line)
            tag = match[1] if match else ""
            if tag in ("ol", "ul"):
                lists.append(0 if tag == "ol" else -1)
                tag = ""
        if tag not in ("", "li") and f"</{tag}>" not in line:
            continue
        if tag == "li" and lists and lists[-1] >= 0:
            lists[-1] += 1
        block = _parse(tag, raw)
        if block:
            block.opens = opens
            if tag == "li":
                block.mark = f"{lists[-1]}. " if lists and lists[-1] > 0 else "• "
            yield block
        if ("</ol>" in raw or "</ul>" in raw) and lists:
            lists.pop()
        raw, opens = "", tag not in ("", "li")
    if raw and (block := _parse(tag, raw)):
        yield block


def _parse(tag: str, raw: str) -> _Block | None:
    """The block of some markup; None if it is empty."""
    text = _plain(raw)
    text = text.strip("\n").rstrip() if tag == "pre" else text.strip()
    if not text:
        return None
    size, linked = _size(text), 0
    if "<a" in raw:
        linked = sum(_size(_plain(match[1]).strip()) for match in _LINK.finditer(raw))
    return _Block(tag, text, size, linked / size)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _plain(markup: str) -> str:
    return html.unescape(_TAG.sub("", markup))


def _choose(blocks: list[_Block]) -> list[_Block]:
    """The blocks of the main text; all blocks if none is long."""
    total = sum(block.bytes for block in blocks)
    long = [n for n, block in enumerate(blocks) if block.is_long(_LONG)]
    if 2 * sum(blocks[n].bytes for n in long) < total:
        long = [n for n, block in enumerate(blocks) if block.is_long(_LONG_IN_LISTS)]
    if not long:
        return blocks
    first, last = _first(blocks, long[0]), _last(blocks, long[-1])
    has_paragraphs = 2 * sum(block.bytes for block in blocks if block.tag == "p") > total
    kept = [
        block
        for block in blocks[first : last + 1]
        if block.tag == "pre" or block.is_table or not _is_fragment(block, has_paragraphs)
    ]
    # Drops headings without text below them.
    followers = [*kept[1:], None]
    return [
        block
        for block, after in zip(kept, followers, strict=False)
        if not (block.is_heading and (after is None or after.is_heading and after.tag <= block.tag))
    ]


def _first(blocks: list[_Block], first: int) -> int:
    """The first block of the text: before the first long block, those that lead to it."""
    begin = first
    while begin:
        block = blocks[begin - 1]
        if block.is_heading:
            is_deck = block.bytes >= _DECK and block.links < _LINKS_AT_EDGE
            leads = block.tag != "h1" and (begin == first or is_deck)
        else:
            leads = block.tag == "p" and block.is_sentence and block.links < _LINKS_AT_EDGE
        if not leads:
            break
        begin -= 1
    return begin


def _last(blocks: list[_Block], last: int) -> int:
    """The last block of the text: after the last long block, the short sentences that follow."""
    for block, before in zip(blocks[last + 1 :], blocks[last:], strict=False):
        is_like = bool(block.tag) or not before.tag
        ends = block.is_sentence and is_like and not block.is_heading and block.tag != "pre"
        ends = ends or (block.is_table and before.is_table)
        if not ends or block.links >= _LINKS_AT_EDGE:
            break
        last += 1
    return last


def _is_fragment(block: _Block, has_paragraphs: bool) -> bool:
    """Whether it is mostly links, or a short line on a page whose text is in paragraphs."""
    if block.links > _LINKS and block.tag != "li":
        return True
    return not block.tag and has_paragraphs and not (block.is_sentence and block.bytes >= _LONG)


def _join(blocks: list[_Block]) -> str:
    pieces: list[str] = []
    for number, block in enumerate(blocks):
        if number:
            before = blocks[number - 1]
            is_list = block.tag in ("", "li") and before.tag == block.tag and not block.opens
            pieces.append("\n" if is_list else "\n\n")
        pieces.append(block.mark + block.text)
    return "".join(pieces)
