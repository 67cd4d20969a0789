"""Decides which near-duplicates are removed, and for which kept document. Pure.

A document is removed if it is near a kept document of higher rank. So there are no chains: for
A ~ B ~ C, by rank, B is removed for A, and C is kept unless A ~ C. The representative of a removed
document is the most similar kept document; of equals, the one with the smallest hash. A document of
an older corpus is kept, and precedes others as representative.

Partitions decide in rounds. The partition of a document receives its edges: UP if the document is
the lower one, DOWN if it is the higher one. In a round, a document without UP edges is kept and
messages its lower neighbors; one with a KEPT edge is removed and sends nothing; the others message
that they are open, and wait. After any number of rounds `resolve` decides the rest in one place,
with the same result.
"""

import numpy as np
from numba import types

from textmill.pipelines.corpus.near_duplicates.rows import is_older
from textmill.pipelines.runtime.compiled import entry

DOWN, UP, KEPT = range(3)  # states of an edge; KEPT is an UP whose higher document is kept


def first_messages(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Verified edges -> EDGE rows with states, and the target partition of each."""
    down, up = edges.copy(), edges.copy()
    down["state"], up["state"] = DOWN, UP
    return _address(np.concatenate([down, up]))


def settle(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decides the documents of one partition that its messages suffice for.

    Args:
      rows: EDGE rows, all messages to the partition.

    Returns:
      EDGE rows of the next round; the target partition of each; one edge for each removed document.
    """
    down, open_, kept = (rows[rows["state"] == state] for state in (DOWN, UP, KEPT))
    is_waiting = np.isin(kept["lower"], open_["lower"])
    is_removed = np.isin(down["higher"], kept["lower"])
    is_open = np.isin(down["higher"], open_["lower"]) & ~is_removed
    to_lower = down[~is_removed].copy()
    to_lower["state"] = np.where(is_open[~is_removed], UP, KEPT)
    messages = np.concatenate([down[is_open], to_lower, kept[is_waiting]])
    return *_address(messages), resolve(kept[~is_waiting])


def _address(messages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    is_down = messages["state"] == DOWN
    return messages, np.where(is_down, messages["higher"], messages["lower"]) >> 32


def resolve(edges: np.ndarray) -> np.ndarray:
    """Decides all documents; returns the edge to the representative of each removed one, sorted.

    Args:
      edges: EDGE rows, all that are undecided; a pair may occur several times.
    """
    if (edges["state"] == UP).any():  # each of them is also there as DOWN
        edges = edges[edges["state"] != UP]
    edges = edges.take(np.flatnonzero(_is_kept(edges["higher"], edges["lower"])))
    order = (edges["higher"], -edges["similarity"], ~is_older(edges["higher"]), edges["lower"])
    edges = edges.take(np.lexsort(order))
    return edges.take(np.flatnonzero(np.diff(edges["lower"], prepend=-1)))


def _is_kept(higher: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """Bool [e]: whether the higher document of each edge is kept."""
    documents = np.unique(np.concatenate([higher, lower]))
    higher, lower = np.searchsorted(documents, higher), np.searchsorted(documents, lower)
    order = np.argsort(higher, kind="stable")
    starts = np.searchsorted(higher[order], np.arange(len(documents) + 1))
    kept = np.empty(len(documents), bool)
    decide(starts, lower[order], kept)
    return kept[higher]


_INTS = types.Array(types.int64, 1, "C", readonly=True)


@entry(types.void(_INTS, _INTS, types.boolean[::1]))
def decide(starts, lowers, kept):
    """Keeps each document that is near no kept one of higher rank.

    Processes a document after all its neighbors of higher rank, in topological order.

    Args:
      starts: int64[D + 1], where each document's edges to lower ones begin.
      lowers: int64[E], the lower document of each edge.
      kept: bool[D], out: whether a document is kept.
    """
    waits = np.zeros(kept.size, np.int64)
    for edge in range(lowers.size):
        waits[lowers[edge]] += 1
    queue, count = np.empty(kept.size, np.int64), 0
    for document in range(kept.size):
        kept[document] = True
        if waits[document] == 0:
            queue[count] = document
            count += 1
    place = 0
    while place < count:
        document = queue[place]
        place += 1
        for edge in range(starts[document], starts[document + 1]):
            lower = lowers[edge]
            kept[lower] &= not kept[document]
            waits[lower] -= 1
            if waits[lower] == 0:
                queue[count] = lower
                count += 1
