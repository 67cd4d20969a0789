"""Finds n-grams that are common language: those in more documents of the input than a limit. Pure.

Each n-gram keeps the `limit + 1` smallest hashes of the documents that contain it. So equal
documents count once, and the result does not depend on the order of addition.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from pipelines.corpus.decontamination.matches import Finder
from pipelines.rows.routing import content_digests

# uint64 [n, 2], ascending: an n-gram, and the hash of a document that contains it.
NO_HOLDERS = np.zeros((0, 2), np.uint64)


def find_holders(finder: Finder, text: pa.LargeStringArray) -> np.ndarray:
    """The n-grams in documents, with the first half of each document's xxh3_128."""
    pairs = finder.count(text)
    documents, place = np.unique(pairs[:, 0], return_inverse=True)
    digests = content_digests(text.take(pa.array(documents)))
    halves = np.ascontiguousarray(digests[:, :8]).view(">u8").ravel().astype(np.uint64)
    return np.stack([pairs[:, 1].astype(np.uint64), halves[place]], axis=1)


def add_holders(parts: Iterable[np.ndarray], limit: int) -> np.ndarray:
    """Joins holders; keeps at most `limit + 1` for each n-gram.

    [[7, 1], [7, 5]] and [[7, 3], [7, 5], [8, 2]] with a limit of 1 -> [[7, 1], [7, 3], [8, 2]].
    """
    holders = np.unique(np.concatenate([NO_HOLDERS, *parts]), axis=0)
    rank = np.arange(len(holders)) - np.searchsorted(holders[:, 0], holders[:, 0])
    return holders[rank <= limit]


def find_common(holders: np.ndarray, limit: int) -> np.ndarray:
    """int64, ascending: the n-grams with more holders than the limit."""
    grams, counts = np.unique(holders[:, 0], return_counts=True)
    return grams[counts > limit].astype(np.int64)
