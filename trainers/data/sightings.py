"""Which documents a step trains on, and which steps train on a document. No framework.

Both follow from (seed, step) and the dataset alone: no step is read for the other. Steps count from
0 here, as in `BatchReader.batches`.
"""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple, Sequence

import numpy as np

from textmill.trainers.data.batches import BatchReader


class Sighting(NamedTuple):
    """A row that a step reads.

    Attributes:
      step: from 0.
      position: of the row in the step's global batch.
      row_index: of the row in the split.
      epoch: of the row's dataset, from 0.
    """

    step: int
    position: int
    row_index: int
    epoch: int


class SeenSegment(NamedTuple):
    """A segment of a row of a step.

    Attributes:
      position: of the row in the step's global batch.
      digest: the document's hash, 16 bytes.
      first: the document's token with which the segment begins.
      tokens: the segment's tokens in the row, targets of a decoder included.
    """

    position: int
    digest: bytes
    first: int
    tokens: int


def rows_of_step(
    shards: BatchReader, split: str, step: int, *, batch_size: int, seed: int
) -> list[Sighting]:
    """The rows of a step's global batch, in its order."""
    positions = np.arange(step * batch_size, (step + 1) * batch_size)
    order = shards.order(split, positions, seed=seed)
    rows = zip(order["row_index"].tolist(), order["epoch"].tolist())
    return [Sighting(step, at, row, epoch) for at, (row, epoch) in enumerate(rows)]


def segments_of_rows(
    shards: BatchReader, split: str, row_indices: Sequence[int]
) -> list[SeenSegment]:
    """The segments of rows, in the order of the rows; `position` is an index into `row_indices`."""
    unique = np.unique(np.asarray(row_indices, np.int64))
    batch = shards.read(split, unique)
    numbers = [batch[name] for name in ("segment_ids", "target_segment_ids") if name in batch]
    of_row: dict[int, list[SeenSegment]] = {row: [] for row in unique.tolist()}
    for row, digest, first in shards.documents_of(split, unique.tolist()):
        of_row[row].append(SeenSegment(0, digest, first, 0))
    for at, (row, segments) in enumerate(of_row.items()):
        count = len(segments) + 1  # 0 is padding
        tokens = np.sum([np.bincount(number[at], minlength=count) for number in numbers], axis=0)
        of_row[row] = [one._replace(tokens=int(tokens[n])) for n, one in enumerate(segments, 1)]
    return [
        one._replace(position=position)
        for position, row in enumerate(row_indices)
        for one in of_row[int(row)]
    ]


def tokens_of_documents(segments: Iterable[SeenSegment]) -> dict[bytes, int]:
    """The tokens of each document in these segments, most first."""
    tokens: dict[bytes, int] = {}
    for one in segments:
        tokens[one.digest] = tokens.get(one.digest, 0) + one.tokens
    return dict(sorted(tokens.items(), key=lambda item: (-item[1], item[0])))


def documents_of_step(
    shards: BatchReader, split: str, step: int, *, batch_size: int, seed: int
) -> dict[bytes, int]:
    """Tokens of a step's global batch by the digest of their document, most first."""
    found = rows_of_step(shards, split, step, batch_size=batch_size, seed=seed)
    return tokens_of_documents(segments_of_rows(shards, split, [one.row_index for one in found]))


def steps_of_rows(
    shards: BatchReader,
    split: str,
    row_indices: Any,
    *,
    batch_size: int,
    seed: int,
    stop_step: int,
) -> list[Sighting]:
    """When the steps below `stop_step` read rows; the work grows with the epochs, not the steps."""
    stop = stop_step * batch_size
    found = shards.find_positions(split, row_indices, seed=seed, stop=stop)
    columns = (found[name].tolist() for name in ("position", "row_index", "epoch"))
    return [
        Sighting(position // batch_size, position % batch_size, row, epoch)
        for position, row, epoch in zip(*columns)
    ]
