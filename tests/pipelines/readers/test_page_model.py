"""The table of trees by hand, and the choice of blocks."""

import itertools
from collections.abc import Iterator
from importlib import resources

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textmill.pipelines.readers.block_features import (
    BLOCK_FEATURES,
    FEATURES,
    PAGE_FEATURES,
    Blocks,
    expand,
)
from textmill.pipelines.readers.page_model import (
    MOST_LEAVES,
    TABLE,
    choose_blocks,
    choose_likely,
    find_logits,
    keep_code,
    parse_trees,
    share_logits,
)

SIZE = FEATURES.index(("size", 0))
NEXT = FEATURES.index(("size", 1))
TOTAL = FEATURES.index(("page size", 0))
TABLE_TEXT = resources.files("textmill.pipelines.readers").joinpath(TABLE).read_text("utf-8")


def blocks_of(sizes, **columns):
    features = np.zeros((len(sizes), len(BLOCK_FEATURES)), np.float32)
    features[:, BLOCK_FEATURES.index("size")] = sizes
    for name, column in columns.items():
        features[:, BLOCK_FEATURES.index(name.replace("_", " "))] = column
    page = np.zeros(len(PAGE_FEATURES), np.float32)
    page[PAGE_FEATURES.index("page size")] = sum(sizes)
    elements, own = np.zeros(len(sizes), np.int32), np.arange(len(sizes), dtype=np.int32)
    return Blocks(elements, np.array(sizes, np.float32), own, own, features, page)


def test_splits_test_blocks_their_neighbours_and_the_page():
    # Long blocks, or those before a long one, on pages of at least 100.
    table = f"head\n{SIZE}:50:1:-1 {NEXT}:50:-3:-2;4096 2048 -4096\n{TOTAL}:99:-1:-2;-8192 0\n"
    assert choose_blocks(blocks_of([30, 9, 55, 7]), parse_trees(table)).tolist() == [
        False,
        True,
        True,
        False,
    ]
    assert not choose_blocks(blocks_of([9, 55, 7]), parse_trees(table)).any()


def test_a_page_without_a_likely_block_has_no_main_content():
    for logit, is_main in ((-500, False), (-300, True)):  # probabilities 0.38 and 0.43
        table = f"head\n{SIZE}:1:-1:-2;{logit} {logit}\n"
        assert choose_blocks(blocks_of([10, 20]), parse_trees(table)).tolist() == [is_main] * 2


@pytest.mark.parametrize(
    ("sizes", "columns", "chosen"),
    [
        ([80, 10, 60], {}, [True, False, True]),
        ([59, 10], {}, [False, False]),
        ([60, 61], {"link_share": [0, 0.5]}, [False, False]),  # less than half of the text
        ([80, 10], {"in_noscript": [1, 0]}, [False, False]),
    ],
)
def test_a_bare_text_is_kept_though_it_is_unlike_judged_pages(sizes, columns, chosen):
    trees = parse_trees(f"head\n{SIZE}:1:-1:-2;-9000 -9000\n")
    assert choose_blocks(blocks_of(sizes, **columns), trees).tolist() == chosen


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 50)), min_size=1, max_size=8).filter(
        lambda pairs: any(odds for odds, _ in pairs)
    )
)
def test_no_other_choice_of_likely_blocks_has_a_higher_f1(pairs):
    odds = np.array([p / 20 for p, _ in pairs])
    sizes = np.array([size for _, size in pairs], np.float32)

    def f1(chosen):
        hits = (odds * sizes)[list(chosen)].sum()
        return 2 * hits / (sizes[list(chosen)].sum() + (odds * sizes).sum())

    every = [
        c for n in range(1, len(odds) + 1) for c in itertools.combinations(range(len(odds)), n)
    ]
    found = np.flatnonzero(choose_likely(odds, sizes))
    assert f1(found) == pytest.approx(max(map(f1, every)))


def test_blocks_of_a_path_share_their_logits():
    logits, paths = np.array([1000, 0, 0, -3000]), np.array([0, 0, 1, 1], np.int32)
    sizes = np.array([20, 20, 15, 900], np.float32)  # weights 25, 25, 20, 405
    means = (500, -2859)  # -3000 * 405 / 425 = -2858.8
    due = [700 + 150, 150, 0.3 * means[1], -2100 + 0.3 * means[1]]
    assert share_logits(logits, paths, sizes).tolist() == [int(np.floor(value)) for value in due]


@pytest.mark.parametrize(
    ("kinds", "chosen", "kept"),
    [
        ("tccm", "1000", "1110"),
        ("mcct", "0001", "0111"),
        ("mcm", "000", "000"),
        ("cc", "00", "00"),
        ("tctcm", "10000", "11000"),
    ],
)
def test_code_beside_the_text_is_kept(kinds, chosen, kept):
    is_code = np.array([kind == "c" for kind in kinds])
    found = keep_code(np.array([sign == "1" for sign in chosen]), is_code)
    assert "".join("01"[int(block)] for block in found) == kept


def table_of(text: str) -> Iterator[tuple[list[tuple[int, np.float32, int, int]], list[int]]]:
    """Each tree's splits (feature, threshold, left, right) and leaves."""
    for line in text.splitlines()[1:]:
        tests, values = line.split(";")
        splits = [test.split(":") for test in tests.split()]
        yield (
            [(int(f), np.float32(t), int(left), int(right)) for f, t, left, right in splits],
            [*map(int, values.split())],
        )


def test_the_table_is_whole():
    for splits, leaves in table_of(TABLE_TEXT):
        children = [child for _, _, *both in splits for child in both]
        assert sorted(child for child in children if child >= 0) == [*range(1, len(splits))]
        assert sorted(-1 - child for child in children if child < 0) == [*range(len(leaves))]
        assert len(splits) + 1 == len(leaves) <= MOST_LEAVES
        assert all(feature < len(FEATURES) for feature, *_ in splits)
        assert np.isfinite([split[1] for split in splits]).all()


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_logits_are_the_sums_of_the_leaves_that_a_walk_finds(count):
    random = np.random.default_rng(count)
    trees = [*table_of(TABLE_TEXT)]
    # Features at and around thresholds, so that each way is taken.
    thresholds = np.array([split[1] for splits, _ in trees for split in splits])
    shape = (count, len(BLOCK_FEATURES))
    features = random.choice(thresholds, shape) * random.choice(
        np.array([0, 1, 1.01], np.float32), shape
    )
    page = random.choice(thresholds, len(PAGE_FEATURES))
    own = np.arange(count, dtype=np.int32)
    blocks = Blocks(own, features[:, 0], own, own, features, page)
    due = np.zeros(count, np.int64)
    for row, values in enumerate(expand(blocks)):
        for number, (splits, leaves) in enumerate(trees):
            if number == 64 and due[row] <= -3072:
                break
            at = 0
            while at >= 0:
                feature, threshold, left, right = splits[at]
                at = left if values[feature] <= threshold else right
            due[row] += leaves[-1 - at]
    assert find_logits(blocks, parse_trees(TABLE_TEXT)).tolist() == due.tolist()
    assert count < 200 or 0 < (due <= -3072).sum() < count
