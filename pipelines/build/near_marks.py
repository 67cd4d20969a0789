"""Near-duplicates that are to be removed -> marks, which drop them in their shards. Pure."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.duplicates.rows import by_key, digest_bytes
from pipelines.duplicates.steps import Batches
from pipelines.rows.example_batch import (
    DIGEST_BYTES,
    REPRESENTATIVE,
    SIMILARITY,
    mark_batch,
)
from pipelines.rows.routing import Routes
from schemas.drops import mark_of
from schemas.features import is_training


@dataclass(frozen=True)
class Marks:
    """Where documents that are removed go.

    Attributes:
      routes: of the set.
      are_given: whether splits are given by their inputs: then only training ones lose something.
    """

    routes: Routes
    are_given: bool

    def place(self, removed: np.ndarray) -> Batches:
        """EDGE rows -> marks of their lower documents, by route."""
        digests = digest_bytes(removed["lower"])
        held_out = (removed["lower_level"] == 0) & (removed["higher_level"] > 0)
        reasons = mark_of("near_duplicates"), mark_of("held_out_near")
        marks = np.where(held_out, reasons[1], reasons[0]).astype(np.uint8)
        routes = [self.routes.of(digests)]
        if self.are_given:
            trained = filter(is_training, self.routes.splits)
            routes = [self.routes.of_split(digests, split) for split in trained]
        representatives = np.ascontiguousarray(removed["higher"])
        near = {
            REPRESENTATIVE: pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(DIGEST_BYTES), len(removed), [None, pa.py_buffer(representatives)]
            ),
            SIMILARITY: pa.array(removed["similarity"]),
        }

        def said(chosen: np.ndarray) -> pa.RecordBatch:
            own = {name: column.take(pa.array(chosen)) for name, column in near.items()}
            return mark_batch(digests[chosen], marks[chosen], own).batch

        return [
            (to, said(chosen))
            for route in routes
            for to, chosen in by_key(np.arange(len(digests)), route)
        ]
