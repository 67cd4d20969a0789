"""When the shares of splits are far from those of --splits, and how rarely they are by chance."""

from math import comb

import pytest

from textmill.pipelines.shards.split_shares import find_far_shares

USUAL = {"train": 0.98, "validation": 0.02}


@pytest.mark.parametrize(
    ("asked", "tokens", "documents", "far"),
    [
        (USUAL, (200, 100), 3, {"train": 2 / 3, "validation": 1 / 3}),
        (USUAL, (4, 1), 5, {"train": 0.8, "validation": 0.2}),
        (USUAL, (9, 1), 10, {}),
        (USUAL, (98, 2), 1000, {}),
        (USUAL, (95, 5), 1000, {}),
        (USUAL, (93, 7), 1000, {}),
        (USUAL, (92, 8), 1000, {"train": 0.92, "validation": 0.08}),  # a few long documents
        (USUAL, (92, 8), 20, {}),
        (USUAL, (992, 8), 1000, {}),
        (USUAL, (996, 4), 1000, {"train": 0.996, "validation": 0.004}),  # a few short documents
        (USUAL, (996, 4), 100, {}),
        (USUAL, (998, 2), 100, {"train": 0.998, "validation": 0.002}),
        (USUAL, (100, 0), 1000, {"train": 1.0, "validation": 0.0}),
        (USUAL, (0, 100), 3, {"train": 0.0, "validation": 1.0}),
        (USUAL, (0, 0), 0, {}),
        ({"train": 0.5, "test": 0.5}, (70, 30), 99, {}),
        ({"train": 0.5, "test": 0.5}, (81, 19), 99, {"train": 0.81, "test": 0.19}),
        ({"train": 0.8, "validation": 0.2}, (1, 2), 3, {"train": 1 / 3, "validation": 2 / 3}),
        ({"train": 0.8, "validation": 0.2}, (2, 1), 3, {}),
        ({"a": 0.8, "b": 0.1, "c": 0.1}, (80, 19, 1), 99, {"c": 0.01}),
        ({"all": 1.0}, (5,), 1, {}),
    ],
)
def test_far_shares(asked, tokens, documents, far):
    found = find_far_shares(asked, dict(zip(asked, tokens, strict=True)), documents)
    assert found == pytest.approx(far)


@pytest.mark.parametrize("documents", [20, 50, 100, 200, 500, 1000])
@pytest.mark.parametrize("share", [0.01, 0.02, 0.05, 0.1, 0.2, 0.5])
def test_documents_of_one_length_are_rarely_far_by_chance(share, documents):
    asked = {"train": 1 - share, "validation": share}
    if documents * share < 1:
        return
    chance = 0.0
    for held in range(1, documents):  # an empty split has a warning of its own
        tokens = {"train": documents - held, "validation": held}
        if find_far_shares(asked, tokens, documents):
            chance += comb(documents, held) * share**held * (1 - share) ** (documents - held)
    assert chance < (0.02 if documents * share < 20 else 1e-4)
