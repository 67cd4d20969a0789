"""Extracts the main text of a web page, without menus, footers, dialogs and teasers. Pure.

`page_scan` cuts a parser's tree, written as HTML, into blocks; `block_features` measures them;
`page_model` chooses those of the main content by a table of decision trees; `page_comments` finds
readers' comments; and `page_text` writes the blocks as text or Markdown.
"""

import numpy as np

from textmill.pipelines.readers.block_features import LONG, Blocks, measure_blocks
from textmill.pipelines.readers.page_comments import find_comments, texts_of
from textmill.pipelines.readers.page_model import Trees, choose_blocks, is_code
from textmill.pipelines.readers.page_scan import BLOCK, KINDS, TAGS, Elements, scan
from textmill.pipelines.readers.page_text import page_text
from textmill.pipelines.runtime.compiled import entry
from textmill.schemas.commands.entry import import_later

_CELLS = tuple(TAGS[name] for name in ("td", "th"))
_ITEMS = tuple(TAGS[name] for name in ("li", "dt", "dd"))
_MOST = 0.6  # share of a list or table; if so much is chosen, all of it is
LITTLE = 200  # letters; a page with less visible text has no short main text

# An optional package; this file is imported with the table of formats.
parse_html = import_later("resiliparse.parse.html:HTMLTree.parse")
extract_plain_text = import_later("resiliparse.extract.html2text:extract_plain_text")


def main_text(markup: str, *, markdown: bool = False, comments: bool = False) -> tuple[str, float]:
    """The main text of a page, and its share of the visible text; "" if it has none.

    If comments are dropped, they do not count as visible text.

    Args:
      markup: the page as a parser's tree writes it.
      markdown: whether to write headings, lists, code and tables as Markdown.
      comments: whether to take readers' comments.
    """
    data = markup.encode("utf-8", "replace")
    elements, runs, count = scan(np.frombuffer(data, np.uint8))
    if not count:
        return "", 1.0
    blocks = measure_blocks(data, elements, runs, count)
    chosen, is_comment = choose(elements, blocks, comments=comments)
    text = page_text(data, elements, runs, chosen, markdown=markdown)
    visible = blocks.sizes.sum() if comments else blocks.sizes[~is_comment].sum()
    share = float(blocks.sizes[chosen].sum() / max(visible, 1))
    return text, share if visible >= LITTLE else 1.0


def choose(
    elements: Elements, blocks: Blocks, *, comments: bool = False, trees: Trees | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The blocks that make the main text, and those of sections of comments, bool [B].

    Args:
      elements: elements of the page.
      blocks: measures of its blocks.
      comments: whether to take readers' comments.
      trees: the table; by default the one in the package.
    """
    series = series_of(elements, blocks.elements)
    chosen = complete(choose_blocks(blocks, trees), series, blocks.sizes)
    is_comment = find_comments(elements, blocks, chosen)
    chosen = chosen | texts_of(blocks, is_comment) if comments else chosen & ~is_comment
    is_long = (blocks.sizes >= LONG) & ~is_code(blocks)
    return drop_repeats(chosen, blocks.texts, is_long), is_comment


def series_of(elements: Elements, firsts: np.ndarray) -> np.ndarray:
    """Numbers the series of each block: of two cells of a table and a paragraph, [0, 0, 1].

    Args:
      elements: elements of the page.
      firsts: int32 [B], the innermost element of a block's first text.

    Returns:
      int64 [B]; the cells of a table are a series, and so are items of a list whose elements have
      equal names and first classes; any other block is its own.
    """
    keys = np.zeros(len(firsts), np.uint64)
    _find_series(elements.tags, elements.parents, elements.paths, firsts, keys)
    return np.unique(keys, return_inverse=True)[1]


def complete(chosen: np.ndarray, series: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Adds the rest of each series of which most is chosen, such as the last item of a list.

    Args:
      chosen: bool [B].
      series: int64 [B], number of the series of each block.
      sizes: float32 [B].
    """
    kept = np.bincount(series, sizes * chosen)
    return chosen | (kept >= _MOST * np.bincount(series, sizes))[series]


def drop_repeats(chosen: np.ndarray, texts: np.ndarray, is_long: np.ndarray) -> np.ndarray:
    """Drops long blocks whose text is chosen before: quotes in forums, or copies for small screens.

    Args:
      chosen: bool [B].
      texts: int32 [B], equal for blocks of equal text.
      is_long: bool [B]; short texts, such as headings and cells, may be repeated.
    """
    places = np.flatnonzero(chosen & is_long)
    firsts = places[np.unique(texts[places], return_index=True)[1]]
    kept = chosen & ~is_long
    kept[firsts] = True
    return kept


# ---- compiled ----

_PRIME = np.uint64(1099511628211)
_TABLE = TAGS["table"]


@entry()
def _find_series(
    tags: np.ndarray,
    parents: np.ndarray,
    paths: np.ndarray,
    firsts: np.ndarray,
    keys: np.ndarray,
) -> None:
    """Finds a key for the series of each block."""
    for block in range(len(firsts)):
        at = firsts[block]
        while at > 0 and KINDS[tags[at]] != BLOCK:
            at = parents[at]
        path = paths[at]
        if tags[at] in _CELLS:
            path = np.uint64(0)
            while at > 0 and tags[at] != _TABLE:
                at = parents[at]
        elif tags[at] in _ITEMS:
            at = parents[at]
        else:
            at, path = -1 - block, np.uint64(0)
        keys[block] = np.uint64(at) * _PRIME ^ path
