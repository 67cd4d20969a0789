"""Finds the elements of a page and its blocks of text. Pure.

A block is the text between two boundaries of block elements: a paragraph, a heading, a list item, a
cell, or a piece of text between such. The input is HTML that a parser has written, which is well
formed: each element that is not a void element has an end tag, and each attribute is
`name="value"`.

Legend: N bytes, E elements, R runs of text, B blocks.
"""

from typing import NamedTuple

import numpy as np

from textmill.pipelines.runtime.compiled import entry, inner

# Elements by what they do to the text around and inside them; any other one is inline.
_BLOCKS = (
    "p div li h1 h2 h3 h4 h5 h6 td th tr table ul ol dl dt dd pre blockquote section article main "
    "nav aside header footer form fieldset figure figcaption address details summary tbody thead "
    "tfoot caption center body html legend hgroup menu search noscript"
).split()
_SKIPPED = (
    "script style template svg iframe object select option button textarea head title canvas audio "
    "video map datalist dialog noembed noframes xmp plaintext"
).split()
_VOID = "area base col embed hr img input link meta param source track wbr".split()
_OTHERS = ("a", "annotation", "br", "math", "code", "b", "strong", "em", "i")
_RAW = ("script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext")  # not escaped

TAGS = {name: code for code, name in enumerate((*_BLOCKS, *_SKIPPED, *_VOID, *_OTHERS), 1)}
INLINE, BLOCK, SKIPPED, VOID = range(4)
KINDS = np.zeros(len(TAGS) + 1, np.int8)  # by code; 0 is any other element
KINDS[[TAGS[name] for name in _BLOCKS]] = BLOCK
KINDS[[TAGS[name] for name in _SKIPPED]] = SKIPPED
KINDS[[TAGS[name] for name in (*_VOID, "br")]] = VOID
_IS_RAW = np.isin(np.arange(len(TAGS) + 1), [TAGS[name] for name in _RAW])
_A, _BR, _MATH, _SCRIPT = (TAGS[name] for name in ("a", "br", "math", "script"))

# Kinds of runs.
TEXT, LINK, SPACE, BREAK, TEX, TEX_DISPLAY = range(6)
# Flags of elements.
HIDDEN, ARIA_HIDDEN, ARTICLE_BODY, POST_TEXT, DESCRIPTION = (1 << bit for bit in range(5))


class Elements(NamedTuple):
    """The elements of a page in document order; element 0 is above all.

    Attributes:
      tags: int16 [E], codes of TAGS; 0 for other elements.
      parents: int32 [E]; -1 for element 0.
      depths: int16 [E].
      flags: int32 [E], HIDDEN and others.
      paths: uint64 [E]; equal for elements with equal names and first classes up to the root.
      groups: int32 [E], bits of the groups of WORDS with a word in class, id or role; and NAMED if
        these, itemprop or itemtype have a word of comments.
      begins: int32 [E], first byte of the start tag.
    """

    tags: np.ndarray
    parents: np.ndarray
    depths: np.ndarray
    flags: np.ndarray
    paths: np.ndarray
    groups: np.ndarray
    begins: np.ndarray


class Runs(NamedTuple):
    """The runs of text of a page, in order: bytes without markup, but with character references.

    Attributes:
      starts: int32 [R], first byte.
      stops: int32 [R], byte after the last.
      elements: int32 [R], the innermost element.
      blocks: int32 [R], number of the block.
      kinds: int8 [R], TEXT and others; a SPACE has white space only, a BREAK no bytes.
    """

    starts: np.ndarray
    stops: np.ndarray
    elements: np.ndarray
    blocks: np.ndarray
    kinds: np.ndarray


# Words in classes, ids and roles that hint at what an element is for.
WORDS = {
    "content": "article post content entry text main story body",
    "posts": "comment comments reply replies thread message answer question review reviews "
    "discussion",
    "surroundings": "nav navigation navbar menu breadcrumb breadcrumbs pagination pager sidebar "
    "aside footer header masthead related recommended recommend popular trending share sharing "
    "social ads ad advert advertisement sponsor sponsored promo promotion banner cookie consent "
    "popup modal newsletter subscribe signup login copyright",
    "product": "product description price cart specs specification details feature features",
    "card": "card item list grid carousel slider",
    "byline": "meta author byline date tag tags category categories caption avatar signature user "
    "rating",
    "footer": "footer",
    "sidebar": "sidebar aside",
    "related": "related recommended recommend popular trending more",
    "navigation": "nav navigation navbar menu breadcrumb breadcrumbs",
    "sharing": "share sharing social follow",
    "header": "header masthead",
    "dialog": "cookie consent popup modal newsletter subscribe signup login",
}
# Words for readers' comments, in languages of many sites; no measure of a block.
_COMMENTS = (
    "comment comments commenter commenting commentlist commentbody commenttext commentform disqus "
    "discussion respond replies kommentar kommentare commentaire commentaires comentario "
    "comentarios commenti commento"
)
NAMED = 1 << len(WORDS)


def _group_bits() -> dict[str, int]:
    bits: dict[str, int] = {}
    for group, words in enumerate((*WORDS.values(), _COMMENTS)):
        for word in words.split():
            bits[word] = bits.get(word, 0) | 1 << group
    return bits


def hash_name(name: str) -> int:
    """The 64-bit FNV-1a hash (Fowler, Noll, Vo) of a name's bytes."""
    value = 14695981039346656037
    for byte in name.encode():
        value = (value ^ byte) * 1099511628211 & (1 << 64) - 1
    return value


def _hash_table(values: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """A table of names' values for `_look_up`: hashes in slots, 0 in free ones; and values."""
    hashes, found = np.zeros(_SLOTS, np.uint64), np.zeros(_SLOTS, np.int32)
    for name, value in values.items():
        slot = hash_name(name) % _SLOTS
        while hashes[slot]:
            slot = (slot + 1) % _SLOTS
        hashes[slot], found[slot] = hash_name(name), value
    return hashes, found


_SLOTS = 1 << 10  # several times as many as names, so that most are found at once
_NAME_HASHES, _NAME_CODES = _hash_table(TAGS)
_WORD_HASHES, _WORD_GROUPS = _hash_table(_group_bits())


def scan(markup: np.ndarray) -> tuple[Elements, Runs, int]:
    """Finds elements, runs of text and the number of blocks.

    Args:
      markup: uint8 [N], UTF-8 of a whole page, as a parser writes it.
    """
    room = int(np.count_nonzero(markup == ord("<"))) + 2
    elements = Elements(
        np.zeros(room, np.int16),
        np.full(room, -1, np.int32),
        np.zeros(room, np.int16),
        np.zeros(room, np.int32),
        np.zeros(room, np.uint64),
        *np.zeros((2, room), np.int32),
    )
    # Text and a line break for each tag.
    places = np.zeros((4, 2 * room), np.int32)
    runs = Runs(places[0], places[1], places[2], places[3], np.zeros(2 * room, np.int8))
    counts = _scan(markup, *elements, *runs)
    return (
        Elements(*(column[: counts[0]] for column in elements)),
        Runs(*(column[: counts[1]] for column in runs)),
        counts[2],
    )


# ---- compiled ----

_FNV, _PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)
_LT, _GT, _EQUALS, _SLASH, _SPACE, _QUOTE, _DASH = (ord(sign) for sign in '<>=/ "-')


@inner
def matches(data: np.ndarray, start: int, stop: int, text: np.ndarray) -> bool:
    """Whether bytes `start` to `stop` begin with `text`."""
    if stop - start < len(text):
        return False
    for n in range(len(text)):
        if data[start + n] != text[n]:
            return False
    return True


@inner
def _contains(data: np.ndarray, start: int, stop: int, text: np.ndarray) -> bool:
    return find_text(data, start, stop, text) < stop


@inner
def find_text(data: np.ndarray, start: int, stop: int, text: np.ndarray) -> int:
    """The first place of `text` in bytes `start` to `stop`; `stop` if there is none."""
    for at in range(start, stop - len(text) + 1):
        if data[at] == text[0] and matches(data, at, stop, text):
            return at
    return stop


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


_CLASS, _ID, _ROLE, _STYLE = map(_bytes, ("class", "id", "role", "style"))
_ITEMPROP, _ITEMTYPE = map(_bytes, ("itemprop", "itemtype"))
_HIDDEN, _ARIA_HIDDEN, _TRUE, _NONE = map(_bytes, ("hidden", "aria-hidden", "true", "none"))
_DISPLAY, _TEX_TYPE = map(_bytes, ("display:", 'type="math/tex'))
_ARTICLE_BODY, _TEXT_WORD, _DESCRIPTION = map(_bytes, ("articleBody", "text", "description"))
_TEX_ENCODING, _ALT_TEXT, _ANNOTATION_END = map(
    _bytes, ("application/x-tex", ' alttext="', "</annotation")
)
_SCRIPT_END, _MATH_END = map(_bytes, ("</script", "</math"))
_DISPLAY_BLOCK, _DISPLAY_MODE = map(_bytes, (' display="block"', "mode=display"))
_COMMENT, _COMMENT_END, _NBSP = map(_bytes, ("<!--", "-->", "&nbsp;"))


@entry()
def _scan(
    data: np.ndarray,
    tags: np.ndarray,
    parents: np.ndarray,
    depths: np.ndarray,
    flags: np.ndarray,
    paths: np.ndarray,
    groups: np.ndarray,
    begins: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    elements: np.ndarray,
    blocks: np.ndarray,
    kinds: np.ndarray,
) -> tuple[int, int, int]:
    """Fills the columns of Elements and Runs; returns numbers of elements, runs and blocks."""
    count, runs, last_block = 1, 0, -1
    is_new = True  # whether the next text begins a block
    breaks = 0  # since the last text
    current = 0
    skipping = -1  # outermost open element whose text is skipped
    links = 0  # open ones
    math_end = annotation = -1  # next ones
    at = 0
    while at < len(data):
        if data[at] != _LT:
            stop = at
            while stop < len(data) and data[stop] != _LT:
                stop += 1
            if skipping < 0:
                is_blank = _is_blank(data, at, stop)
                if not is_blank and is_new:
                    last_block += 1
                    is_new = False
                if not is_blank or not is_new:
                    kind = SPACE if is_blank else LINK if links else TEXT
                    _set_run(
                        runs, at, stop, current, last_block, kind,
                        starts, stops, elements, blocks, kinds,
                    )  # fmt: skip
                    runs += 1
                    breaks = breaks if is_blank else 0
            at = stop
            continue
        following = data[at + 1] if at + 1 < len(data) else _GT
        if following == ord("!") or following == ord("?"):
            if matches(data, at, len(data), _COMMENT):
                at = find_text(data, at + len(_COMMENT), len(data), _COMMENT_END) + len(
                    _COMMENT_END
                )
            else:
                at = _skip_tag(data, at)
            continue
        if following == _SLASH:
            at = _skip_tag(data, at)
            if current:
                is_new |= KINDS[tags[current]] == BLOCK
                links -= tags[current] == _A
                if current == skipping:
                    skipping = -1
                current = parents[current]
            continue
        name_hash, name_stop = _hash_until(data, at + 1)
        tag = _look_up(_NAME_HASHES, _NAME_CODES, name_hash)
        # The attributes of an element that is not added are overwritten.
        tags[count], parents[count], depths[count] = tag, current, depths[current] + 1
        flags[count], groups[count], begins[count] = 0, 0, at
        after, first_class = _read_attributes(data, name_stop, count, flags, groups)
        kind = KINDS[tag]
        if tag == _MATH or (tag == _SCRIPT and _contains(data, name_stop, after, _TEX_TYPE)):
            if tag == _MATH:
                # Both are found once, even if formulas are nested.
                if math_end < after:
                    math_end = find_text(data, after, len(data), _MATH_END)
                if annotation < after:
                    annotation = find_text(data, after, len(data), _TEX_ENCODING)
                start, stop = _find_tex(data, name_stop, after, annotation, math_end)
            else:
                start, stop = after, find_text(data, after, len(data), _SCRIPT_END)
            if stop > start:
                if skipping < 0 or flags[skipping] & HIDDEN:  # a formula is often shown as an image
                    last_block += is_new
                    is_new = False
                    is_display = _contains(data, name_stop, after, _DISPLAY_MODE) or _contains(
                        data, name_stop, after, _DISPLAY_BLOCK
                    )
                    _set_run(
                        runs, start, stop, current, last_block, TEX_DISPLAY if is_display else TEX,
                        starts, stops, elements, blocks, kinds,
                    )  # fmt: skip
                    runs += 1
                at = _skip_tag(data, _find_end_tag(data, after, name_hash))
                continue
        if kind == VOID:
            if tag == _BR and skipping < 0 and not is_new:
                breaks += 1
                is_new = breaks > 1
                if not is_new:
                    _set_run(
                        runs, at, at, current, last_block, BREAK,
                        starts, stops, elements, blocks, kinds,
                    )  # fmt: skip
                    runs += 1
            at = after
            continue
        is_new |= kind == BLOCK
        paths[count] = ((paths[current] ^ name_hash) * _PRIME ^ first_class) * _PRIME
        current, count = count, count + 1
        links += tag == _A
        # Tooltips, and formulas that repeat their TeX; hidden blocks are judged like others.
        is_copy = flags[current] & ARIA_HIDDEN and runs and kinds[runs - 1] >= TEX
        is_unseen = kind == INLINE and (flags[current] & HIDDEN or is_copy)
        if skipping < 0 and (kind == SKIPPED or is_unseen):
            skipping = current
        if _IS_RAW[tag]:
            after = _find_end_tag(data, after, name_hash)
        at = after
    return count, runs, last_block + 1


@inner
def _set_run(
    at: int,
    start: int,
    stop: int,
    element: int,
    block: int,
    kind: int,
    starts: np.ndarray,
    stops: np.ndarray,
    elements: np.ndarray,
    blocks: np.ndarray,
    kinds: np.ndarray,
) -> None:
    starts[at], stops[at], elements[at] = start, stop, element
    blocks[at], kinds[at] = block, kind


@inner
def _is_blank(data: np.ndarray, start: int, stop: int) -> bool:
    """Whether text has only white space and no-break spaces."""
    at = start
    while at < stop:
        if data[at] <= _SPACE:
            at += 1
        elif data[at] == ord("&") and matches(data, at, stop, _NBSP):
            at += len(_NBSP)
        else:
            return False
    return True


@inner
def _skip_tag(data: np.ndarray, at: int) -> int:
    """The byte after the next `>`."""
    while at < len(data) and data[at] != _GT:
        at += 1
    return at + 1


@inner
def _hash_until(data: np.ndarray, at: int) -> tuple[np.uint64, int]:
    """The hash of an element's name, and the byte after it."""
    value = _FNV
    while at < len(data) and data[at] != _GT and data[at] != _SPACE and data[at] != _SLASH:
        value = (value ^ np.uint64(data[at])) * _PRIME
        at += 1
    return value, at


@inner
def _look_up(hashes: np.ndarray, values: np.ndarray, hash_: np.uint64) -> int:
    """The value of a name by its hash, in a table of `_hash_table`; 0 if it has none."""
    slot = np.int64(hash_ & np.uint64(_SLOTS - 1))
    while hashes[slot]:
        if hashes[slot] == hash_:
            return values[slot]
        slot = (slot + 1) & (_SLOTS - 1)
    return 0


@inner
def _find_end_tag(data: np.ndarray, at: int, name_hash: np.uint64) -> int:
    """The first byte of the end tag of an element with raw text."""
    while at + 1 < len(data):
        if data[at] == _LT and data[at + 1] == _SLASH and _hash_until(data, at + 2)[0] == name_hash:
            return at
        at += 1
    return len(data)


@inner
def _read_attributes(
    data: np.ndarray,
    at: int,
    element: int,
    flags: np.ndarray,
    groups: np.ndarray,
) -> tuple[int, np.uint64]:
    """Reads the attributes of a tag; returns the byte after the tag, and a hash of its class."""
    first_class = _FNV
    while at < len(data) and data[at] != _GT:
        if data[at] == _SPACE or data[at] == _SLASH:
            at += 1
            continue
        start = at
        while at < len(data) and data[at] != _EQUALS and data[at] != _GT and data[at] != _SPACE:
            at += 1
        stop = begin = end = at
        if at + 1 < len(data) and data[at] == _EQUALS:
            begin = end = at + 2
            while end < len(data) and data[end] != _QUOTE:
                end += 1
            at = end + 1
        if _is(data, start, stop, _CLASS):
            first_class = _hash_first(data, begin, end)
            groups[element] |= _word_groups(data, begin, end)
        elif _is(data, start, stop, _ID) or _is(data, start, stop, _ROLE):
            groups[element] |= _word_groups(data, begin, end)
        elif _is(data, start, stop, _HIDDEN) or (
            _is(data, start, stop, _STYLE) and _is_display_none(data, begin, end)
        ):
            flags[element] |= HIDDEN
        elif _is(data, start, stop, _ARIA_HIDDEN) and _is(data, begin, end, _TRUE):
            flags[element] |= ARIA_HIDDEN
        elif _is(data, start, stop, _ITEMTYPE):
            groups[element] |= _word_groups(data, begin, end) & NAMED
        elif _is(data, start, stop, _ITEMPROP):
            groups[element] |= _word_groups(data, begin, end) & NAMED
            if _is(data, begin, end, _ARTICLE_BODY):
                flags[element] |= ARTICLE_BODY
            elif _is(data, begin, end, _TEXT_WORD):
                flags[element] |= POST_TEXT
            elif _is(data, begin, end, _DESCRIPTION):
                flags[element] |= DESCRIPTION
    return at + 1, first_class


@inner
def _find_tex(
    data: np.ndarray, name_stop: int, after: int, annotation: int, end: int
) -> tuple[int, int]:
    """The bytes of the TeX of a `<math>`; none if it carries none.

    Args:
      data: the page [N].
      name_stop: the byte after the name in the start tag.
      after: the byte after the start tag.
      annotation: the next encoding of TeX.
      end: the next end tag.
    """
    if annotation < end:
        start = _skip_tag(data, annotation)
        return start, find_text(data, start, end, _ANNOTATION_END)
    start = find_text(data, name_stop, after, _ALT_TEXT) + len(_ALT_TEXT)
    stop = start
    while stop < after and data[stop] != _QUOTE:
        stop += 1
    return start, stop


@inner
def _is(data: np.ndarray, start: int, stop: int, text: np.ndarray) -> bool:
    return stop - start == len(text) and matches(data, start, stop, text)


@inner
def _is_display_none(data: np.ndarray, start: int, stop: int) -> bool:
    at = find_text(data, start, stop, _DISPLAY) + len(_DISPLAY)
    while at < stop and data[at] == _SPACE:
        at += 1
    return matches(data, at, stop, _NONE)


@inner
def _hash_first(data: np.ndarray, start: int, stop: int) -> np.uint64:
    """The hash of the first class."""
    value = _FNV
    for at in range(start, stop):
        if data[at] <= _SPACE:
            break
        value = (value ^ np.uint64(data[at])) * _PRIME
    return value


@inner
def _word_groups(data: np.ndarray, start: int, stop: int) -> int:
    """The groups of some words: of main, content and post for "mainContent post-2"."""
    groups = 0
    value = _FNV
    for at in range(start, stop + 1):
        sign = data[at] if at < stop else _SPACE
        small = sign | 32
        is_letter = ord("a") <= small <= ord("z")
        is_hump = (
            is_letter and sign != small and at > start and ord("a") <= data[at - 1] <= ord("z")
        )
        if not is_letter or is_hump:
            if value != _FNV:
                groups |= _look_up(_WORD_HASHES, _WORD_GROUPS, value)
            value = _FNV
        if is_letter:
            value = (value ^ np.uint64(small)) * _PRIME
    return groups
