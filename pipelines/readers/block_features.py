"""Measures the blocks of a page: what a model of main content judges. Pure.

Sizes are script-neutral: an ideograph or a syllable of Hangul counts as three letters and a kana as
two, which is about their share of a word; white space counts nothing. No feature knows a language's
words.

Legend: N bytes, E elements, R runs of text, B blocks, F features of a block, P features of a page.
"""

from typing import NamedTuple

import numpy as np

from textmill.pipelines.readers.page_scan import (
    ARIA_HIDDEN,
    ARTICLE_BODY,
    BLOCK,
    BREAK,
    DESCRIPTION,
    HIDDEN,
    KINDS,
    LINK,
    POST_TEXT,
    SPACE,
    TAGS,
    WORDS,
    Elements,
    Runs,
    matches,
)
from textmill.pipelines.runtime.compiled import entry, inner

LONG = 60  # minimum size of a long block, which has few links
_INSIDE = ("article", "main", "blockquote", "pre", "figure", "details", "noscript")
_NEAREST = ("nav", "aside", "header", "footer", "form")
_NESTED = (("table",), ("ul", "ol"), ("section",))
_CONTAINERS = 4  # that enclose ever more blocks
_WINDOWS = (2, 5, 12)  # blocks on either side

BLOCK_FEATURES = (
    *("size", "link share", "sentences", "commas", "digits", "capitals", "end", "breaks"),
    *("symbols", "links", "text before", "order", "after title", "tag", "depth", "inline"),
    *("path count", "path size", "path share", "path links", "path sentences"),
    *(f"in {name}" for name in _INSIDE),
    *(f"share of {name}" for name in _NEAREST),
    *(f"nested {'/'.join(names)}" for names in _NESTED),
    *("hidden", "aria-hidden", "itemprop"),
    *(f"{word} {what}" for word in WORDS for what in ("share", "distance")),
    *("article share", "article links"),
    *(
        f"container {n} {what}"
        for n in range(1, _CONTAINERS + 1)
        for what in ("share", "links", "long share", "blocks", "mean", "long", "order")
    ),
    *("repeats", "is repeat", "since long", "until long"),
    *(f"window {w} {what}" for w in _WINDOWS for what in ("mean", "links", "long")),
)
PAGE_FEATURES = (
    *("page size", "page blocks", "page links", "page long share", "page long", "page mean"),
    *("page titles", "page articles", "page mains", "page tables", "page forms", "page code"),
    *("page digits", "page longest"),
    *("page is product", "page is article", "page is discussion"),
)
# Features of neighbours, by their distance in blocks.
SHIFTED = tuple(
    (name, shift)
    for shift in (-3, -2, -1, 1, 2, 3)
    for name in ("size", "link share", "sentences", "end", "tag", "path count")
)
# All features of the model: those of the block itself, of its neighbours, and of its page.
FEATURES = (
    *((name, 0) for name in BLOCK_FEATURES),
    *SHIFTED,
    *((name, 0) for name in PAGE_FEATURES),
)
# Codes of tags, so that similar ones are close.
_LEVELS = np.zeros(len(TAGS) + 1, np.float32)
for _number, _name in enumerate(
    "h1 h2 h3 h4 h5 h6 p li td th dt dd div pre blockquote figcaption caption section article "
    "summary address".split(),
    1,
):
    _LEVELS[TAGS[_name]] = _number
_H1, _ARTICLE, _MAIN = TAGS["h1"], TAGS["article"], TAGS["main"]
_COUNTED = np.array([TAGS[name] for name in ("article", "main", "table", "form", "pre")])
# Kinds of pages by their metadata.
_MARKS = (
    (b'"Product"', b'og:type" content="product'),
    (b'Article"', b'BlogPosting"', b'og:type" content="article'),
    (b"DiscussionForumPosting", b"QAPage"),
)


class Blocks(NamedTuple):
    """The blocks of a page.

    Attributes:
      elements: int32 [B], the innermost element of a block's first text.
      sizes: float32 [B].
      paths: int32 [B], equal for blocks whose elements have equal paths.
      texts: int32 [B], equal for blocks of equal text.
      features: float32 [B, F], columns of BLOCK_FEATURES.
      page: float32 [P], PAGE_FEATURES.
    """

    elements: np.ndarray
    sizes: np.ndarray
    paths: np.ndarray
    texts: np.ndarray
    features: np.ndarray
    page: np.ndarray


def measure_blocks(markup: bytes, elements: Elements, runs: Runs, blocks: int) -> Blocks:
    """Measures the blocks that `page_scan.scan` found; there is at least one."""
    data = np.frombuffer(markup, np.uint8)
    own = np.zeros((blocks, _OWN), np.float32)
    first_elements = np.full(blocks, -1, np.int32)
    hashes = np.zeros(blocks, np.uint64)
    _measure_text(data, *runs, own, first_elements, hashes)
    features = np.zeros((blocks, len(BLOCK_FEATURES)), np.float32)
    page = np.zeros(len(PAGE_FEATURES), np.float32)
    paths = _group(elements.paths[first_elements])
    texts = _group(hashes)
    _fill(own, first_elements, *elements[:6], *paths, *texts, features, page)
    _find_marks(data, page[-len(_MARKS) :])
    return Blocks(first_elements, own[:, 0], paths[0], texts[0], features, page)


def _group(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The group of each key, numbered by keys, and the first place of each group."""
    _, first, groups = np.unique(keys, return_index=True, return_inverse=True)
    return groups.astype(np.int32), first.astype(np.int32)


def expand(blocks: Blocks) -> np.ndarray:
    """All features of the model, float32 [B, len(FEATURES)]; for training."""
    count = len(blocks.sizes)
    at = np.arange(count)
    place = {name: n for n, name in enumerate(BLOCK_FEATURES)}
    shifted = [
        blocks.features[np.clip(at + shift, 0, count - 1), place[name]] for name, shift in SHIFTED
    ]
    page = np.broadcast_to(blocks.page, (count, len(blocks.page)))
    return np.concatenate([blocks.features, np.stack(shifted, 1), page], 1)


# ---- compiled ----

_SIZE, _LINKED, _SENTENCES, _COMMAS, _DIGITS, _CAPITALS, _END, _BREAKS, _SYMBOLS, _LINKS = range(10)
_OWN = 10
_HAS_END, _HAS_COLON = np.float32(1), np.float32(2)
_FNV, _PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)
_WIDE, _KANA = 3, 2  # sizes of an ideograph or syllable of Hangul, and of a kana


_MARK_TEXTS = tuple(np.frombuffer(mark, np.uint8) for marks in _MARKS for mark in marks)
_MARK_KINDS = np.array([kind for kind, marks in enumerate(_MARKS) for _ in marks])
# Bits of the marks by their first sign that is rare on pages, no small letter or quote, and by the
# next one: few places of a page have both.
_MARK_PLACES = np.zeros(len(_MARK_TEXTS), np.int64)
_MARK_SIGNS, _MARK_NEXT = np.zeros((2, 256), np.uint8)
for _number, _text in enumerate(_MARK_TEXTS):
    _MARK_PLACES[_number] = np.argmax((_text < ord("a")) & (_text != ord('"')))
    _MARK_SIGNS[_text[_MARK_PLACES[_number]]] |= 1 << _number
    _MARK_NEXT[_text[_MARK_PLACES[_number] + 1]] |= 1 << _number


@entry()
def _find_marks(data: np.ndarray, has_marks: np.ndarray) -> None:
    """Sets 1 for each kind of page of which the page has a mark."""
    for at in range(len(data) - 1):
        if _MARK_SIGNS[data[at]] & _MARK_NEXT[data[at + 1]]:
            for n in range(len(_MARK_TEXTS)):
                start = at - _MARK_PLACES[n]
                if start >= 0 and matches(data, start, len(data), _MARK_TEXTS[n]):
                    has_marks[_MARK_KINDS[n]] = 1


@entry()
def _measure_text(
    data: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    elements: np.ndarray,
    blocks: np.ndarray,
    kinds: np.ndarray,
    own: np.ndarray,
    first_elements: np.ndarray,
    hashes: np.ndarray,
) -> None:
    """Measures the text of each block, and finds its first element and a hash of its text."""
    hashes[:] = _FNV
    after_link = False
    for run in range(len(starts)):
        block, kind = blocks[run], kinds[run]
        if kind == BREAK:
            own[block, _BREAKS] += 1
            continue
        if kind == SPACE:
            continue
        if first_elements[block] < 0:
            first_elements[block] = elements[run]
            after_link = False
        before = own[block, _SIZE]
        hashes[block] = _measure_run(data, starts[run], stops[run], own[block], hashes[block])
        if kind == LINK:
            own[block, _LINKED] += own[block, _SIZE] - before
            own[block, _LINKS] += not after_link
        after_link = kind == LINK


@inner
def _measure_run(
    data: np.ndarray, start: int, stop: int, own: np.ndarray, value: np.uint64
) -> np.uint64:
    """Adds the characters of a run to the row of its block; returns the continued hash."""
    at = start
    while at < stop:
        sign = data[at]
        if sign <= ord(" "):
            at += 1
            continue
        value = (value ^ np.uint64(sign)) * _PRIME
        second = data[at + 1] if at + 1 < stop else np.uint8(0)
        third = data[at + 2] if at + 2 < stop else np.uint8(0)
        if sign < 0x80:
            own[_SIZE] += 1
            if sign == ord("&"):  # a character reference
                while at < stop and data[at] != ord(";"):
                    at += 1
            elif ord("0") <= sign <= ord("9"):
                own[_DIGITS] += 1
                own[_END] = 0
            elif ord("A") <= sign <= ord("Z"):
                own[_CAPITALS] += 1
                own[_END] = 0
            elif sign == ord(".") or sign == ord("!") or sign == ord("?"):
                own[_SENTENCES] += second <= ord(" ") or _is_closing(second)
                own[_END] = _HAS_END
            elif sign == ord(",") or sign == ord(";"):
                own[_COMMAS] += 1
                own[_END] = 0
            elif not _is_closing(sign):
                own[_SYMBOLS] += _is_symbol(sign)
                own[_END] = _HAS_COLON if sign == ord(":") else 0
        elif sign >= 0xC2:  # the first byte of a character
            is_end, is_comma = _punctuation(sign, second, third)
            if sign < 0xE3 or sign > 0xED or is_end or is_comma:
                own[_SIZE] += 1
            else:
                own[_SIZE] += _KANA if sign == 0xE3 and second < 0x84 else _WIDE
            own[_SENTENCES] += is_end
            own[_COMMAS] += is_comma
            if not (sign == 0xE2 and second == 0x80 and (third == 0x99 or third == 0x9D)):
                own[_END] = is_end  # but for closing quotes
        at += 1
    return value


@inner
def _is_closing(sign: int) -> bool:
    return sign == ord('"') or sign == ord("'") or sign == ord(")")


@inner
def _is_symbol(sign: int) -> bool:
    return (
        sign == ord("|")
        or sign == ord("$")
        or sign == ord("@")
        or sign == ord("%")
        or sign == ord("+")
        or sign == ord("#")
    )


@inner
def _punctuation(first: int, second: int, third: int) -> tuple[bool, bool]:
    """Whether a character beyond ASCII ends a sentence, or is a comma, in any script."""
    if first == 0xE3 and second == 0x80:
        return third == 0x82, third == 0x81  # 。、
    if first == 0xEF and second == 0xBC:
        return third == 0x81 or third == 0x9F, third == 0x8C or third == 0x9B  # ！？，；
    if first == 0xE2 and second == 0x80:
        return third == 0xA6, False  # …
    if first == 0xD8:
        return second == 0x9F, second == 0x8C or second == 0x9B  # ؟ ، ؛
    if first == 0xDB:
        return second == 0x94, False  # ۔
    if first == 0xE0 and second == 0xA5:
        return third == 0xA4 or third == 0xA5, False  # । ॥
    if first == 0xE1 and second == 0x81:
        return third == 0x8B, third == 0x8A  # ။ ၊
    return False, False


_INSIDE_TAGS = np.array([TAGS[name] for name in _INSIDE])
_NEAREST_TAGS = np.array([TAGS[name] for name in _NEAREST])
_NESTED_NUMBERS = np.full(len(TAGS) + 1, -1)
for _number, _names in enumerate(_NESTED):
    _NESTED_NUMBERS[[TAGS[_name] for _name in _names]] = _number
_GROUPS = len(WORDS)
_NO_SHARE, _NO_DISTANCE, _FAR = np.float32(2), np.float32(99), np.float32(999)
_NO_TITLE = np.float32(-9999)
# Sums over the blocks inside an element.
_ALL, _IN_LINKS, _IN_LONG, _BLOCKS, _LONG_BLOCKS = range(5)


@entry()
def _fill(
    own: np.ndarray,
    first_elements: np.ndarray,
    tags: np.ndarray,
    parents: np.ndarray,
    depths: np.ndarray,
    flags: np.ndarray,
    paths: np.ndarray,
    groups: np.ndarray,
    path_groups: np.ndarray,
    path_firsts: np.ndarray,
    text_groups: np.ndarray,
    text_firsts: np.ndarray,
    features: np.ndarray,
    page: np.ndarray,
) -> None:
    """Fills the features of blocks, and all of the page's but its kinds."""
    count = len(own)
    is_long = np.zeros(count, np.bool_)
    sums = np.zeros((len(tags), 5), np.float32)
    spans = np.full((len(tags), 2), -1, np.int32)  # first and last block
    for block in range(count):
        size, linked = own[block, _SIZE], own[block, _LINKED]
        is_long[block] = size >= LONG and linked < np.float32(0.4) * size
        at = first_elements[block]
        sums[at, _ALL] += size
        sums[at, _IN_LINKS] += linked
        sums[at, _BLOCKS] += 1
        if is_long[block]:
            sums[at, _IN_LONG] += size
            sums[at, _LONG_BLOCKS] += 1
        _widen(spans[at], block, block)
    for at in range(len(tags) - 1, 0, -1):
        for n in range(5):
            sums[parents[at], n] += sums[at, n]
        if spans[at, 0] >= 0:
            _widen(spans[parents[at]], spans[at, 0], spans[at, 1])
    path_sums = np.zeros((len(path_firsts), 4), np.float32)  # blocks, size, links, sentences
    repeats = np.zeros(len(text_firsts), np.float32)
    for block in range(count):
        sum_ = path_sums[path_groups[block]]
        sum_[0] += 1
        sum_[1] += own[block, _SIZE]
        sum_[2] += own[block, _LINKED]
        sum_[3] += own[block, _SENTENCES]
        repeats[text_groups[block]] += 1
    title = -1  # first block of the first h1
    for block in range(count):
        at = first_elements[block]
        if tags[at] == _H1 or tags[max(parents[at], 0)] == _H1:
            title = block
            break
    total = max(sums[0, _ALL], np.float32(1))
    _fill_page(own, tags, sums[0], title >= 0, page)
    before = np.float32(0)
    for block in range(count):
        at = first_elements[block]
        outer = at  # the block element around
        while outer > 0 and KINDS[tags[outer]] != BLOCK:
            outer = parents[outer]
        row = features[block]
        size = max(own[block, _SIZE], np.float32(1))
        row[0] = own[block, _SIZE]
        row[1] = own[block, _LINKED] / size
        row[2] = own[block, _SENTENCES]
        row[3] = own[block, _COMMAS] / size
        row[4] = own[block, _DIGITS] / size
        row[5] = own[block, _CAPITALS] / size
        row[6] = own[block, _END]
        row[7] = own[block, _BREAKS]
        row[8] = own[block, _SYMBOLS] / size
        row[9] = own[block, _LINKS]
        row[10] = before / total
        row[11] = np.float32(block) / np.float32(count)
        row[12] = block - title if title >= 0 else _NO_TITLE
        row[13] = _LEVELS[tags[outer]]
        row[14] = depths[at]
        row[15] = at != outer
        sum_ = path_sums[path_groups[block]]
        row[16] = sum_[0]
        row[17] = sum_[1] / sum_[0]
        row[18] = sum_[1] / total
        row[19] = sum_[2] / max(sum_[1], np.float32(1))
        row[20] = sum_[3] / sum_[0]
        place = _fill_ancestors(row, 21, outer, tags, parents, flags, groups, sums, total)
        place = _fill_containers(row, place, block, outer, parents, sums, spans, total)
        row[place] = repeats[text_groups[block]]
        row[place + 1] = text_firsts[text_groups[block]] < block
        before += own[block, _SIZE]
    _fill_distances(is_long, features, place + 2)
    _fill_windows(own, is_long, features, place + 4)


@inner
def _widen(span: np.ndarray, first: int, last: int) -> None:
    if span[0] < 0 or first < span[0]:
        span[0] = first
    span[1] = max(span[1], last)


@inner
def _fill_page(
    own: np.ndarray, tags: np.ndarray, sums: np.ndarray, has_title: bool, page: np.ndarray
) -> None:
    count = len(own)
    total = max(sums[_ALL], np.float32(1))
    page[0] = total
    page[1] = count
    page[2] = sums[_IN_LINKS] / total
    page[3] = sums[_IN_LONG] / total
    page[4] = sums[_LONG_BLOCKS]
    page[5] = total / np.float32(count)
    page[6] = has_title
    for tag in tags:
        for n in range(len(_COUNTED)):
            page[7 + n] += tag == _COUNTED[n]
    digits = np.float32(0)
    for block in range(count):
        digits += own[block, _DIGITS]
        page[13] = max(page[13], own[block, _SIZE] - own[block, _LINKED])
    page[12] = digits / total


@inner
def _fill_ancestors(
    row: np.ndarray,
    place: int,
    outer: int,
    tags: np.ndarray,
    parents: np.ndarray,
    flags: np.ndarray,
    groups: np.ndarray,
    sums: np.ndarray,
    total: np.float32,
) -> int:
    """Fills features of the elements around a block, from `place` on; returns the next place."""
    inside, nearest = place, place + len(_INSIDE_TAGS)
    nested = nearest + len(_NEAREST_TAGS)
    flagged = nested + len(_NESTED)
    words = flagged + 3
    article = words + 2 * _GROUPS
    for n in range(_GROUPS):
        row[words + 2 * n], row[words + 2 * n + 1] = _NO_SHARE, _NO_DISTANCE
    row[article] = row[article + 1] = -1
    at, distance, all_flags, seen = outer, 0, 0, 0
    while at > 0:
        tag = tags[at]
        share = sums[at, _ALL] / total
        for n in range(len(_INSIDE_TAGS)):
            if tag == _INSIDE_TAGS[n]:
                row[inside + n] = 1
        for n in range(len(_NEAREST_TAGS)):
            if tag == _NEAREST_TAGS[n] and row[nearest + n] == 0:
                row[nearest + n] = share
        if _NESTED_NUMBERS[tag] >= 0:
            row[nested + _NESTED_NUMBERS[tag]] += 1
        if (tag == _ARTICLE or tag == _MAIN) and row[article] < 0:
            row[article] = share
            row[article + 1] = sums[at, _IN_LINKS] / max(sums[at, _ALL], np.float32(1))
        new = groups[at] & ~seen
        if new:
            for n in range(_GROUPS):
                if new & 1 << n:
                    row[words + 2 * n], row[words + 2 * n + 1] = share, distance
            seen |= new
        all_flags |= flags[at]
        at, distance = parents[at], distance + 1
    row[flagged] = all_flags & HIDDEN != 0
    row[flagged + 1] = all_flags & ARIA_HIDDEN != 0
    if all_flags & ARTICLE_BODY:
        row[flagged + 2] = 1
    elif all_flags & POST_TEXT:
        row[flagged + 2] = 2
    elif all_flags & DESCRIPTION:
        row[flagged + 2] = 3
    return article + 2


@inner
def _fill_containers(
    row: np.ndarray,
    place: int,
    block: int,
    outer: int,
    parents: np.ndarray,
    sums: np.ndarray,
    spans: np.ndarray,
    total: np.float32,
) -> int:
    """Fills the features of the enclosing elements that contain more blocks than the one before."""
    at, blocks = max(parents[outer], 0), sums[outer, _BLOCKS]
    for _ in range(_CONTAINERS):
        while at > 0 and sums[at, _BLOCKS] <= blocks:
            at = parents[at]
        size = max(sums[at, _ALL], np.float32(1))
        blocks = sums[at, _BLOCKS]
        row[place] = sums[at, _ALL] / total
        row[place + 1] = sums[at, _IN_LINKS] / size
        row[place + 2] = sums[at, _IN_LONG] / size
        row[place + 3] = blocks
        row[place + 4] = size / max(blocks, np.float32(1))
        row[place + 5] = sums[at, _LONG_BLOCKS]
        first, last = spans[at]
        if last > first:
            row[place + 6] = np.float32(block - first) / np.float32(last - first)
        place += 7
        at = max(parents[at], 0)
    return place


@inner
def _fill_distances(is_long: np.ndarray, features: np.ndarray, place: int) -> None:
    """Fills the distances to the long block before and after."""
    count = len(is_long)
    distance = _FAR
    for block in range(count):
        distance = min(distance + 1, _FAR)
        features[block, place] = distance
        if is_long[block]:
            distance = np.float32(0)
    distance = _FAR
    for block in range(count - 1, -1, -1):
        distance = min(distance + 1, _FAR)
        features[block, place + 1] = distance
        if is_long[block]:
            distance = np.float32(0)


@inner
def _fill_windows(own: np.ndarray, is_long: np.ndarray, features: np.ndarray, place: int) -> None:
    """Fills mean size, and shares of links and long blocks, of windows around each block."""
    count = len(is_long)
    sums = np.zeros((count + 1, 3))  # float64: differences of long sums
    for block in range(count):
        size = own[block, _SIZE]
        sums[block + 1, 0] = sums[block, 0] + size
        sums[block + 1, 1] = sums[block, 1] + own[block, _LINKED]
        sums[block + 1, 2] = sums[block, 2] + (size if is_long[block] else 0)
    for n in range(len(_WINDOWS)):
        half = _WINDOWS[n]
        for block in range(count):
            low, high = max(block - half, 0), min(block + half + 1, count)
            size = sums[high, 0] - sums[low, 0]
            features[block, place] = size / (2 * half + 1)
            features[block, place + 1] = (sums[high, 1] - sums[low, 1]) / max(size, 1.0)
            features[block, place + 2] = (sums[high, 2] - sums[low, 2]) / max(size, 1.0)
        place += 3
