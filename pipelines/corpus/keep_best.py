"""Finds the documents with the highest scores: an exact share of a corpus, for --keep_best. Pure.

    partitions -> numbers of documents by rank -> where the last kept document is -> kept documents

The rank of a document orders it by falling score, then by partition:

    rank = (2**30 - 1 - bits of the float32 score) << 17 | partition

Scores are from 0 to 1, so their bits are below 2**30 and ascend with them. Partitions, and the
rows of each, ascend by hash, so the hash decides between equal scores. Each round, every partition
counts its documents by the first bits of their ranks, at most 1,026 numbers. One worker adds them
up, and finds the first bits of the rank of the last document to keep; the next round counts the
bits that follow. After the last round the rank is known, and how many documents of it are kept.
"""

import numpy as np

from textmill.schemas.format.corpus_metadata import number_to_keep

SHIFTS = (37, 27, 0)  # of ranks, by round
_SCORE_BITS, _PARTITION_BITS = 30, 17
RANKED = np.dtype([("rank", "<i8"), ("documents", "<i8")])  # shifted ranks; their documents
# The shifted rank of the last document to keep; how many of the documents of this rank are kept.
LAST = np.dtype([("rank", "<i8"), ("kept", "<i8")])


def ranks_of(scores: np.ndarray, partition: int) -> np.ndarray:
    """Scores from 0 to 1, float32 [n], of a partition's documents -> ranks: int64 [n]."""
    bits = np.ascontiguousarray(scores, np.float32).view("<u4").astype(np.int64)
    return ((1 << _SCORE_BITS) - 1 - bits) << _PARTITION_BITS | partition


def score_of(rank: int) -> float:
    """The score of a rank, as the shortest decimal that is this float32."""
    bits = (1 << _SCORE_BITS) - 1 - (rank >> _PARTITION_BITS)
    return float(str(np.array(bits, np.uint32).view(np.float32)))


def count_ranks(ranks: np.ndarray, number: int, last: np.void | None = None) -> np.ndarray:
    """Counts documents by shifted ranks: RANKED rows.

    Args:
      ranks: int64 [n].
      number: of the round, from 0.
      last: the LAST row of the round before. Ranks that do not begin as its rank are counted at the
        ranks before and after those that do, so that all counts add up to all documents.
    """
    shifted = ranks >> SHIFTS[number]
    if last is not None:
        bits = SHIFTS[number - 1] - SHIFTS[number]
        first = int(last["rank"]) << bits
        shifted = np.clip(shifted, first - 1, first + (1 << bits))
    values, counts = np.unique(shifted, return_counts=True)
    rows = np.empty(len(values), RANKED)
    rows["rank"], rows["documents"] = values, counts
    return rows


def find_last(rows: np.ndarray, share: float) -> np.ndarray:
    """Finds the last document to keep in the RANKED rows of all partitions: a LAST row, [1]."""
    order = np.argsort(rows["rank"], kind="stable")
    ranks, up_to = rows["rank"][order], np.cumsum(rows["documents"][order])
    last = np.zeros(1, LAST)
    if len(rows):
        kept = number_to_keep(share, int(up_to[-1]))
        rank = ranks[np.searchsorted(up_to, kept)]
        before = np.searchsorted(ranks, rank)
        last["rank"] = rank
        last["kept"] = kept - (up_to[before - 1] if before else 0)
    return last


def find_best(ranks: np.ndarray, last: np.void) -> np.ndarray:
    """Which documents of a partition are kept: bool [n].

    Args:
      ranks: int64 [n], in the order of hashes.
      last: the LAST row of the last round.
    """
    is_last = ranks == last["rank"]
    return (ranks < last["rank"]) | (is_last & (np.cumsum(is_last) <= last["kept"]))
