"""The Beam steps that every command begins with, and what a run counts for those who watch it.

Counters are Beam metrics in the namespace "textmill". Runners show them while the job runs
(Dataflow in its console, Flink under its accumulators). A runner that repeats a bundle may count it
twice; stats.json takes its numbers from the data.
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
    """The blocks in a staging folder, wherever a worker is free."""
    return (
        pipeline
        | "Plan" >> beam.Create([staging], reshuffle=False)
        | "Blocks" >> beam.FlatMap(read_blocks)
        | "Spread" >> beam.Reshuffle()
    )


class Step(beam.DoFn, Generic[S]):
    """A step of a worker that reports progress to a job's folder `local`."""

    def __init__(self, job: S):
        self._job = job

    def setup(self) -> None:
        """Opens the journal of the progress display, once a worker."""
        _end_with_launcher()
        self._journal = Journal(self._job.local)

    def teardown(self) -> None:
        """Lets a worker process end without a search for garbage in all modules: 0.3 s."""
        if _is_worker_process():
            gc.freeze()


class BlockStep(Step[J]):
    """A step that reads blocks, or what others made of them."""

    def read(self, block: Block) -> Iterator[Documents]:
        """A block's documents in pieces; refuses where another run began."""
        check_turn(self._job.staging, self._job.run)
        for documents in read_block(block, self._job.source):
            yield documents
            self._journal.add(bytes_read=documents.stored_bytes)


@cache
def _end_with_launcher() -> None:
    """Ends this worker process soon after the command that launched it has ended, killed or not.

    Beam's own workers wait for a runner that is gone, a minute and a half and more.
    """
    launcher = int(os.environ.get(LAUNCHER, "0"))

    def watch() -> None:
        while True:
            time.sleep(1)
            try:
                os.kill(launcher, 0)
            except OSError:  # gone, or its number is another's by now
                os._exit(1)

    if launcher and _is_worker_process():
        threading.Thread(target=watch, name="launcher", daemon=True).start()


def _is_worker_process() -> bool:
    """Whether this process is a worker of Beam's, and nobody's notebook."""
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
    """Counts the documents of a shard, and records how large and how slow it was.

    The most `key_bytes` (from the shuffle) show a hot key, the most `seconds` a slow worker.
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
