"""torchtitan's own data loader on a set: every token, with any ranks and workers, resumed exactly.

    pip install torchtitan torchdata            # beside torch; 0.3.0 and 0.11.0 were read
    python -m tests.interop.torchtitan_loader

It runs no training: torchtitan's trainer wants an accelerator.
"""

import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from torchtitan.components.dataloader import (  # pyright: ignore[reportMissingImports]
    ParallelAwareDataloader,
)

from tests.tools.clm_factory import write_clm_set
from textmill.schemas.format.layouts import NO_LOSS, maxtext
from textmill.trainers.data.batches import Batch
from textmill.trainers.on_torch.row_stream import RowStream
from textmill.trainers.reader import open_shards

STEPS, STOP, LOCAL = 12, 5, 4


def convert(batch: Batch) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Input ids and positions, from which torchtitan's masks are made; labels, shifted already."""
    columns = {name: column.astype(np.int64) for name, column in maxtext(batch).items()}
    labels = np.where(columns["targets_segmentation"] > 0, columns["targets"], NO_LOSS)
    return {"input": columns["inputs"], "positions": columns["inputs_position"]}, labels


class ShardSetDataLoader(ParallelAwareDataloader):
    """A class for `Trainer.Config.dataloader`; `dataset_path` is a set, or "a:0.7,b:0.3"."""

    @dataclass(kw_only=True, slots=True)
    class Config(ParallelAwareDataloader.Config):
        seed: int = 0

    def __init__(
        self,
        config: Any,
        *,
        dp_world_size: int,
        dp_rank: int,
        local_batch_size: int,
        snapshot_every_n_steps: int = 1,
        **_: Any,
    ):
        stream = RowStream(
            open_shards(config.dataset_path),
            batch_size=local_batch_size * dp_world_size,
            seed=config.seed,
            rank=dp_rank,
            ranks=dp_world_size,
            convert=convert,
        )
        super().__init__(
            stream,
            dp_rank=dp_rank,
            dp_world_size=dp_world_size,
            batch_size=None,
            num_workers=config.num_workers,
            snapshot_every_n_steps=snapshot_every_n_steps,
        )


def read(path: str, ranks: int, workers: int) -> list[list[np.ndarray]]:
    """Inputs, positions and labels of each step and rank, with a stop and a resume."""
    config = ShardSetDataLoader.Config(dataset_path=path, num_workers=workers)
    found = []
    for rank in range(ranks):
        sizes = {"dp_world_size": ranks, "dp_rank": rank, "local_batch_size": LOCAL * 2 // ranks}
        loader = config.build(**sizes, tokenizer=None, seq_len=16)
        batches = list(islice(loader, STOP))
        state = loader.state_dict()
        loader = config.build(**sizes, tokenizer=None, seq_len=16)
        loader.load_state_dict(state)
        batches += islice(loader, STEPS - STOP)
        found.append([(given["input"], given["positions"], labels) for given, labels in batches])
    return [
        [np.concatenate(parts) for parts in zip(*step, strict=True)]
        for step in zip(*found, strict=True)
    ]


def main() -> None:
    """Reads with 1 and 2 ranks and 0 and 2 workers, and compares with the set."""
    print(f"torchtitan {version('torchtitan')}, torchdata {version('torchdata')}")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "set"))
        write_clm_set(Path(path))
        steps = open_shards(path).batches("train", batch_size=2 * LOCAL, seed=0, stop_step=STEPS)
        due = [
            [given["input"], given["positions"], labels] for given, labels in map(convert, steps)
        ]
        for ranks in (1, 2):
            for workers in (0, 2):
                for step, expected in zip(read(path, ranks, workers), due, strict=True):
                    for column, other in zip(step, expected, strict=True):
                        np.testing.assert_array_equal(column, other)
                tokens = sum(int((step[2] != NO_LOSS).sum()) for step in due)
                print(
                    f"ranks {ranks}, workers {workers}: {STEPS} steps, stopped after {STOP}: equal "
                    f"in {sum(step[0].size for step in due):,} places, {tokens:,} with a loss"
                )


if __name__ == "__main__":
    main()
