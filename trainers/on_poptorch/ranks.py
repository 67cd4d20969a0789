"""The processes of a run under torchrun, each with its part of every batch, on its GPU or CPUs.

    torchrun --nproc_per_node=8 -m trainers.poptorch_classifier --shards=DIR --output=RUN
    torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=HOST:29400 -m ...

torchrun tells each process its number and where they meet (RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR, MASTER_PORT). NCCL connects GPUs, and gloo CPUs.
"""

from __future__ import annotations

import atexit
import os
import re
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, ContextManager, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.trainers.run.processes import Processes, end_at_once

_LOST = re.compile("gloo|nccl|connection (closed|reset)|heartbeat", re.IGNORECASE)


class Ranks(Processes):
    """The processes of `torch.distributed`; a single one does not need it."""

    def __init__(self) -> None:
        self.local = 0  # index among those of this machine
        if dist.is_available() and dist.is_initialized():
            self.index, self.count = dist.get_rank(), dist.get_world_size()
            self.local = int(os.environ["LOCAL_RANK"])

    def share(self, make: Callable[[], Any]) -> Any:
        """See `Processes`."""
        values = [make() if self.is_first else None]
        if self.count > 1:
            with report_lost_ranks():
                dist.broadcast_object_list(values, src=0, device=torch.device("cpu"))
        return values[0]

    def gather(self, value: Any) -> list[Any]:
        """See `Processes`."""
        values = [value] * self.count
        if self.count > 1:
            with report_lost_ranks():
                dist.all_gather_object(values, value)
        return values

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        """Has this process end without PyTorch's destructors.

        Threads of torch.distributed may outlive what they use: one of 24 processes of PyTorch 2.15
        that had nothing else to do aborted at its end (SIGABRT).
        """
        code = getattr(error, "exit_code", getattr(error, "code", 1)) if error else 0
        atexit.register(end_at_once, code)

    def parallelize(self, module: nn.Module) -> nn.Module:
        """A module whose backward pass leaves the mean of all processes' gradients in all."""
        return DistributedDataParallel(module) if self.count > 1 else module

    def add(self, values: Tensor) -> Tensor:
        """Sums of all processes' values, in the same tensor."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def concatenate(self, rows: Tensor) -> Tensor:
        """All processes' rows [n, ...], in the order of the processes: [count * n, ...]."""
        if self.count == 1:
            return rows
        parts = [torch.empty_like(rows) for _ in range(self.count)]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)


def join_ranks() -> Ranks:
    """Meets the other processes that torchrun started.

    Raises:
      UsageError: the environment is not torchrun's.
      DataError: the processes did not meet.
    """
    try:
        index, count, _ = (int(os.environ[n]) for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        place = f"{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT'])}"
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']} is for a run under torchrun, which sets RANK, "
            f"LOCAL_RANK, MASTER_ADDR and MASTER_PORT too ({error!r}): start it with `torchrun "
            "--nproc_per_node=N -m trainers.poptorch_classifier`, or unset WORLD_SIZE"
        ) from error
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    except (RuntimeError, ValueError) as error:  # no connection, or not all came in time
        raise DataError(
            f"process {index} of {count} does not reach the others at {place} ({error}): start all "
            "with the same torchrun flags"
        ) from error
    return Ranks()


def keep_gradients(module: nn.Module) -> ContextManager[None]:
    """A context in which a module of `parallelize` adds up only the gradients of this process."""
    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()


@contextmanager
def report_lost_ranks() -> Iterator[None]:
    """Turns the error of a collective whose other processes have ended into a DataError."""
    try:
        yield
    except RuntimeError as error:
        if not _LOST.search(str(error)):
            raise
        reason = re.sub(r"^\[\S*\] ", "", str(error).splitlines()[0]).partition(". ")[0]
        raise DataError(
            f"another process of the run has ended ({reason[:200]}): see its message, and start "
            f"all again with {flag('resume', True)}"
        ) from error


def choose_gpu(local: int) -> torch.device:
    """The GPU of a process of this machine, from now on the current one of this thread.

    Raises:
      UsageError: there are fewer GPUs.
    """
    gpus = torch.cuda.device_count()
    if local >= gpus:
        raise UsageError(
            f"LOCAL_RANK={local}: each process needs a GPU, and this machine has {gpus}: start "
            f"torchrun with --nproc_per_node={gpus}, or give {flag('device', 'cpu')}"
        )
    torch.cuda.set_device(local)  # on which events are recorded
    return torch.device("cuda", local)


def hint_at_gpus(visible: int) -> str:
    """The end of the description of a run in one process that sees several GPUs."""
    if visible < 2:
        return ""
    return (
        f" (1 of {visible} GPUs; all of them: torchrun --nproc_per_node={visible} -m "
        "trainers.poptorch_classifier)"
    )
