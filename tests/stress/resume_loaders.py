"""Kills processes that read a set by loaders of torch and grain, on a crowded machine.

    pip install torchdata
    python -m tests.stress.resume_loaders --rounds=30

A round is an epoch of one rank. A process reads batches with workers, notes the rows of each, and
keeps the loader's state after some of them; it is killed at a random moment with all its workers,
and another goes on from the state. Beside it other processes only compute. Defects are: rows other
than the set's own order has, or not each of them once; an attempt that ends by itself before the
epoch does; one that has no batch for two minutes. Exit code 1 if there was one.
"""

import json
import os
import pickle
import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grain
import numpy as np
import torch
from torchdata.stateful_dataloader import (  # pyright: ignore[reportMissingImports]
    StatefulDataLoader,
)

from tests.stress.attempts import Found, StressOptions, run_stress
from tests.stress.runs_under_load import crowd
from tests.tools.clm_factory import write_clm_set
from trainers.on_torch.row_stream import RowStream
from trainers.reader import ShardSet

BATCH, RANKS, SEED = 24, 3, 5
HANGS_SECONDS = 120
Read = Iterator[tuple[list[int], Callable[[], Any]]]  # rows of each batch, and the state after it


@dataclass(frozen=True)
class Options(StressOptions):
    """Numbers of epochs, rows and processes."""

    rounds: int = 12
    """Epochs; one of each way in turn."""
    rows: int = 2400
    """Rows of the set."""
    busy: int = 20
    """Processes that compute beside them."""


def read_by_torchdata(shards: ShardSet, rank: int, state: Any, draw: random.Random) -> Read:
    """StatefulDataLoader with two workers, which takes its own state."""
    loader = StatefulDataLoader(_stream(shards, rank), batch_size=None, num_workers=2)
    if state is not None:
        loader.load_state_dict(state)
    for batch in loader:
        yield batch["row_index"].tolist(), loader.state_dict


def read_by_resume(shards: ShardSet, rank: int, state: Any, draw: random.Random) -> Read:
    """The same with any number of workers, another each time; states are taken rarely."""
    stream = _stream(shards, rank)
    stream = stream if state is None else stream.resume(state)
    loader = StatefulDataLoader(
        stream,
        batch_size=None,
        num_workers=draw.randrange(4),
        snapshot_every_n_steps=draw.randint(1, 5),
    )
    for batch in loader:
        yield batch["row_index"].tolist(), loader.state_dict


def read_by_grain(shards: ShardSet, rank: int, state: Any, draw: random.Random) -> Read:
    """grain's threads, and its own state."""
    rows = shards.split("train", seed=SEED)
    order = shards.order("train", np.arange(len(rows)), seed=SEED)["row_index"]
    source = grain.MapDataset.source(rows).map_with_index(lambda place, row: order[place])
    steps = iter(source[rank::RANKS].batch(BATCH // RANKS).to_iter_dataset())
    if state is not None:
        steps.set_state(state)
    for batch in steps:
        yield batch.tolist(), steps.get_state


WAYS = {"torchdata": read_by_torchdata, "resume": read_by_resume, "grain": read_by_grain}


def resume(options: Options, folder: Path, draw: random.Random, found: Found) -> None:
    """Reads the epochs, prints a line for each."""
    # torchdata asks PyTorch for what it deprecates, and would have fewer workers here.
    warnings.filterwarnings("ignore", category=UserWarning, module="torchdata")
    torch.set_num_threads(1)  # else a process that is forked waits for threads that it has not
    write_clm_set(folder / "set", train=options.rows)
    with crowd(options.busy):
        for number in range(options.rounds):
            way, read = list(WAYS.items())[number % len(WAYS)]
            rank, began = draw.randrange(RANKS), time.monotonic()
            log = folder / f"{number}.jsonl"
            attempts, again, said = _read_epoch(read, folder / "set", rank, log, draw)
            said = said or _judge(folder / "set", way, rank, log)
            found.counts[way, said] += 1
            counts = f"{attempts} attempts, {len(_lines(log))} batches, {again} read again"
            seconds = time.monotonic() - began
            print(f"{number}, {way}, rank {rank}: {counts}, {said} ({seconds:.0f} s)", flush=True)
            if said != "once":
                found.defects.append(f"round {number}: {said}")


def _read_epoch(
    read: Callable[..., Read], directory: Path, rank: int, log: Path, draw: random.Random
) -> tuple[int, int, str]:
    """Attempts until one reaches the end; how many, what was read again, and what was wrong."""
    log.touch()
    attempts = again = 0
    while True:
        attempts += 1
        pid = _fork(partial(_attempt, read, directory, rank, log, draw.random()))
        enough, since, before = draw.randint(1, 40), time.monotonic(), -1
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            done = len(_lines(log))
            if ended:
                return attempts, again, "" if status == 0 else f"ENDED by {status}"
            since = since if done == before else time.monotonic()
            before, enough = done, enough - max(0, done - before) * (before >= 0)
            if enough <= 0 or time.monotonic() - since > HANGS_SECONDS:
                break
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.05))
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if enough > 0:
            return attempts, again, "HANGS"
        again += len(_lines(log)) - _saved(log)[0]


def _attempt(read: Callable[..., Read], directory: Path, rank: int, log: Path, seed: float) -> None:
    """Reads on from the state that was kept, and notes rows and states."""
    draw, (done, state) = random.Random(seed), _saved(log)
    kept = _lines(log)[:done]
    log.write_bytes(b"".join(kept))
    with open(log, "ab", buffering=0) as file:
        for rows, state_of in read(ShardSet(str(directory)), rank, state, draw):
            done += 1
            file.write(json.dumps(rows).encode() + b"\n")
            if draw.random() < 0.3:
                partial_ = log.with_suffix(".partial")
                partial_.write_bytes(pickle.dumps((done, state_of())))
                partial_.replace(log.with_suffix(".state"))


def _saved(log: Path) -> tuple[int, Any]:
    """How many batches came before the state that was kept, and that."""
    path = log.with_suffix(".state")
    return pickle.loads(path.read_bytes()) if path.exists() else (0, None)


def _lines(log: Path) -> list[bytes]:
    return [line for line in log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def _judge(directory: Path, way: str, rank: int, log: Path) -> str:
    """Whether the batches are those of the set's own reader, in its order."""
    shards = ShardSet(str(directory))
    steps = shards.rows("train") // BATCH
    size = BATCH // RANKS
    own = slice(rank, None, RANKS) if way == "grain" else slice(rank * size, (rank + 1) * size)
    whole = shards.batches("train", batch_size=BATCH, seed=SEED, stop_step=steps)
    due = [batch["row_index"].tolist()[own] for batch in whole]
    found = [json.loads(line) for line in _lines(log)]
    every = {row for step in found for row in step}
    is_once = found == due and len(every) == steps * size
    return "once" if is_once else f"OTHERS in {len(found)} batches of {steps}"


def _stream(shards: ShardSet, rank: int) -> RowStream:
    steps = shards.rows("train") // BATCH
    return RowStream(shards, batch_size=BATCH, seed=SEED, stop_step=steps, rank=rank, ranks=RANKS)


def _fork(work: Callable[[], None]) -> int:
    """Starts a process in a group of its own, with the workers that it will have."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        work()
        code = 0
    except BaseException as error:
        traceback.print_exception(error)
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    run_stress(resume, Options)
