"""Which documents are removed, and for which one that is kept. Pure.

A document is removed if it is near one that is kept and ranks higher. So there are no chains: of
A ~ B ~ C, by rank, B is removed for A, and C is kept unless A ~ C. Its representative is the most
similar of the kept ones it is near; of equals, the one with the smallest digest.
"""

import numpy as np
import pyarrow as pa
from numba import types

from pipelines.host.compiled import entry

_INTS = types.Array(types.int64, 1, "C", readonly=True)


@entry(types.void(_INTS, _INTS, types.boolean[::1]))
def decide(starts, lowers, kept):
    """Keeps each document that is near no kept one of higher rank.

    Documents come when all that rank higher and are near have come; a rank is an order, so that all
    do.

    Args:
      starts: int64[D + 1], where each document's edges to lower ones begin.
      lowers: int64[E], those.
      kept: bool[D], becomes whether it is kept.
    """
    waits = np.zeros(kept.size, np.int64)
    for edge in range(lowers.size):
        waits[lowers[edge]] += 1
    due, count = np.empty(kept.size, np.int64), 0
    for document in range(kept.size):
        kept[document] = True
        if waits[document] == 0:
            due[count] = document
            count += 1
    place = 0
    while place < count:
        document = due[place]
        place += 1
        for edge in range(starts[document], starts[document + 1]):
            lower = lowers[edge]
            kept[lower] &= not kept[document]
            waits[lower] -= 1
            if waits[lower] == 0:
                due[count] = lower
                count += 1


def resolve(higher: np.ndarray, lower: np.ndarray, similarities: np.ndarray) -> np.ndarray:
    """Picks the edge that each removed document is removed by.

    Args:
      higher: uint8 [e, 16], digests: of each verified pair the document of higher rank.
      lower: uint8 [e, 16], the other. A pair may be there several times.
      similarities: float64 [e].

    Returns:
      int64 [removed], numbers of edges: `higher` of one is the representative of `lower`. By the
      digest of the removed document.
    """
    edges = np.flatnonzero(is_kept(higher, lower))
    digest = np.hstack([lower[edges], higher[edges]]).view(">u8").astype(np.uint64)
    order = np.lexsort((*digest.T[:1:-1], -similarities[edges], digest[:, 1], digest[:, 0]))
    digest = digest[order, :2]
    is_first = np.append(True, (digest[1:] != digest[:-1]).any(axis=1))[: len(order)]
    return edges[order[is_first]]


def is_kept(higher: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """Whether each edge's higher document is kept: bool [e]."""
    documents, count = _number(np.concatenate([higher, lower]))
    higher_number, lower_number = documents[: len(higher)], documents[len(higher) :]
    order = np.argsort(higher_number, kind="stable")
    starts = np.searchsorted(higher_number[order], np.arange(count + 1))
    kept = np.empty(count, bool)
    decide(starts, lower_number[order], kept)
    return kept[higher_number]


def _number(digests: np.ndarray) -> tuple[np.ndarray, int]:
    """Equal digests get equal numbers, from 0 on: int64 [n], and how many there are."""
    column = pa.Array.from_buffers(
        pa.binary(16), len(digests), [None, pa.py_buffer(np.ascontiguousarray(digests))]
    ).dictionary_encode()
    return column.indices.to_numpy().astype(np.int64), len(column.dictionary)
