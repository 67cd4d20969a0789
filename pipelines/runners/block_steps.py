"""The first Beam steps of every command, and its counters.

Counters are Beam metrics in the namespace "textmill". Runners show them during the job (Dataflow in
its console, Flink under its accumulators). A runner that repeats a bundle may count it twice; the
numbers of stats.json come from the data.
"""

import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

import apache_beam as beam
from apache_beam.metrics.metric import Metrics

from pipelines.readers.documents import Documents
from pipelines.readers.sources import Block, read_block, read_blocks
from pipelines.runners.block_run import J
from pipelines.runners.launch import LAUNCHER
from pipelines.runners.progress import Journal
from pipelines.writers.staging import check_turn
from schemas.statistics import ShardStatistics, Statistics

NAMESPACE = "textmill"


class _HasLocal(Protocol):
    @property
    def local(self) -> str: ...


S = TypeVar("S", bound=_HasLocal)


def spread_blocks(pipeline: beam.Pipeline, staging: str) -> Any:  # a PCollection[Block]
    """Reads the blocks of a staging directory, and distributes them to workers."""
    return (
        pipeline
        | "Plan" >> beam.Create([staging], reshuffle=False)
        | "Blocks" >> beam.FlatMap(read_blocks)
        | "Spread" >> beam.Reshuffle()
    )


class Step(beam.DoFn, Generic[S]):
    """A step of a worker that reports progress to the job's directory `local`."""

    def __init__(self, job: S):
        self._job = job

    def setup(self) -> None:
        """Opens the journal of the progress display, once per worker."""
        _end_with_launcher()
        self._journal = Journal(self._job.local)

    def teardown(self) -> None:
        """Lets a worker process end without collecting garbage in modules, which takes 0.3 s."""
        if _is_worker_process():
            gc.freeze()


class BlockStep(Step[J]):
    """A step that reads blocks, or results of other steps on blocks."""

    def read(self, block: Block) -> Iterator[Documents]:
        """Yields a block's documents in pieces; raises if another run has started."""
        check_turn(self._job.staging, self._job.run)
        for documents in read_block(block, self._job.source):
            yield documents
            self._journal.add(bytes_read=documents.stored_bytes)


@cache
def _end_with_launcher() -> None:
    """Ends this worker process soon after the command that launched it has ended.

    Beam's workers alone would wait for the lost runner for 90 seconds or more.
    """
    launcher = int(os.environ.get(LAUNCHER, "0"))

    def watch() -> None:
        while True:
            time.sleep(1)
            try:
                os.kill(launcher, 0)
            except OSError:  # it has ended, or its id belongs to another process by now
                os._exit(1)

    if launcher and _is_worker_process():
        threading.Thread(target=watch, name="launcher", daemon=True).start()


def _is_worker_process() -> bool:
    """Whether this process is a Beam worker, not a user's program or notebook."""
    started = sys.modules["__main__"].__spec__
    return started is not None and started.name.startswith("apache_beam.runners.worker")


def count_read(statistics: Statistics) -> None:
    """Counts the documents of a block."""
    count("documents_read", statistics.documents_read)
    count("source_bytes", statistics.source_bytes)
    count("documents_guarded", statistics.documents_guarded)
    for reason, number in statistics.dropped.items():
        count(f"documents_dropped_{reason}", number)


def count_shard(
    statistics: ShardStatistics, *, key_bytes: int, file_bytes: int, seconds: float
) -> None:
    """Counts the documents of a shard, and records its size and time.

    The largest `key_bytes` (from the shuffle) shows a hot key, the largest `seconds` a slow worker.
    """
    count("documents_kept", statistics.documents)
    for reason, number in statistics.dropped.items():
        count(f"documents_dropped_{reason}", number)
    count("tokens", statistics.tokens)
    count("rows", statistics.rows)
    count("shard_bytes", file_bytes)
    Metrics.distribution(NAMESPACE, "key_bytes").update(key_bytes)
    Metrics.distribution(NAMESPACE, "shard_milliseconds").update(round(seconds * 1000))


def count(name: str, number: int) -> None:
    """Adds to a counter of the run."""
    if number:
        Metrics.counter(NAMESPACE, name).inc(number)
