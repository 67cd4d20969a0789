"""A set as a stream of batches for PyTorch's loaders, resumed exactly with any workers and ranks.

    stream = RowStream(ShardSet("shards"), "train", batch_size=256, seed=0)
    loader = StatefulDataLoader(stream, batch_size=None, num_workers=4)     # or DataLoader
    for batch in loader:                        # this rank's rows of a batch, as tensors
        ...
    saved = loader.state_dict()

    loader.load_state_dict(saved)                                           # as many workers
    loader = StatefulDataLoader(stream.resume(saved), batch_size=None)      # any number

Step s is the batch of step s of `ShardSet.batches`, whatever the number of workers and ranks: each
rank reads its part of it, and of W workers each makes every W-th batch, which the loader takes in
turns.
"""

import copy
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch.distributed
from torch.utils.data import IterableDataset, get_worker_info

from schemas.errors import UsageError
from trainers.data.batches import Batch, BatchReader


class RowStream(IterableDataset):
    """Batches of one rank from `start_step` on; iterating starts there each time.

    Give it to a loader with `batch_size=None`. Its iterator has `state_dict` and
    `load_state_dict`, which torchdata's StatefulDataLoader calls in each of its workers.
    """

    def __init__(
        self,
        reader: BatchReader,
        split: str = "train",
        *,
        batch_size: int,
        seed: int,
        start_step: int = 0,
        stop_step: int | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        convert: Callable[[Batch], Any] | None = None,
    ):
        """Reads nothing yet.

        Args:
          reader: a shard set or a mixture.
          split: of its splits.
          batch_size: rows of a step over all ranks.
          seed: of the order.
          start_step: the first step, counted from 0.
          stop_step: the step before which it ends; None goes on for ever.
          rank: which part of each batch; None asks torch.distributed, if it is initialized.
          ranks: how many parts.
          convert: what to make of a batch in the worker, such as
            `schemas.layouts.huggingface`; None gives the features as they are stored.

        Raises:
          UsageError: the batch cannot be shared by the ranks; several processes were started, and
            nothing says which this is.
        """
        super().__init__()
        self._reader, self._split, self._convert = reader, split, convert
        self._start, self._stop = start_step, stop_step
        self._rank, self._ranks = _rank_of_ranks(rank, ranks)
        self._batch_size, self._seed = batch_size, seed
        self._batches(start_step, 1).close()

    def __iter__(self) -> "StepIterator":
        """The batches of this worker; worker 1 of 3 of a stream from step 0 on has 1, 4, 7, ..."""
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        return StepIterator(self, self._start + worker, worker, workers)

    def resume(self, state: dict[str, Any]) -> "RowStream":
        """The same stream from where a StatefulDataLoader was, with any number of workers.

        Args:
          state: what `state_dict` of the loader, of any rank, or of the stream's iterator gave.

        Raises:
          UsageError: it is of another stream; says what differs.
        """
        states = list(_states_in(state))
        if not states or len(states) != states[0]["workers"]:
            raise UsageError(
                f"no state of a stream of rows: it tells of {len(states)} workers. Give what "
                "`state_dict` of its loader gave"
            )
        for one in states:
            self.check(one)
        # The loader takes workers in turns: who comes next is at the earliest step.
        after = min(one["step"] for one in states) + state.get("_steps_since_snapshot", 0)
        stream = copy.copy(self)
        stream._start = after
        return stream

    def describe(self) -> dict[str, Any]:
        """What decides which rows a step holds."""
        return {
            "fingerprint": self._reader.fingerprint,
            "split": self._split,
            "rows": self._reader.rows(self._split),
            "batch_size": self._batch_size,
            "seed": self._seed,
        }

    def check(self, state: dict[str, Any]) -> None:
        """Refuses the state of a stream with other rows or another order; says what differs."""
        differences = [
            f"{name} was {state.get(name)!r} and is {value!r}"
            for name, value in self.describe().items()
            if state.get(name) != value
        ]
        if differences:
            raise UsageError(
                f"{self._reader.name}: a state of another stream: {'; '.join(differences)}. Give "
                "what it was made with, or start_step in place of the state"
            )

    def read(self, step: int, workers: int) -> Iterator[Any]:
        """What the loader gets of every `workers`-th step from this one on."""
        for batch in self._batches(step, workers):
            yield self._convert(batch) if self._convert else batch

    def _batches(self, step: int, workers: int) -> Generator[Batch, None, None]:
        return self._reader.batches(
            self._split,
            batch_size=self._batch_size,
            seed=self._seed,
            start_step=step,
            stop_step=self._stop,
            stride=workers,
            process_index=self._rank,
            process_count=self._ranks,
            prefetch=0 if get_worker_info() else 2,  # workers read ahead by themselves
        )


class StepIterator(Iterator[Any]):
    """One worker's batches, and the state from which another goes on with them."""

    def __init__(self, stream: RowStream, step: int, worker: int, workers: int):
        self._stream, self._worker, self._workers = stream, worker, workers
        self._step, self._batches = step, stream.read(step, workers)

    def __next__(self) -> Any:
        """The next batch that is this worker's."""
        batch = next(self._batches)
        self._step += self._workers
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The step that comes next, of which worker, and of which stream."""
        state = {"step": self._step, "worker": self._worker, "workers": self._workers}
        return dict(state, **self._stream.describe())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where the worker of the same number was.

        Raises:
          UsageError: the state is of another stream, or of another number of workers.
        """
        self._stream.check(state)
        if (state["worker"], state["workers"]) != (self._worker, self._workers):
            raise UsageError(
                f"the state is of worker {state['worker']} of {state['workers']}, and this is "
                f"{self._worker} of {self._workers}: RowStream.resume takes the state of a loader "
                "with any number of workers"
            )
        self._step, self._batches = state["step"], self._stream.read(state["step"], self._workers)


def _rank_of_ranks(rank: int | None, ranks: int | None) -> tuple[int, int]:
    """This process's number and how many there are."""
    if rank is not None and ranks is not None:
        return rank, ranks
    if rank is not None or ranks is not None:
        raise UsageError("give both rank and ranks, or none of them")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    started = int(os.environ.get("WORLD_SIZE", 1))
    if started > 1:
        raise UsageError(
            f"WORLD_SIZE is {started} and torch.distributed is not initialized: each process would "
            "read all rows. Call init_process_group first, or give rank and ranks"
        )
    return 0, 1


def _states_in(state: Any) -> Iterator[dict[str, Any]]:
    """The states of our iterators in what a loader's `state_dict` gave, however deep they lie."""
    if isinstance(state, dict):
        if {"step", "worker", "workers", "fingerprint"} <= set(state):
            yield state
        else:
            for value in state.values():
                yield from _states_in(value)
