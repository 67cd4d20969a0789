"""An epoch of a set through torchdata's and grain's loaders: every row once, every token equal.

    pip install torchdata                       # beside torch and grain; 0.11.0 was tried
    python -m tests.interop.whole_epoch SHARDS

torchdata's loader has two workers and is stopped twice, then resumes with two and with three.
"""

import sys
from collections.abc import Iterable
from importlib.metadata import version
from itertools import islice

import grain
import numpy as np
from torchdata.stateful_dataloader import (  # pyright: ignore[reportMissingImports]
    StatefulDataLoader,
)

from textmill.trainers.data.adapters import variable_length
from textmill.trainers.data.batches import Batch
from textmill.trainers.on_torch.row_stream import RowStream
from textmill.trainers.reader import ShardSet

BATCH, SEED = 64, 1


class Epoch:
    """Compares rows with those of the set, and counts how often each came."""

    def __init__(self, shards: ShardSet):
        self.due = shards.read("train", np.arange(shards.rows("train")))
        self.came, self.tokens = np.zeros(shards.rows("train"), int), 0

    def take(self, batches: Iterable[Batch], count: int | None = None) -> None:
        """Compares the next batches, whose tensors are of the first epoch but for the last's."""
        for batch in islice(batches, count):
            columns = {name: np.asarray(column) for name, column in batch.items()}
            first = columns["epoch"] == 0
            rows = columns["row_index"][first]
            for name, column in self.due.items():
                np.testing.assert_array_equal(columns[name][first], column[rows], err_msg=name)
            np.add.at(self.came, rows, 1)
            self.tokens += len(variable_length(columns["segment_ids"][first]).indices)

    def end(self, how: str) -> None:
        """Says that it was whole, or fails."""
        assert (self.came == 1).all() and self.tokens == (self.due["segment_ids"] > 0).sum()
        print(f"{how}: each of {len(self.came):,} rows once, {self.tokens:,} tokens equal")


def main(path: str) -> None:
    """Reads the training rows of a set in three ways."""
    print(f"torchdata {version('torchdata')}, grain {version('grain')}")
    shards = ShardSet(path)
    rows = shards.rows("train")
    steps = -(-rows // BATCH)
    for ranks in (1, 2):
        epoch = Epoch(shards)
        for rank in range(ranks):
            stream = RowStream(
                shards, batch_size=BATCH, seed=SEED, stop_step=steps, rank=rank, ranks=ranks
            )
            loader = StatefulDataLoader(stream, batch_size=None, num_workers=2)
            epoch.take(loader, rows // BATCH // 3)
            state = loader.state_dict()
            loader = StatefulDataLoader(stream, batch_size=None, num_workers=2)
            loader.load_state_dict(state)
            epoch.take(loader, rows // BATCH // 3)
            resumed = stream.resume(loader.state_dict())
            epoch.take(StatefulDataLoader(resumed, batch_size=None, num_workers=3))
        epoch.end(f"StatefulDataLoader, ranks {ranks}")
    epoch = Epoch(shards)
    source = grain.MapDataset.source(shards.split("train", seed=SEED))
    order = shards.order("train", np.arange(rows), seed=SEED)
    for number, batch in enumerate(source.batch(BATCH).to_iter_dataset()):
        here = slice(number * BATCH, (number + 1) * BATCH)
        epoch.take([{**batch, **{name: column[here] for name, column in order.items()}}])
    epoch.end("grain")


if __name__ == "__main__":
    main(sys.argv[1])
