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

from pipelines.host.compiled import entry
from pipelines.readers.block_features import BLOCK_FEATURES, FEATURES, LONG, PAGE_FEATURES, Blocks

TABLE = "page_model.csv"
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
_IN_CODE, _IN_NOSCRIPT, _LINKS = map(BLOCK_FEATURES.index, ("in pre", "in noscript", "link share"))


class Trees(NamedTuple):
    """A table of trees. A split goes left if its feature is at most its threshold.

    Attributes:
      starts: int32 [T], first split of each tree.
      features: int32 [S], columns of BLOCK_FEATURES, or of PAGE_FEATURES after these.
      shifts: int32 [S], whose feature: that of the block itself (0) or of a neighbour.
      thresholds: float32 [S].
      lefts: int32 [S], a split of the same tree, or -1 - leaf.
      rights: int32 [S].
      leaves: int32 [S + T], in units of 1/1024 logit; the leaves of tree t begin at starts[t] + t.
    """

    starts: np.ndarray
    features: np.ndarray
    shifts: np.ndarray
    thresholds: np.ndarray
    lefts: np.ndarray
    rights: np.ndarray
    leaves: np.ndarray


def choose_blocks(blocks: Blocks, trees: Trees | None = None) -> np.ndarray:
    """The blocks of the main content, bool [B]; none if the page has none.

    Args:
      blocks: measures of the page's blocks.
      trees: the table; by default the one in the package.
    """
    logits = np.zeros(len(blocks.sizes), np.int64)
    _add_leaves(blocks.features, blocks.page, *(trees or load_trees()), logits)
    steps = np.floor_divide(logits * _STEPS + _UNIT // 2, _UNIT) + _HIGHEST * _STEPS
    steps = np.clip(steps, 0, len(_ODDS) - 1)
    if _ODDS[steps].max() < _LEAST:
        return choose_bare(blocks)
    return keep_code(choose_likely(_POWERS[steps], blocks.sizes), blocks.features[:, _IN_CODE] > 0)


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
    return parse_trees(resources.files("pipelines.readers").joinpath(TABLE).read_text("utf-8"))


def parse_trees(text: str) -> Trees:
    """Reads a table: a line a tree, its splits `feature:threshold:left:right`, its leaves."""
    places = {name: n for n, name in enumerate((*BLOCK_FEATURES, *PAGE_FEATURES))}
    features = [(places[name], shift) for name, shift in FEATURES]
    starts: list[int] = []
    splits: list[tuple[int, int, float, int, int]] = []
    leaves: list[int] = []
    for line in text.splitlines()[1:]:
        tests, values = line.split(";")
        starts.append(len(splits))
        for test in tests.split():
            feature, threshold, left, right = test.split(":")
            splits.append((*features[int(feature)], float(threshold), int(left), int(right)))
        leaves += map(int, values.split())
    columns = list(zip(*splits, strict=True))
    return Trees(
        np.array(starts, np.int32),
        np.array(columns[0], np.int32),
        np.array(columns[1], np.int32),
        np.array(columns[2], np.float32),
        np.array(columns[3], np.int32),
        np.array(columns[4], np.int32),
        np.array(leaves, np.int32),
    )


# ---- compiled ----


@entry()
def _add_leaves(
    blocks: np.ndarray,
    page: np.ndarray,
    starts: np.ndarray,
    features: np.ndarray,
    shifts: np.ndarray,
    thresholds: np.ndarray,
    lefts: np.ndarray,
    rights: np.ndarray,
    leaves: np.ndarray,
    logits: np.ndarray,
) -> None:
    """Adds the leaf of each tree to the logit of each block that may be main content."""
    count, own = blocks.shape
    left = np.arange(count)
    for tree in range(len(starts)):
        start = starts[tree]
        if tree == _EARLY:
            left = left[logits > _HOPELESS]
        for block in left:
            split = 0
            while split >= 0:
                at = start + split
                feature = features[at]
                if feature < own:
                    place = min(max(block + shifts[at], 0), count - 1)
                    value = blocks[place, feature]
                else:
                    value = page[feature - own]
                split = lefts[at] if value <= thresholds[at] else rights[at]
            logits[block] += leaves[start + tree - 1 - split]
