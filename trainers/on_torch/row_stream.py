"""A dataset as a stream of batches for PyTorch's loaders, resumed exactly with any workers.

    stream = RowStream(ShardSet("shards"), "train", batch_size=256, seed=0)
    loader = StatefulDataLoader(stream, batch_size=None, num_workers=4)     # or DataLoader
    for batch in loader:                        # this rank's rows of a batch, as tensors
        ...
    state = loader.state_dict()

    loader.load_state_dict(state)                                           # as many workers
    loader = StatefulDataLoader(stream.resume(state), batch_size=None)      # any number

Step s is the batch of step s of `ShardSet.batches` for any number of workers and ranks: each rank
reads its part of it, and each of W workers every W-th batch.
"""

import copy
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch
import torch.distributed
from torch.utils.data import IterableDataset, get_worker_info

from textmill.schemas.errors import UsageError
from textmill.trainers.data.batches import Batch, BatchReader

_MOST_WORKERS = 1024


def _no_pass() -> torch.Tensor:
    """Whether each worker ended a pass; in shared memory, since workers of the next one are new."""
    return torch.zeros(_MOST_WORKERS, dtype=torch.uint8).share_memory_()


class RowStream(IterableDataset):
    """Batches of one rank; the first pass starts at `start_step`, and those after a whole one at 0.

    Pass it to a loader with `batch_size=None`. torchdata's StatefulDataLoader calls `state_dict`
    and `load_state_dict` of its iterator in each worker.
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
          reader: a dataset or a mixture.
          split: name of a split.
          batch_size: rows of a step over all ranks.
          seed: decides the order.
          start_step: the first step, counted from 0.
          stop_step: the step before which the stream ends; None for an endless one.
          rank: which part of each batch; None takes that of torch.distributed, if initialized.
          ranks: how many parts.
          convert: function of a batch, called in the worker, such as
            `schemas.format.layouts.huggingface`; None returns the stored features.

        Raises:
          UsageError: the ranks cannot share the batch equally, or WORLD_SIZE is above 1 and the
            rank is unknown.
        """
        super().__init__()
        self._reader, self._split, self._convert = reader, split, convert
        self._start, self._stop = start_step, stop_step
        self._rank, self._ranks = _rank_of_ranks(rank, ranks)
        self._batch_size, self._seed = batch_size, seed
        self._ended = _no_pass()
        self._batches(start_step, 1).close()

    def __iter__(self) -> "StepIterator":
        """The batches of this worker: from step 0, worker 1 of 3 reads steps 1, 4, 7, ..."""
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        start = 0 if self._ended[worker % _MOST_WORKERS] else self._start
        return StepIterator(self, start + worker, worker, workers)

    def end_pass(self, worker: int) -> None:
        """Has later passes of this worker begin at step 0."""
        self._ended[worker % _MOST_WORKERS] = 1

    def resume(self, state: dict[str, Any]) -> "RowStream":
        """The same stream from the position of a StatefulDataLoader, with any number of workers.

        Args:
          state: `state_dict` of the loader, of any rank, or of the stream's iterator.

        Raises:
          UsageError: the state is of a different stream; names what differs.
        """
        states = list(_states_in(state))
        if not states or len(states) != states[0]["workers"]:
            raise UsageError(
                f"not a state of a RowStream: it has the states of {len(states)} workers. Give the "
                "`state_dict` of its loader"
            )
        for one in states:
            self.check(one)
        # The loader takes workers in turns: the next one has the earliest step.
        after = min(one["step"] for one in states) + state.get("_steps_since_snapshot", 0)
        stream = copy.copy(self)
        stream._start, stream._ended = after, _no_pass()
        return stream

    def describe(self) -> dict[str, Any]:
        """Everything that decides the rows of a step."""
        order = {"order": self._reader.order_name} if self._reader.order_name else {}
        return {
            **order,
            "row_order": self._reader.row_order,
            "fingerprint": self._reader.fingerprint,
            "split": self._split,
            "rows": self._reader.rows(self._split),
            "batch_size": self._batch_size,
            "seed": self._seed,
        }

    def check(self, state: dict[str, Any]) -> None:
        """Refuses the state of a stream with other rows or a different order."""
        state = {"row_order": "full", **state}  # which older states lack
        differences = [
            f"{name} was {state.get(name)!r} and is {value!r}"
            for name, value in self.describe().items()
            if state.get(name) != value
        ]
        if differences:
            raise UsageError(
                f"{self._reader.name}: the state is of a different stream: "
                f"{'; '.join(differences)}. Create the stream with the former values, or "
                "with start_step instead of a state"
            )

    def read(self, step: int, workers: int) -> Iterator[Any]:
        """The converted batches of every `workers`-th step, starting at `step`."""
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
            prefetch=0 if get_worker_info() else 2,  # workers read ahead without it
        )


class StepIterator(Iterator[Any]):
    """One worker's batches, with a state to resume from."""

    def __init__(self, stream: RowStream, step: int, worker: int, workers: int):
        self._stream, self._worker, self._workers = stream, worker, workers
        self._step, self._batches = step, stream.read(step, workers)

    def __next__(self) -> Any:
        """The next batch of this worker."""
        try:
            batch = next(self._batches)
        except StopIteration:
            self._stream.end_pass(self._worker)
            raise
        self._step += self._workers
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The next step, the worker, and the stream's description."""
        state = {"step": self._step, "worker": self._worker, "workers": self._workers}
        return dict(state, **self._stream.describe())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes where the worker of the same number stopped.

        Raises:
          UsageError: the state is of a different stream, or of a different number of workers.
        """
        self._stream.check(state)
        if (state["worker"], state["workers"]) != (self._worker, self._workers):
            raise UsageError(
                f"the state is of worker {state['worker']} of {state['workers']}, and this is "
                f"{self._worker} of {self._workers}: use RowStream.resume for a different number "
                "of workers"
            )
        self._step, self._batches = state["step"], self._stream.read(state["step"], self._workers)


def _rank_of_ranks(rank: int | None, ranks: int | None) -> tuple[int, int]:
    """This process's rank and the number of ranks."""
    if rank is not None and ranks is not None:
        return rank, ranks
    if rank is not None or ranks is not None:
        raise UsageError("give both rank and ranks, or neither")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    processes = int(os.environ.get("WORLD_SIZE", 1))
    if processes > 1:
        raise UsageError(
            f"WORLD_SIZE is {processes}, but torch.distributed is not initialized, so each process "
            "would read all rows: call init_process_group first, or give rank and ranks"
        )
    return 0, 1


def _states_in(state: Any) -> Iterator[dict[str, Any]]:
    """The states of StepIterator in a loader's `state_dict`, at any depth."""
    if isinstance(state, dict):
        if {"step", "worker", "workers", "fingerprint"} <= set(state):
            yield state
        else:
            for value in state.values():
                yield from _states_in(value)
