"""Costs of a corpus, by hand and by drawing."""

from dataclasses import replace

import numpy as np
import pytest

from pipelines.runners.shuffle import BUFFER_BYTES
from tests.benchmarks.simulate_scale import (
    DOCUMENT_BYTES,
    Corpus,
    Near,
    Rates,
    costs,
    largest_shard,
    near_costs,
    routes_of,
)

# 10 TB of reviews: 1,465 bytes and 388 tokens a document, as docs/performance.md has it.
REVIEWS = Corpus(
    text_bytes=10e12, documents=10e12 / 1465, tokens=2.65e12, shards=65_536, workers=500
)


def test_ten_terabytes():
    taken = costs(REVIEWS, Rates())
    assert taken.blocks == 596_047
    assert taken.elements == pytest.approx(1.3e9, rel=0.05)
    assert taken.token_bytes == 5.3e12
    assert taken.shuffle_bytes == pytest.approx(6.16e12, rel=0.01)
    assert round(taken.cpu_hours) == 55
    # A mean shard is 153 MB of text, and is held three times.
    assert taken.key_memory == pytest.approx(3 * 152.6e6 * taken.largest, rel=0.001)


def test_one_shard_gets_all():
    corpus = Corpus(text_bytes=1e6, documents=1000, tokens=250_000, shards=1, workers=1)
    rates = Rates(element_bytes=500, start_seconds=0)
    taken = costs(corpus, rates)
    bytes_sent = 250_000 * 2 + 1000 * DOCUMENT_BYTES + 500  # in one element
    assert (taken.blocks, taken.elements, taken.largest) == (1, 1.0, 1.0)
    assert taken.key_bytes == taken.shuffle_bytes == bytes_sent
    assert taken.key_memory == 3e6
    assert taken.seconds == pytest.approx(
        {"blocks": 0.006, "elements": 37e-6, "shards": 0.0085, "start": 0.0}
    )


def test_a_share_of_the_text_goes_to_the_shards_of_a_split():
    half = costs(replace(REVIEWS, share=0.5), Rates())
    assert half.key_memory == pytest.approx(costs(REVIEWS, Rates()).key_memory / 2, rel=0.01)


def test_formulae_hold_where_documents_are_drawn():
    random = np.random.default_rng(0)
    hit = [len(np.unique(random.integers(0, 100, 150))) for _ in range(500)]
    assert routes_of(150, 100) == pytest.approx(np.mean(hit), rel=0.01)
    assert routes_of(150, 1) == 1
    counts = random.poisson(400, 1000)
    sizes = np.array([random.gamma(1 / 0.64, 0.64, count).sum() for count in counts])
    assert largest_shard(400, 0.8, 1000) == pytest.approx(sizes.max() / sizes.mean(), rel=0.05)


def test_near_duplicates_of_ten_terabytes():
    """7 billion documents, each in 14 buckets: rows of 52 bytes, in elements of 35."""
    taken = near_costs(REVIEWS, Near(), Rates())
    documents = REVIEWS.documents
    members = taken.shuffle_bytes["members of buckets"]
    elements = documents * 14 * 52 / BUFFER_BYTES * 65_536
    assert members == pytest.approx(documents * 14 * 52 + elements * 500, rel=0.01)
    # A set has 8 bytes for each of 244 words; 0.3 of the documents have three pairs.
    sets = taken.shuffle_bytes["sets"] / (documents * 0.3 * 1.5)
    assert sets == pytest.approx(8 * 1465 / 6 + 8 + 200, rel=0.1)
    assert taken.key_bytes == pytest.approx(documents * 14 * 52 / 65_536, rel=0.02)
    assert taken.hot_bytes == pytest.approx(documents * 1e-4 * 52)
    assert taken.seconds["signing"] == 10_000 * 7.5
    assert taken.seconds["sets"] == pytest.approx(10_000 * 20 * 0.3)


def test_nothing_that_is_near_takes_no_sets():
    taken = near_costs(REVIEWS, Near(met=1e-12), Rates())
    assert taken.shuffle_bytes["sets"] < 1e6 and taken.rest_bytes < 1
