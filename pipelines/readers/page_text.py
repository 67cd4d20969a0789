"""Writes the selected blocks of a page as plain text or Markdown. Pure.

Each block becomes an item, or a part of one: a paragraph, a heading, a line of a list, code, or a
table. Items stay bytes with character references, as in the page, until the whole text is joined.

Legend: E elements, R runs of text, B blocks, S runs of selected blocks.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from textmill.pipelines.readers.page_scan import (
    BLOCK,
    BREAK,
    KINDS,
    TAGS,
    TEX_DISPLAY,
    Elements,
    Runs,
)
from textmill.pipelines.runtime.compiled import entry

_PARAGRAPH, _HEADING, _CODE, _TABLE = range(4)  # kinds of items
_BREAK = b"\0"  # a line end, while white space is collapsed; a parser writes none

_LEVELS = {TAGS[f"h{level}"]: level for level in range(1, 7)}
_LISTS = {TAGS[name] for name in ("ol", "ul", "menu", "dl")}
_OL, _LI, _DT, _DD, _PRE, _QUOTE, _TABLE_TAG, _P = (
    TAGS[name] for name in ("ol", "li", "dt", "dd", "pre", "blockquote", "table", "p")
)
_CELLS = {TAGS["td"], TAGS["th"]}
_WHOLE = {*_LEVELS, *_CELLS, _PRE}  # text inside has no other structure
_SIGNS = {TAGS[name]: b"**" for name in ("b", "strong")}
_SIGNS |= {TAGS[name]: b"*" for name in ("em", "i")}
_SIGNS[TAGS["code"]] = b"`"

_MOST_PARTS = 3  # blocks, outside lists, in a cell of a table of data
_WIDEST = 40  # bytes of a prefix that is not made wider

_TAG = re.compile(rb"<!--.*?(?:-->|\Z)|<[^<>]*+>", re.DOTALL)
_BLOCK_END = re.compile(rb"</(?:div|li|p|tr)\b")
_START = re.compile(rb'\sstart="(-?\d{1,9})"')
_CLASS = re.compile(rb'\sclass="([^"]*)"')
_LANGUAGE = re.compile(rb"\b(?:language|lang|highlight-source|highlight)-([a-z][a-z0-9+#]*)")
_NO_LANGUAGES = {b"default", b"none", b"plain", b"plaintext", b"text", b"source"}
_FENCE = re.compile(rb"^ *(`{3,})", re.MULTILINE)
# Text that Markdown would read as another block; the backslash stands before the last sign.
_BLOCK_SIGNS = b"#-+*&`~=_0123456789"
_BLOCK_SIGN = re.compile(
    rb"^(?:(?=(?:#{1,6}|[-+*])(?: |$)|&gt;|```|~~~|[-=*_]{3,}$)|(\d{1,9})(?=[.)](?: |$)))",
    re.MULTILINE,
)


@dataclass(slots=True)
class _Place:
    """An element that decides how text inside it is written.

    Attributes:
      element: its number; 0 is above all others.
      tag: its tag.
      outer: the next such element around it; None for element 0.
      mark: before its first line, "• ".
      pad: before its other lines, "  ".
      prefix: pads of all elements around it, and its own.
      root: number of the outermost list around it; 0 outside lists.
      start: number of the first item of a numbered list; None for others.
      is_fresh: whether no text has been written inside.
      item: the item of a heading, code or table that takes more text.
    """

    element: int = 0
    tag: int = 0
    outer: "_Place | None" = None
    mark: bytes = b""
    pad: bytes = b""
    prefix: bytes = b""
    root: int = 0
    start: int | None = None
    is_fresh: bool = False
    item: "_Item | None" = None


@dataclass(slots=True)
class _Item:
    """A part of the text that begins a line.

    Attributes:
      kind: _PARAGRAPH or others.
      mark: before the first line, "  • ".
      prefix: before the other lines.
      root: number of the outermost list around it; 0 outside lists.
      parts: pieces of its text; none of a table.
      follows: whether no empty line separates it from a line of the same list before it.
      is_line: whether it is a line of a list.
      level: of a heading, 1 to 6.
      rows: pieces of the cells of a table's rows.
      row: number of the last row's element.
      language: of code.
      is_in_cell: whether code is in a table, perhaps beside the numbers of its lines.
    """

    kind: int
    mark: bytes
    prefix: bytes
    root: int
    parts: list[bytes]
    follows: bool = False
    is_line: bool = False
    level: int = 0
    rows: list[list[list[bytes]]] = field(default_factory=list)
    row: int = -1
    language: bytes = b""
    is_in_cell: bool = False


def page_text(
    markup: bytes, elements: Elements, runs: Runs, selected: np.ndarray, *, markdown: bool
) -> str:
    """The text of selected blocks, with lines such as "• item"; "" if none is selected.

    Args:
      markup: the page as a parser writes it.
      elements: its elements.
      runs: its runs of text.
      selected: bool [B].
      markdown: whether to write Markdown, with "- item".
    """
    chosen = np.flatnonzero(selected[runs.blocks])
    if not len(chosen):
        return ""
    items = _Walk(markup, elements, runs, chosen, markdown=markdown).items()
    text = _join(_drop_empty_headings(items), markdown=markdown)
    if b"&" in text:
        for reference, sign in ((b"lt", b"<"), (b"gt", b">"), (b"quot", b'"'), (b"amp", b"&")):
            text = text.replace(b"&" + reference + b";", sign)
    return text.decode("utf-8", "replace")


class _Walk:
    """One walk over the selected blocks of a page."""

    def __init__(
        self,
        markup: bytes,
        elements: Elements,
        runs: Runs,
        chosen: np.ndarray,
        *,
        markdown: bool,
    ):
        """`chosen` [S] has the numbers of the runs of selected blocks."""
        self.markup = markup
        self.markdown = markdown
        self.tags, self.parents, self.begins = elements.tags, elements.parents, elements.begins
        self.starts = runs.starts[chosen].tolist()
        self.stops = runs.stops[chosen].tolist()
        self.pieces = [
            markup[start:stop] for start, stop in zip(self.starts, self.stops, strict=True)
        ]
        kinds = runs.kinds[chosen]
        for n in np.flatnonzero(kinds >= BREAK).tolist():
            self.pieces[n] = self._special(n, int(kinds[n]))
        self.run_elements = runs.elements[chosen]
        # First run of each block.
        self.bounds = np.flatnonzero(np.diff(runs.blocks[chosen], prepend=-1))
        columns = np.zeros((6, len(self.tags)), np.int32)
        self.near, self.inlines, self.ranks, self.counts, self.boxes, self.cells = columns
        self.is_data = np.zeros(len(self.tags), np.bool_)
        firsts = self.run_elements[self.bounds]
        _nest(self.tags, self.parents, *columns, self.is_data)
        _find_data(self.tags, self.parents, firsts, self.near, self.boxes, self.cells, self.is_data)
        self.marks = self.inlines[self.run_elements].tolist() if markdown else []
        self.places = {0: _Place()}

    def items(self) -> list[_Item]:
        """The items of all blocks, in order."""
        items: list[_Item] = []
        firsts = self.run_elements[self.bounds]
        near = self.near[firsts].tolist()
        is_paragraph = (self.tags[self.boxes[firsts]] == _P).tolist()
        bounds = [*self.bounds.tolist(), len(self.starts)]
        for n, number in enumerate(near):
            place = self.places.get(number) or self._place(number)
            first, last = bounds[n], bounds[n + 1]
            if place.tag == _PRE:
                item = self._add_code(place, first, last)
            elif not (text := self._text(first, last)):
                continue
            elif place.tag in _CELLS:
                item = self._add_to_table(place, text)
            elif place.tag in _LEVELS:
                item = self._add_to_heading(place, text)
            else:
                item = self._line(place, text, is_paragraph[n])
            if item:
                items.append(item)
        return items

    def _special(self, run: int, kind: int) -> bytes:
        """The text of a break or formula."""
        if kind == BREAK:
            return _BREAK
        text = self.pieces[run].strip()
        if self.markup.startswith(b"</script", self.stops[run]):
            text = text.replace(b"&", b"&amp;")  # a script has no character references
        sign = b"$$" if kind == TEX_DISPLAY else b"$"
        return sign + text + sign

    def _place(self, number: int) -> _Place:
        """The place of an element of `near`, made after those around it."""
        path = []
        while number not in self.places:
            path.append(number)
            number = int(self.near[self.parents[number]])
        place = self.places[number]
        for inside in reversed(path):
            place = self.places[inside] = self._inside(place, inside)
        return place

    def _inside(self, outer: _Place, number: int) -> _Place:
        """The place of an element inside another one's; the same if the element changes nothing."""
        tag = int(self.tags[number])
        if outer.tag in _WHOLE:
            return outer
        if tag == _TABLE_TAG:
            is_data = bool(self.is_data[number])
            return self._nested(outer, number) if is_data else outer
        if tag in _CELLS:
            return self._nested(outer, number) if outer.tag == _TABLE_TAG else outer
        if tag in _LEVELS:
            while outer.tag == _LI and outer.is_fresh and outer.outer:
                # The list is one of cards or posts.
                around = outer.outer
                outer.mark = outer.pad = b""
                outer.prefix, outer.is_fresh, outer.root = around.prefix, False, 0
                outer = around
        place = self._nested(outer, number)
        if tag in _LISTS:
            place.root = outer.root or number
            if tag == _OL:
                start = _START.search(self._start_tag(number))
                place.start = int(start[1]) if start else 1
        elif tag == _LI:
            place.is_fresh = True
            if outer.start is not None:
                place.mark = b"%d. " % (outer.start + self.ranks[number])
            else:
                place.mark = b"- " if self.markdown else "• ".encode()
            place.pad = b" " * len(place.mark) if self.markdown else b"  "
        elif tag in (_DT, _DD):
            place.is_fresh = True
            if self.markdown and tag == _DD:
                place.mark, place.pad = b": ", b"  "
        elif tag == _QUOTE and self.markdown and len(outer.prefix) < _WIDEST:
            place.mark = place.pad = b"> "
        if len(outer.prefix) >= _WIDEST:
            place.pad = b""
        place.prefix += place.pad
        return place

    def _nested(self, outer: _Place, number: int) -> _Place:
        place = _Place(number, int(self.tags[number]), outer)
        place.prefix, place.root, place.is_fresh = outer.prefix, outer.root, outer.is_fresh
        return place

    def _start_tag(self, number: int) -> bytes:
        begin = int(self.begins[number])
        return self.markup[begin : self.markup.find(b">", begin) + 1]

    def _line(self, place: _Place, text: bytes, is_paragraph: bool) -> _Item:
        is_line = bool(place.root) and (place.is_fresh or not is_paragraph)
        follows = is_line and place.tag != _DT
        if self.markdown and (text[0] in _BLOCK_SIGNS or b"\n" in text):
            text = _BLOCK_SIGN.sub(rb"\1\\", text)
        mark = _use_mark(place) if place.is_fresh else place.prefix
        return _Item(_PARAGRAPH, mark, place.prefix, place.root, [text], follows, is_line)

    def _add_to_heading(self, place: _Place, text: bytes) -> _Item | None:
        text = text.replace(b"\n", b" ")
        if place.item:
            place.item.parts.append(text)
            return None
        level = _LEVELS[place.tag]
        mark = _use_mark(place) + (b"#" * level + b" " if self.markdown else b"")
        place.item = _Item(_HEADING, mark, place.prefix, place.root, [text], level=level)
        return place.item

    def _add_to_table(self, place: _Place, text: bytes) -> _Item | None:
        """Adds text to a cell; returns the table's item if it is new."""
        cell = place.element
        table = place.outer or place
        item, is_new = table.item, not table.item
        if not item:
            mark = _use_mark(table)
            item = table.item = _Item(_TABLE, mark, table.prefix, table.root, [])
        row = int(self.parents[cell])
        if row != item.row:
            item.row = row
            item.rows.append([[] for _ in range(int(self.counts[row]))])
        item.rows[-1][int(self.ranks[cell])].append(text.replace(b"\n", b" "))
        return item if is_new else None

    def _add_code(self, place: _Place, first: int, last: int) -> _Item | None:
        """Adds a block to the code it is in; returns the code's item if it is new."""
        if place.item:
            parts = place.item.parts
            gap = self._gap(self.stops[first - 1], self.starts[first])
            if b"\n" not in gap and not parts[-1].endswith(b"\n"):
                between = self.markup[self.stops[first - 1] : self.starts[first]]
                ends = len(_BLOCK_END.findall(between))
                gap = b"\n" * max(1, ends, between.count(b"<br")) + gap
        else:
            mark = _use_mark(place)
            item = place.item = _Item(_CODE, mark, place.prefix, place.root, [])
            begin = int(self.begins[place.element])
            gap = self._gap(begin, self.starts[first]).rpartition(b"\n")[2]
            item.is_in_cell = bool(self.cells[place.element])
            if self.markdown:
                item.language = self._language(place.element, int(self.run_elements[first]))
            parts = item.parts
        parts.append(gap)
        text = b"".join(self.pieces[first:last]).removesuffix(_BREAK).replace(_BREAK, b"\n")
        parts.append(text.replace(b"&nbsp;", b" "))
        return place.item if len(parts) == 2 else None

    def _gap(self, start: int, stop: int) -> bytes:
        """The white space of markup between two blocks of code; "" if it has text."""
        gap = _TAG.sub(b"", self.markup[start:stop]).replace(b"&nbsp;", b" ")
        return gap if gap.isspace() else b""

    def _language(self, pre: int, inside: int) -> bytes:
        """The language of code by classes of its elements, and of two around them."""
        around = int(self.parents[pre])
        path = [pre, around, max(0, int(self.parents[around]))]
        while inside > pre:
            path.insert(0, inside)
            inside = int(self.parents[inside])
        for number in path:
            if names := _CLASS.search(self._start_tag(number)):
                for name in _LANGUAGE.findall(names[1]):
                    if name not in _NO_LANGUAGES:
                        return name
        return b""

    def _text(self, first: int, last: int) -> bytes:
        """The text of runs, with collapsed white space, and line ends for breaks."""
        if self.marks and any(self.marks[first:last]):
            text = self._marked(first, last)
        else:
            text = b"".join(self.pieces[first:last])
        if b"&nbsp;" in text:
            text = text.replace(b"&nbsp;", b" ")
        text = b" ".join(text.split())
        if _BREAK in text:
            text = b"\n".join(filter(None, (line.strip() for line in text.split(_BREAK))))
        return text

    def _marked(self, first: int, last: int) -> bytes:
        """The markup of runs, with signs around what is code, bold or emphasized."""
        pieces: list[bytes] = []
        at = first
        while at < last:
            stop = at + 1
            while stop < last and self.marks[stop] == self.marks[at]:
                stop += 1
            text = b"".join(self.pieces[at:stop])
            element = self.run_elements[at]
            is_heading = int(self.tags[self.near[element]]) in _LEVELS
            sign = _SIGNS.get(int(self.tags[self.marks[at]]), b"")
            if sign and (sign == b"`" or not is_heading):
                before = pieces[-1][-1:] if pieces else b""
                after = self.pieces[stop][:1] if stop < last else b""
                text = _sign(text, sign, before, after)
            pieces.append(text)
            at = stop
        return b"".join(pieces)


def _sign(text: bytes, sign: bytes, before: bytes, after: bytes) -> bytes:
    """Text between signs, if Markdown then reads them as such.

    Args:
      text: text, "bold ".
      sign: "**", "*" or "`".
      before: the byte before it; "" at the start of a block.
      after: the byte after it.
    """
    core = text.strip()
    if not core or _BREAK in core or sign[:1] in core or before in (b"*", b"`"):
        return text
    begin = text.index(core)
    lead, rest = text[:begin], text[begin + len(core) :]
    if sign != b"`":
        before, after = lead or before, rest or after
        is_open = _is_word(core[:1]) or not before.strip()
        is_closed = _is_word(core[-1:]) or not after.strip()
        if not (is_open and is_closed):
            return text
    return lead + sign + core + sign + rest


def _is_word(sign: bytes) -> bool:
    return sign.isalnum() or sign > b"\x7f"


def _use_mark(place: _Place) -> bytes:
    """The start of the next line of a place: its mark once, and the pads of those around it."""
    mark, has_mark = b"", False
    while place.is_fresh and place.outer:
        mark = (place.pad if has_mark else place.mark) + mark
        has_mark |= place.mark != place.pad
        place.is_fresh = False
        place = place.outer  # is fresh no more, like all around it, if text was written inside
    return place.prefix + mark


def _drop_empty_headings(items: list[_Item]) -> list[_Item]:
    """Items without headings that no text follows before the next heading of their level."""
    kept: list[_Item] = []
    for item in reversed(items):
        if item.kind == _HEADING:
            after = kept[-1] if kept else None
            if after is None or (after.kind == _HEADING and after.level <= item.level):
                continue
        kept.append(item)
    return kept[::-1]


def _join(items: list[_Item], *, markdown: bool) -> bytes:
    pieces: list[bytes] = []
    before: _Item | None = None
    for item in items:
        is_paragraph = item.kind == _PARAGRAPH
        text = item.parts[0] if is_paragraph else _written(item, markdown=markdown)
        if not text:
            continue
        if before:
            pieces.append(_separator(before, item))
        if markdown or item.kind < _CODE:
            pieces.append(item.mark)
            if item.prefix and b"\n" in text:
                first, *lines = text.split(b"\n")
                blank = item.prefix.rstrip()
                text = b"\n".join((first, *(item.prefix + s if s else blank for s in lines)))
        pieces.append(text)
        before = item
    return b"".join(pieces)


def _written(item: _Item, *, markdown: bool) -> bytes:
    if item.kind == _HEADING:
        return b" ".join(item.parts)
    if item.kind == _CODE:
        return _code(item, markdown=markdown)
    rows = [[b" ".join(cell) for cell in row] for row in item.rows]
    return b"\n".join(_markdown_rows(rows) if markdown else map(b"\t".join, rows))


def _separator(before: _Item, item: _Item) -> bytes:
    if item.follows and before.is_line and before.root == item.root:
        return b"\n"
    if not item.prefix:
        return b"\n\n"
    quote = item.prefix[: item.prefix.rfind(b">") + 1]
    return b"\n" + quote + b"\n" if before.prefix.startswith(quote) else b"\n\n"


def _code(item: _Item, *, markdown: bool) -> bytes:
    text = b"".join(item.parts).strip(b"\n").rstrip()
    if item.is_in_cell and _is_counted(text):
        return b""
    if not text or not markdown:
        return text
    longest = max(map(len, _FENCE.findall(text)), default=2)
    fence = b"`" * (longest + 1)
    return b"\n".join((fence + item.language, text, fence))


def _is_counted(text: bytes) -> bool:
    """Whether text is the numbers of lines: 1, 2, 3."""
    numbers = text.split()
    if not all(number.isdigit() and len(number) < 9 for number in numbers):
        return False
    return all(int(b) - int(a) == 1 for a, b in pairwise(numbers))


def _markdown_rows(rows: list[list[bytes]]) -> Iterator[bytes]:
    width = max(map(len, rows))
    rows[0] += [b""] * (width - len(rows[0]))
    for number, row in enumerate(rows):
        yield b"| " + b" | ".join(cell.replace(b"|", rb"\|") for cell in row) + b" |"
        if not number:
            yield b"|" + b" --- |" * width


# ---- compiled ----


def _is_one_of(*names: str) -> np.ndarray:
    return np.isin(np.arange(len(TAGS) + 1), [TAGS[name] for name in names])


_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_IS_PLACE = _is_one_of(
    "li", "ol", "ul", "menu", "dl", "dt", "dd", "pre", "blockquote", "table", "td", "th", *_HEADINGS
)
_IS_INLINE = _is_one_of("code", "b", "strong", "em", "i")
_IS_CELL = _is_one_of("td", "th")
_IS_LARGE = _is_one_of("pre", "blockquote", *_HEADINGS)


@entry()
def _nest(
    tags: np.ndarray,
    parents: np.ndarray,
    near: np.ndarray,
    inlines: np.ndarray,
    ranks: np.ndarray,
    counts: np.ndarray,
    boxes: np.ndarray,
    cells: np.ndarray,
    is_plain: np.ndarray,
) -> None:
    """Finds how elements are nested. All arguments are [E].

    Args:
      tags: tags of elements.
      parents: parents of elements.
      near: set to the innermost element around each that decides how text is written.
      inlines: set to the outermost element of code, bold or emphasis in a block; 0 if none.
      ranks: set to the number of a list item or cell among those of its parent.
      counts: set to the number of list items or cells in an element.
      boxes: set to the innermost block element.
      cells: set to the innermost cell; of a table 0.
      is_plain: set to whether it is a table without a table inside.
    """
    tables = np.zeros(len(tags), np.int32)  # innermost ones
    for at in range(1, len(tags)):
        tag, parent = tags[at], parents[at]
        is_block = KINDS[tag] == BLOCK
        near[at] = at if _IS_PLACE[tag] else near[parent]
        boxes[at] = at if is_block else boxes[parent]
        tables[at], cells[at] = tables[parent], cells[parent]
        if not is_block:
            inlines[at] = inlines[parent]
            if not inlines[at] and _IS_INLINE[tag]:
                inlines[at] = at
        elif tag == _TABLE_TAG:
            is_plain[tables[parent]] = False
            tables[at], cells[at], is_plain[at] = at, 0, True
        elif tag == _LI or _IS_CELL[tag]:
            ranks[at] = counts[parent]
            counts[parent] += 1
            if tag != _LI:
                cells[at] = at


@entry()
def _find_data(
    tags: np.ndarray,
    parents: np.ndarray,
    firsts: np.ndarray,
    near: np.ndarray,
    boxes: np.ndarray,
    cells: np.ndarray,
    is_data: np.ndarray,
) -> None:
    """Finds tables of data: not of layout, and a row has two cells with text.

    A table of layout has a heading, code or quotation, or several paragraphs in a cell.

    Args:
      tags: tags of elements [E].
      parents: parents of elements [E].
      firsts: innermost elements of selected blocks.
      near: as in `_nest` [E].
      boxes: as in `_nest` [E].
      cells: as in `_nest` [E].
      is_data: whether an element is a table without a table inside [E]; set to whether it has data.
    """
    parts = np.zeros(len(tags), np.int32)  # blocks of a cell
    paragraphs = np.zeros(len(tags), np.int32)  # paragraphs of a cell
    filled = np.zeros(len(tags), np.int32)  # cells with text of a row, rows with text of a table
    has_columns = np.zeros(len(tags), np.bool_)
    for first in firsts:
        cell, tag = cells[first], tags[boxes[first]]
        if not cell:
            continue
        row = parents[cell]
        table = near[row]
        if not parts[cell]:
            filled[table] += not filled[row]
            filled[row] += 1
            has_columns[table] |= filled[row] > 1
        parts[cell] += not parts[cell] or tags[near[first]] != _LI
        paragraphs[cell] += tag == _P
        if _IS_LARGE[tag] or paragraphs[cell] > 1 or parts[cell] > _MOST_PARTS:
            is_data[table] = False
    for first in firsts:
        table = near[parents[cells[first]]]
        if parts[cells[first]] > 1 and filled[table] == 1:
            is_data[table] = False
    for at in range(len(tags)):
        is_data[at] &= has_columns[at]
