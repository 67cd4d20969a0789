"""Which documents are removed, decided partition by partition as far as that goes. Pure.

A document is kept if none of the higher documents that it is near is kept. It is dealt with in its
partition, where its edges come: UP, those on which it is the lower one, and DOWN, those on which
it is the higher one. In a round, who has no UP is kept and tells the lower ones; who has one that
is KEPT is removed and tells nobody; others tell that they are open, and wait. Whatever number of
rounds there is, `duplicates.resolve` decides the rest in one place, and the outcome is the same.
"""

import numpy as np

from pipelines.corpus.near_duplicates.resolve import resolve
from pipelines.corpus.near_duplicates.rows import EDGE, digest_bytes, partition_of

DOWN, UP, KEPT = range(3)  # states of an edge; KEPT is an UP whose higher document is kept


def first_messages(edges: np.ndarray, partitions: int) -> tuple[np.ndarray, np.ndarray]:
    """Verified edges -> EDGE rows with states, and the partition that each goes to."""
    down, up = edges.copy(), edges.copy()
    down["state"], up["state"] = DOWN, UP
    return _address(np.concatenate([down, up]), partitions)


def settle(rows: np.ndarray, partitions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decides what can be decided in one partition.

    Args:
      rows: EDGE, all messages that came.
      partitions: of documents.

    Returns:
      EDGE rows that go on; the partition that each goes to; the edges by which documents are
      removed for good, one each.
    """
    down, open_, kept = (rows[rows["state"] == state] for state in (DOWN, UP, KEPT))
    is_waiting = np.isin(kept["lower"], open_["lower"])
    is_removed = np.isin(down["higher"], kept["lower"])
    is_open = np.isin(down["higher"], open_["lower"]) & ~is_removed
    told = down[~is_removed].copy()
    told["state"] = np.where(is_open[~is_removed], UP, KEPT)
    messages = np.concatenate([down[is_open], told, kept[is_waiting]])
    return *_address(messages, partitions), finish(kept[~is_waiting])


def finish(rows: np.ndarray) -> np.ndarray:
    """The edges by which documents are removed, one each, of all messages that are left."""
    if (rows["state"] == UP).any():  # each of which is a DOWN too
        rows = rows[rows["state"] != UP]
    chosen = resolve(digest_bytes(rows["higher"]), digest_bytes(rows["lower"]), rows["similarity"])
    return rows[chosen]


def _address(messages: np.ndarray, partitions: int) -> tuple[np.ndarray, np.ndarray]:
    is_down = messages["state"] == DOWN
    nodes = np.where(is_down, messages["higher"], messages["lower"])
    return messages, partition_of(nodes, partitions)


NO_EDGES = np.zeros(0, EDGE)
