"""Decides which documents are kept, compiled by numba. Called by `resolve.py`.

Legend: D documents, E edges.
"""

import numpy as np
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
