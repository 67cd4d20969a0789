"""Which documents a step trains on, and which steps train on a document. No framework.

Both follow from (seed, step) and the dataset alone: no step is read for the other.
Legend: S segments, R rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from textmill.trainers.data.row_order import find_places
from textmill.trainers.data.shard_set import ShardSet


class Sighting(NamedTuple):
    """A row that a step reads.

    Attributes:
      step: from 0.
      position: of the row in the step's global batch.
      row_index: of the row in the split.
      epoch: of the row.
    """

    step: int
    position: int
    row_index: int
    epoch: int


def rows_of_step(
    shards: ShardSet, split: str, step: int, *, batch_size: int, seed: int
) -> list[Sighting]:
    """The rows of a step's global batch, in its order."""
    positions = np.arange(step * batch_size, (step + 1) * batch_size)
    order = shards.order(split, positions, seed=seed)
    return [
        Sighting(step, at, row, epoch)
        for at, (row, epoch) in enumerate(zip(order["row_index"].tolist(), order["epoch"].tolist()))
    ]


def documents_of_step(
    shards: ShardSet, split: str, step: int, *, batch_size: int, seed: int
) -> dict[bytes, int]:
    """Tokens of a step's global batch by the digest of their document, most first."""
    found = rows_of_step(shards, split, step, batch_size=batch_size, seed=seed)
    rows = [one.row_index for one in found]
    segment_ids = shards.read(split, np.array(rows))["segment_ids"]
    counts = [np.bincount(row)[1:] for row in segment_ids]  # of padding none
    lengths = [tokens for row in counts for tokens in row.tolist()]
    tokens_of: dict[bytes, int] = {}
    for segment, tokens in zip(shards.documents_of(split, rows), lengths):
        tokens_of[segment.digest] = tokens_of.get(segment.digest, 0) + tokens
    return dict(sorted(tokens_of.items(), key=lambda item: (-item[1], item[0])))


def steps_of_rows(
    shards: ShardSet,
    split: str,
    row_indices: np.ndarray,
    *,
    batch_size: int,
    seed: int,
    stop_step: int,
) -> list[Sighting]:
    """When the steps below `stop_step` read rows; the work grows with the epochs, not the steps."""
    rows, found = shards.rows(split), []
    stop = stop_step * batch_size
    for epoch in range(-(-stop // rows)):
        offsets = find_places(row_indices, rows=rows, key=(seed, epoch))
        for row, position in zip(
            np.asarray(row_indices).tolist(), (offsets + epoch * rows).tolist()
        ):
            if position < stop:
                found.append(Sighting(*divmod(position, batch_size), row, epoch))
    return sorted(found)
