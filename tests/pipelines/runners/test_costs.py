"""Costs of a corpus, by hand and by drawing."""

import numpy as np
import pytest

from tests.benchmarks.simulate_scale import (
    DOCUMENT_BYTES,
    Corpus,
    Rates,
    costs,
    largest_shard,
    routes_of,
)
from textmill.pipelines.runners.shuffle import count_elements

# 10 TB of reviews: 1,465 bytes and 388 tokens a document, as docs/performance.md has it.
REVIEWS = Corpus(
    text_bytes=10e12, documents=10e12 / 1465, tokens=2.65e12, shards=65_536, workers=500
)


def test_one_shard_gets_all():
    corpus = Corpus(text_bytes=1e6, documents=1000, tokens=250_000, shards=1, workers=1)
    rates = Rates(element_bytes=500, start_seconds=0)
    taken = costs(corpus, rates)
    bytes_sent = 250_000 * 2 + 1000 * DOCUMENT_BYTES + 500  # in one element
    assert (taken.blocks, taken.elements, taken.largest) == (1, 1.0, 1.0)
    assert taken.key_bytes == taken.shuffle_bytes == bytes_sent
    assert taken.key_memory == 3e6
    assert taken.seconds == pytest.approx(
        {"blocks": 0.022, "elements": 37e-6, "shards": 0.012, "start": 0.0}
    )


def test_formulae_hold_where_documents_are_drawn():
    random = np.random.default_rng(0)
    hit = [len(np.unique(random.integers(0, 100, 150))) for _ in range(500)]
    assert routes_of(150, 100) == pytest.approx(np.mean(hit), rel=0.01)
    assert (routes_of(150, 1), routes_of(2, 2)) == (1, 1.5)
    # Bundles of 256 MiB send 150 documents each; a block sends once at least, and all of it once.
    for megabytes, blocks, sends in ((512, 9, 2), (512, 1, 1), (0.001, 9, 1)):
        elements = count_elements(megabytes * 2**20, 150 * sends, blocks, 100)
        assert elements == pytest.approx(sends * routes_of(150, 100))
    counts = random.poisson(400, 1000)
    sizes = np.array([random.gamma(1 / 0.64, 0.64, count).sum() for count in counts])
    assert largest_shard(400, 0.8, 1000) == pytest.approx(sizes.max() / sizes.mean(), rel=0.05)
