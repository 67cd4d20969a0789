"""Finds readers' comments beside the main text of a page. Pure.

A name (a class, an id, a kind of item) is only a hint: themes write `comments-open` on a whole
page, and forums call their posts comments. Four rules of structure decide:
- A section of comments follows main text, and there is enough main text outside.
- Most of its text is in parts that look like comments: a part has such a name, too, is a form, or
  is one of repeated siblings of several blocks.
- If replies are siblings of main text that is written like them, the page is a thread.
- If too little main text is left beside all sections, the page is a thread.
The posts of a thread are its text, so it has no comments.

Legend: E elements, B blocks.
"""

import numpy as np

from textmill.pipelines.readers.block_features import BLOCK_FEATURES, LONG, PAGE_FEATURES, Blocks
from textmill.pipelines.readers.page_scan import BLOCK, KINDS, NAMED, TAGS, Elements
from textmill.pipelines.runtime.compiled import entry

_LEAST = 300  # letters of main text outside of comments
_LEAST_SHARE = 0.08  # of main text in itself and comments
_COVERED = 0.5  # share of a section's text that is in parts

_LINKS, _SENTENCES, _IN_FORM = map(
    BLOCK_FEATURES.index, ("link share", "path sentences", "share of form")
)
_IS_DISCUSSION = PAGE_FEATURES.index("page is discussion")


def find_comments(elements: Elements, blocks: Blocks, chosen: np.ndarray) -> np.ndarray:
    """The blocks of sections of comments, bool [B]; none in a thread.

    Args:
      elements: elements of the page.
      blocks: measures of its blocks.
      chosen: bool [B], the main content, with or without comments.
    """
    is_comment = np.zeros(len(chosen), bool)
    if blocks.page[_IS_DISCUSSION]:
        return is_comment
    tags, parents, _, _, paths, groups, _ = elements
    _find_sections(tags, parents, paths, groups, blocks.elements, blocks.sizes, chosen, is_comment)
    main, comments = (blocks.sizes[part].sum() for part in (chosen & ~is_comment, is_comment))
    is_thread = main < max(_LEAST, _LEAST_SHARE * (main + comments))
    return is_comment & ~is_thread


def texts_of(blocks: Blocks, is_comment: np.ndarray) -> np.ndarray:
    """The text that readers wrote in sections of comments, without names and forms, bool [B]."""
    sentences, links, form = (blocks.features[:, place] for place in (_SENTENCES, _LINKS, _IN_FORM))
    is_text = (sentences >= 0.5) | (blocks.sizes >= LONG / 2)
    return is_comment & is_text & (links < 0.5) & (form == 0)


# ---- compiled ----

_FORM = TAGS["form"]


@entry()
def _find_sections(
    tags: np.ndarray,
    parents: np.ndarray,
    paths: np.ndarray,
    groups: np.ndarray,
    firsts: np.ndarray,
    sizes: np.ndarray,
    chosen: np.ndarray,
    is_comment: np.ndarray,
) -> None:
    """Sets `is_comment` for the blocks of sections of comments, unless the page is a thread.

    Args:
      tags: tags of elements [E].
      parents: parents of elements [E].
      paths: paths of elements [E].
      groups: groups of words of elements [E].
      firsts: innermost elements of blocks [B].
      sizes: sizes of blocks [B].
      chosen: whether blocks are main content [B].
      is_comment: all false [B].
    """
    count = len(tags)
    size = np.zeros(count, np.float32)
    main = np.zeros(count, np.float32)  # size of main content
    blocks = np.zeros(count, np.int32)
    first = np.full(count, len(firsts), np.int32)  # first block
    start = len(firsts)  # first block of main content
    for block in range(len(firsts) - 1, -1, -1):
        at = firsts[block]
        size[at] += sizes[block]
        blocks[at] += 1
        first[at] = block
        if chosen[block]:
            main[at] += sizes[block]
            start = block
    for at in range(count - 1, 0, -1):
        parent = parents[at]
        size[parent] += size[at]
        main[parent] += main[at]
        blocks[parent] += blocks[at]
        first[parent] = min(first[parent], first[at])
    is_named = np.zeros(count, np.bool_)
    is_part = np.zeros(count, np.bool_)
    is_post = np.zeros(count, np.bool_)  # may be one of a thread, or follows such a sibling
    last = np.zeros(count, np.int32)  # last child of several blocks
    for at in range(1, count):
        if KINDS[tags[at]] != BLOCK or not blocks[at]:
            continue
        is_named[at] = groups[at] & NAMED != 0
        is_part[at] |= is_named[at] or tags[at] == _FORM
        if blocks[at] == 1:
            continue
        before = last[parents[at]]
        last[parents[at]] = at
        is_post[at] = main[at] > 0 and (not is_named[at] or first[at] <= start)
        if before and paths[before] == paths[at]:
            is_part[at] = is_part[before] = True
            is_post[at] |= is_post[before]
            if is_post[before] and is_named[before] and is_named[at]:
                return
    parts = np.zeros(count, np.int32)
    covered = np.zeros(count, np.float32)  # size of the text in parts
    for at in range(count - 1, 0, -1):
        parent = parents[at]
        parts[parent] += parts[at] + is_part[at]
        covered[parent] += size[at] if is_part[at] else covered[at]
    is_inside = np.zeros(count, np.bool_)
    for at in range(1, count):
        is_inside[at] = is_inside[parents[at]] or (
            is_named[at]
            and first[at] > start
            and main[0] - main[at] >= _LEAST
            and parts[at] > 1
            and covered[at] >= _COVERED * size[at]
        )
    for block in range(len(firsts)):
        is_comment[block] = is_inside[firsts[block]]
