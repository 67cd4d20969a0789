"""Shingles: runs of words or characters, of which sets of a document's are compared. Pure.

The similarity of two documents is Jaccard's of their sets: of all shingles that stand in one or the
other, the share that stands in both. How often a shingle stands in a document does not count. A
document that is shorter than a shingle has one, all of it; one without a word has none, and is like
no other.
"""

import numpy as np
import pyarrow as pa

from pipelines.corpus.near_duplicates.rule import Shingle
from pipelines.corpus.near_duplicates.shingle_loop import hash_runs, sort_distinct
from pipelines.rows.ragged import Ragged
from pipelines.rows.text_bytes import slices, utf8_bytes
from pipelines.rows.word_hashes import hash_some_characters, hash_some_words

# Of a document with more, the smallest hashes are its set, and what compares two sets looks no
# further than the last hash of either: a fair sample of both, 512 KB at most.
LARGEST_SET = 1 << 16
AT_ONCE = 1 << 18  # bytes of which shingles are made together, so that the cache holds them


def shingle_sets(text: pa.LargeStringArray, shingle: Shingle) -> Ragged:
    """The shingles of each document, as hashes.

    Returns:
      uint64 values, sorted and distinct within a document, at most LARGEST_SET of each; int64
      [n + 1] offsets.
    """
    parts = [Ragged(np.zeros(0, np.uint64), np.zeros(1, np.int64))]
    for some in slices(text, AT_ONCE):
        runs = shingle_hashes(*utf8_bytes(some), shingle)
        lengths = np.empty(len(some), np.int64)
        used = sort_distinct(runs.values, runs.offsets, LARGEST_SET, lengths)
        parts.append(Ragged.of(runs.values[:used].copy(), lengths))
    return Ragged.joined(parts)


def shingle_hashes(data: np.ndarray, bounds: np.ndarray, shingle: Shingle) -> Ragged:
    """Hashes of all shingles as they follow each other, of text that the cache holds.

    Args:
      data: uint8 [bytes], as `utf8_bytes` gives it.
      bounds: int64 [n + 1].
      shingle: what they are.

    Returns:
      uint64 values; int64 [n + 1] offsets.
    """
    if shingle.unit == "word":
        units, offsets, _, _ = hash_some_words(data, bounds)
    else:
        units, offsets = hash_some_characters(data, bounds)
    lengths = np.diff(offsets)
    runs = Ragged.of(units, np.where(lengths > 0, np.maximum(lengths - shingle.size + 1, 1), 0))
    values = np.empty(runs.offsets[-1], np.uint64)
    hash_runs(units, offsets, shingle.size, values, runs.offsets)
    return Ragged(values, runs.offsets)
