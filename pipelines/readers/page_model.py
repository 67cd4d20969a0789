"""Chooses the blocks of a page that are its main content, by a table of decision trees. Pure.

`python -m tests.benchmarks.train_page_model` makes the table from pages that people judged. A tree
tests features of a block, of its neighbours and of its page (`block_features.FEATURES`); the sum of
its leaves is the logit of the share of the block that is main content. Sums are integers and
probabilities come from a table, so every machine chooses the same blocks.

The chosen blocks are those with the highest probabilities, as many as give the highest expected F1
of text (Jansche 2007, "A maximum expected utility framework for binary sequence labeling").

Legend: B blocks, T trees, S splits of all trees, F features.
"""

import functools
from importlib import resources
from typing import NamedTuple

import numpy as np

from textmill.pipelines.readers.block_features import (
    BLOCK_FEATURES,
    FEATURES,
    LONG,
    PAGE_FEATURES,
    SHIFTED,
    Blocks,
)
from textmill.pipelines.runtime.compiled import entry, inner

TABLE = "page_model.csv"
MOST_LEAVES = 32  # of a tree
_UNIT = 1 << 10  # of a logit: leaves are integers
_STEPS = 16  # of probability per logit
_HIGHEST = 8  # logit, whose probability stands for higher ones, too
_ODDS = np.round(
    1 / (1 + np.exp(-np.arange(-_HIGHEST * _STEPS, _HIGHEST * _STEPS + 1) / _STEPS)), 4
)
_EARLY, _HOPELESS = 64, -3 * _UNIT  # trees after which a block of this logit is given up
_LEAST = 0.4  # without a block of this probability, a page has no main content
# Of the probability: labels count words that are in the text by chance, and so favour surroundings.
_POWER = 1.25
_POWERS = np.round(_ODDS**_POWER, 4)
# The mean of a path makes 3 of 10 parts of a logit. A block weighs its size, at most 400, and 5.
_PARTS, _MANY, _FEW = 3, 400, 5
_IN_CODE, _IN_NOSCRIPT, _LINKS = map(BLOCK_FEATURES.index, ("in pre", "in noscript", "link share"))


class Trees(NamedTuple):
    """A table of trees. A split goes left if its feature is at most its threshold.

    Attributes:
      starts: int32 [T + 1], first split of each tree, and S.
      features: int32 [S], places in FEATURES.
      thresholds: float32 [S].
      rights: uint32 [S], bits of the leaves that a block may reach if the split goes right: all but
        those to the left of the split. Bit 0 is the leftmost leaf of the tree.
      leaves: int32 [T, MOST_LEAVES], in units of 1/1024 logit; _PLACES has
        the place of each bit.
    """

    starts: np.ndarray
    features: np.ndarray
    thresholds: np.ndarray
    rights: np.ndarray
    leaves: np.ndarray


def choose_blocks(blocks: Blocks, trees: Trees | None = None) -> np.ndarray:
    """The blocks of the main content, bool [B]; none if the page has none.

    Args:
      blocks: measures of the page's blocks.
      trees: the table; by default the one in the package.
    """
    logits = find_logits(blocks, trees or load_trees())
    logits = share_logits(logits, blocks.paths, blocks.sizes)
    steps = np.floor_divide(logits * _STEPS + _UNIT // 2, _UNIT) + _HIGHEST * _STEPS
    steps = np.clip(steps, 0, len(_ODDS) - 1)
    if _ODDS[steps].max() < _LEAST:
        return choose_bare(blocks)
    return keep_code(choose_likely(_POWERS[steps], blocks.sizes), is_code(blocks))


def share_logits(logits: np.ndarray, paths: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Moves the logits of blocks of a path, such as all teasers of a list, towards their mean.

    [1000, 0, 0] of paths [0, 0, 1] and equal sizes -> [850, 150, 0].

    Args:
      logits: int64 [B].
      paths: int32 [B], number of the path of each block.
      sizes: float32 [B]; a longer block has more weight.
    """
    weights = np.minimum(sizes, _MANY).astype(np.float64) + _FEW
    # Sums of whole numbers, so they do not depend on the order.
    means = np.bincount(paths, logits * weights) / np.bincount(paths, weights)
    return ((10 - _PARTS) * logits + _PARTS * np.rint(means).astype(np.int64)[paths]) // 10


def find_logits(blocks: Blocks, trees: Trees) -> np.ndarray:
    """The logit of the share of each block that is main content, int64 [B], in 1/1024."""
    logits = np.zeros(len(blocks.sizes), np.int64)
    _add_leaves(blocks.features, blocks.page, *trees, logits)
    return logits


def choose_bare(blocks: Blocks) -> np.ndarray:
    """The long blocks of a page without a likely one, bool [B], if they are most of its text.

    Pages of one long text, without anything around it, were not among those that people judged.
    """
    links, noscript = (blocks.features[:, place] for place in (_LINKS, _IN_NOSCRIPT))
    is_long = (blocks.sizes >= LONG) & (links < 0.4) & (noscript == 0)
    return is_long & (2 * blocks.sizes[is_long].sum() >= blocks.sizes.sum())


def choose_likely(odds: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The blocks that give the highest expected F1: of [.9, .1, .8], sizes 10, the first and third.

    Args:
      odds: float64 [B], probability that a block is main content.
      sizes: float32 [B].
    """
    order = np.argsort(-odds, kind="stable")
    weights = sizes[order].astype(np.float64)
    hits = np.cumsum(odds[order] * weights)
    f1 = 2 * hits / (np.cumsum(weights) + hits[-1])
    chosen = np.zeros(len(odds), bool)
    chosen[order[: int(np.argmax(f1)) + 1]] = True
    return chosen


def is_code(blocks: Blocks) -> np.ndarray:
    """Whether each block is in `<pre>`, bool [B]."""
    return blocks.features[:, _IN_CODE] > 0


def keep_code(chosen: np.ndarray, is_code: np.ndarray) -> np.ndarray:
    """Adds code beside chosen text: to [text, code, code, menu] with text chosen, both codes.

    Args:
      chosen: bool [B].
      is_code: bool [B], whether a block is in `<pre>`.
    """
    at = np.arange(len(chosen))
    before = np.maximum.accumulate(np.where(is_code, -1, at))
    after = np.minimum.accumulate(np.where(is_code, len(at), at)[::-1])[::-1]
    around = np.append(chosen, False)  # -1 and B are beyond the page
    return chosen | is_code & (around[before] | around[after])


@functools.cache
def load_trees() -> Trees:
    """The table in the package."""
    return parse_trees(
        resources.files("textmill.pipelines.readers").joinpath(TABLE).read_text("utf-8")
    )


def parse_trees(text: str) -> Trees:
    """Reads a table: a line a tree, its splits `feature:threshold:left:right`, its leaves.

    `left` and `right` are numbers of splits of the same tree, or -1 - leaf.
    """
    starts = [0]
    features: list[int] = []
    thresholds: list[float] = []
    rights: list[int] = []
    lines = text.splitlines()[1:]
    leaves = np.zeros((len(lines), MOST_LEAVES), np.int32)
    for line, row in zip(lines, leaves, strict=True):
        tests, values = (part.split() for part in line.split(";"))
        splits = [test.split(":") for test in tests]
        features += [int(feature) for feature, _, _, _ in splits]
        thresholds += [float(threshold) for _, threshold, _, _ in splits]
        starts.append(len(features))
        order, lefts = _number_leaves([(int(left), int(right)) for _, _, left, right in splits])
        rights += [_ALL_LEAVES ^ left for left in lefts]
        for number, leaf in enumerate(order):
            row[_PLACES[number]] = values[leaf]
    return Trees(
        np.array(starts, np.int32),
        np.array(features, np.int32),
        np.array(thresholds, np.float32),
        np.array(rights, np.uint32),
        leaves,
    )


def _number_leaves(splits: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The leaves of a tree from left to right, and bits of those to the left of each split."""
    order: list[int] = []
    lefts = [0] * len(splits)

    def visit(child: int) -> int:
        if child < 0:
            order.append(-1 - child)
            return 1 << len(order) - 1
        left, right = splits[child]
        lefts[child] = visit(left)
        return lefts[child] | visit(right)

    visit(0)
    return order, lefts


# ---- compiled ----

_LANES = 64  # blocks that are judged at once, so that the processor compares several at a time
_ALL_LEAVES = (1 << MOST_LEAVES) - 1
# Multiplied by this, each power of two below 2^32 has a number below 32 of its own in the top bits
# (Leiserson, Prokop and Randall 1998, "Using de Bruijn sequences to index a 1 in a computer word").
_DE_BRUIJN, _TOP = np.uint32(0x077CB531), np.uint32(27)
_PLACES = [(int(_DE_BRUIJN) << bit & _ALL_LEAVES) >> int(_TOP) for bit in range(MOST_LEAVES)]
_OWN, _ALL = len(BLOCK_FEATURES), len(FEATURES)
_OF_PAGE = _ALL - len(PAGE_FEATURES)
_SHIFTED = np.array([(BLOCK_FEATURES.index(name), shift) for name, shift in SHIFTED])


@entry()
def _add_leaves(
    blocks: np.ndarray,
    page: np.ndarray,
    starts: np.ndarray,
    features: np.ndarray,
    thresholds: np.ndarray,
    rights: np.ndarray,
    leaves: np.ndarray,
    logits: np.ndarray,
) -> None:
    """Adds the leaf of each tree to the logit of each block that may be main content."""
    rows = np.zeros((_ALL, _LANES), np.float32)
    for n in range(len(page)):
        rows[_OF_PAGE + n] = page[n]
    reached = np.zeros(_LANES, np.uint32)
    early = min(_EARLY, len(leaves))
    left = np.arange(len(blocks))
    for first, last in ((0, early), (early, len(leaves))):
        for begin in range(0, len(left), _LANES):
            chunk = left[begin : begin + _LANES]
            _gather(blocks, chunk, rows)
            for tree in range(first, last):
                splits = slice(starts[tree], starts[tree + 1])
                _add_tree(
                    rows, features[splits], thresholds[splits], rights[splits], leaves[tree],
                    chunk, reached, logits,
                )  # fmt: skip
        left = np.flatnonzero(logits > _HOPELESS)


@inner
def _gather(blocks: np.ndarray, chunk: np.ndarray, rows: np.ndarray) -> None:
    """Copies the features of some blocks and of their neighbours to columns of `rows`."""
    for lane in range(len(chunk)):
        block = chunk[lane]
        for n in range(_OWN):
            rows[n, lane] = blocks[block, n]
        for n in range(len(_SHIFTED)):
            feature, shift = _SHIFTED[n]
            rows[_OWN + n, lane] = blocks[min(max(block + shift, 0), len(blocks) - 1), feature]


@inner
def _add_tree(
    rows: np.ndarray,
    features: np.ndarray,
    thresholds: np.ndarray,
    rights: np.ndarray,
    leaves: np.ndarray,
    chunk: np.ndarray,
    reached: np.ndarray,
    logits: np.ndarray,
) -> None:
    """Adds a leaf of one tree to the logit of each block of a chunk.

    All splits are tested, without a branch; the leaf is the leftmost one that none excludes
    (Lucchese et al. 2015, "QuickScorer: a fast algorithm to rank documents with additive
    ensembles of regression trees"). `reached` is for the bits of leaves.
    """
    reached[:] = np.uint32(_ALL_LEAVES)
    for split in range(len(features)):
        row, threshold, right = rows[features[split]], thresholds[split], rights[split]
        for lane in range(_LANES):
            reached[lane] &= np.uint32(_ALL_LEAVES) if row[lane] <= threshold else right
    for lane in range(len(chunk)):
        lowest = reached[lane] & (~reached[lane] + np.uint32(1))
        logits[chunk[lane]] += leaves[np.uint32(lowest * _DE_BRUIJN) >> _TOP]
