"""Which documents are removed, and for which one that stays. Pure.

A document is removed if it is near one that stays and ranks higher. So there are no chains: of
A ~ B ~ C, by rank, B is removed for A, and C stays unless A ~ C. Its representative is the most
similar of the documents that stay and are near; of equals, the one with the smallest hash.

Documents are decided partition by partition as far as that goes. A document's partition receives
its edges: UP, those on which it is the lower one, and DOWN, those on which it is the higher one. In
a round, a document without UP stays and messages the lower ones; one that has a KEPT edge is
removed and messages none; others message that they are open, and wait. After any number of rounds
`resolve` decides the rest in one place, and the outcome is the same.
"""

import numpy as np
from numba import types

from pipelines.host.compiled import entry

DOWN, UP, KEPT = range(3)  # states of an edge; KEPT is an UP whose higher document stays


def first_messages(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Verified edges -> EDGE rows with states, and the partition that each goes to."""
    down, up = edges.copy(), edges.copy()
    down["state"], up["state"] = DOWN, UP
    return _address(np.concatenate([down, up]))


def settle(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decides what can be decided in one partition.

    Args:
      rows: EDGE, all messages that came.

    Returns:
      EDGE rows that travel on; the partition that each goes to; the edges by which documents are
      removed for good, one each.
    """
    down, open_, kept = (rows[rows["state"] == state] for state in (DOWN, UP, KEPT))
    is_waiting = np.isin(kept["lower"], open_["lower"])
    is_removed = np.isin(down["higher"], kept["lower"])
    is_open = np.isin(down["higher"], open_["lower"]) & ~is_removed
    told = down[~is_removed].copy()
    told["state"] = np.where(is_open[~is_removed], UP, KEPT)
    messages = np.concatenate([down[is_open], told, kept[is_waiting]])
    return *_address(messages), resolve(kept[~is_waiting])


def _address(messages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    is_down = messages["state"] == DOWN
    return messages, np.where(is_down, messages["higher"], messages["lower"]) >> 32


def resolve(edges: np.ndarray) -> np.ndarray:
    """The edge that each removed document is removed by, by its place.

    Args:
      edges: EDGE rows, all that are left. A pair may occur several times.
    """
    if (edges["state"] == UP).any():  # each of which is a DOWN too
        edges = edges[edges["state"] != UP]
    edges = edges.take(np.flatnonzero(_is_kept(edges["higher"], edges["lower"])))
    edges = edges.take(np.lexsort((edges["higher"], -edges["similarity"], edges["lower"])))
    return edges.take(np.flatnonzero(np.diff(edges["lower"], prepend=-1)))


def _is_kept(higher: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """Whether each edge's higher document stays: bool [e]."""
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
