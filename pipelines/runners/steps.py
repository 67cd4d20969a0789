"""The Beam steps that commands share, their wiring, and their counters.

A step that sends puts batches by key into the writers of numbered shuffles. Once per bundle it
reports what it sent, received and counted, so that the last step can prove that nothing was lost.

Counters are Beam metrics in the namespace "textmill". Runners show them during the job (Dataflow in
its console, Flink under its accumulators). A runner that repeats a bundle may count it twice; the
numbers of stats.json come from the data.
"""

import gc
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Generic, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.transforms.window import GlobalWindows

from textmill.pipelines.readers.documents import Documents
from textmill.pipelines.readers.sources import Block, read_block, read_blocks
from textmill.pipelines.runners.block_run import ALL, J
from textmill.pipelines.runners.console import Journal
from textmill.pipelines.runners.shuffle import DeliveryReport, ShuffleWriter, keyed_type, receive
from textmill.pipelines.writers.scratch import Pointer
from textmill.pipelines.writers.staging import check_turn
from textmill.schemas.files import object_store
from textmill.schemas.format.statistics import ShardStatistics, Statistics

NAMESPACE = "textmill"
_REPORTS = "reports"


def spread_blocks(pipeline: beam.Pipeline, staging: str) -> Any:  # a PCollection[Block]
    """Reads the blocks of a staging directory, and distributes them to workers."""
    return (
        pipeline
        | "Plan" >> beam.Impulse()
        | "Blocks" >> beam.FlatMap(_read_plan, staging)
        | "Spread" >> beam.Reshuffle()
    )


def mark_keys(pipeline: beam.Pipeline, keys: int, shuffle_by: str) -> Any:
    """(key, empty value) of each key of a shuffle, so that one without documents is written too.

    Workers make them: 65,536 of them would swell the job.
    """
    return (
        pipeline
        | "EveryKey" >> beam.Impulse()
        | "MarkKeys" >> beam.FlatMap(_empty_values, keys).with_output_types(keyed_type(shuffle_by))
    )


def _read_plan(_: bytes, staging: str) -> list[Block]:
    return read_blocks(staging)


def _empty_values(_: bytes, keys: int) -> Iterator[tuple[int, bytes]]:
    return ((key, b"") for key in range(keys))


class Step(beam.DoFn, Generic[J]):
    """A step of a worker that reports progress to the job's directory `local`."""

    def __init__(self, job: J):
        self._job = job

    def setup(self) -> None:
        """Opens the journal of the progress display, once per worker."""
        self._journal = Journal(self._job.local)
        object_store.tell_user = self._journal.note  # stderr is a log file during a run

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


class SendingStep(Step[J]):
    """A step that sends batches, and reports once per bundle.

    Attributes:
      REPORT: the class of its reports, with a field `deliveries` and a method `sum`.
    """

    REPORT: ClassVar[Any]

    def start_bundle(self) -> None:
        """Starts without writers and an empty report for this bundle."""
        self._writers: dict[int, ShuffleWriter] = {}
        self._reports: list[Any] = []

    def finish_bundle(self) -> Iterator:
        """Sends the remaining batches, and then the report of the bundle."""
        for output in self.send(only_full=False):
            yield TaggedOutput(output.tag, GlobalWindows.windowed_value(output.value))
        for writer in self._writers.values():
            self.report(deliveries=DeliveryReport(sent=writer.sent))
        report = GlobalWindows.windowed_value((ALL, self.REPORT.sum(self._reports)))
        yield TaggedOutput(_REPORTS, report)
        del self._writers, self._reports

    def report(self, **fields: Any) -> None:
        """Adds to the report of the bundle."""
        self.add(self.REPORT(**fields))

    def add(self, report: Any) -> None:
        """Adds a report to that of the bundle."""
        self._reports.append(report)

    def put(self, shuffle: int, batches: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        """Puts batches, by key, into the writer of a shuffle."""
        if shuffle not in self._writers:
            self._writers[shuffle] = ShuffleWriter(self._job.shuffle_by, self._job.scratch, shuffle)
        self._writers[shuffle].add(batches)

    def send(self, *, only_full: bool = True) -> Iterator[TaggedOutput]:
        """Yields values for the shuffles, by default only of full writers."""
        for shuffle, writer in self._writers.items():
            if writer.is_full or not only_full:
                for keyed in writer.send():
                    yield TaggedOutput(tag_of(shuffle), keyed)


class KeyedStep(SendingStep[J], ABC):
    """A step that handles all values of a key at once.

    Attributes:
      PHASE: its name in the progress display.
    """

    PHASE: ClassVar[str]

    def __init__(self, job: J, receives: int = 0):
        """Follows the shuffle numbered `receives`, if there are several."""
        super().__init__(job)
        self._receives = receives

    def process(self, keyed: tuple[int, Any]) -> Iterator:
        """Handles all values of a key."""
        check_turn(self._job.staging, self._job.run)
        key, values = keyed[0], list(keyed[1])
        streams, received = receive(key, values, self._receives)
        self.report(deliveries=DeliveryReport(received=received))
        self.count_markers(key, values.count(b""))
        del values
        with self._journal.phase(self.phase, self._job.keys):
            for _ in self.handle(key, streams):
                yield from self.send()

    @property
    def phase(self) -> str:
        """The name of the step in the progress display."""
        return self.PHASE

    @abstractmethod
    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Puts batches into writers; yields whenever full ones may be sent."""

    def count_markers(self, key: int, number: int) -> None:
        """Reports the number of empty values that created a key, in steps that count them."""


def tag_of(shuffle: int) -> str:
    """The name of the output that goes into a shuffle."""
    return f"shuffle_{shuffle}"


class Wiring:
    """Applies steps, and collects their reports.

    Attributes:
      reports: (ALL, report) of each step.
    """

    def __init__(self, shuffle_by: str, memory: int = 0):
        """`memory`: of a worker for a key, in bytes, see `BlockJob`."""
        self.reports: list[PCollection] = []
        self._shuffle_by, self._memory = shuffle_by, memory

    def apply(
        self, step: SendingStep, collection: Any, *shuffles: int, name: str = ""
    ) -> list[PCollection]:
        """Applies a step; returns its output for each shuffle, collections of (key, value)."""
        types = {tag_of(shuffle): keyed_type(self._shuffle_by) for shuffle in shuffles}
        typed = beam.ParDo(step).with_output_types(
            tuple[int, bytes | Pointer], **types, **{_REPORTS: tuple[int, step.REPORT]}
        )
        if isinstance(step, KeyedStep):
            typed = with_memory(typed, self._memory)
        label = name or type(step).__name__
        outputs = cast(Any, collection | label >> typed.with_outputs(_REPORTS, *types))
        self.reports.append(outputs[_REPORTS])
        return [outputs[tag_of(shuffle)] for shuffle in shuffles]

    def group(self, name: str, *collections: PCollection) -> PCollection:
        """Flattens collections of (key, value), and groups them by key."""
        return collections | f"All{name}" >> beam.Flatten() | f"By{name}" >> beam.GroupByKey()


def with_memory(step: beam.ParDo, memory: int) -> beam.ParDo:
    """A step whose workers get this many bytes of memory; 0 for the memory of all workers."""
    if memory:
        step.with_resource_hints(min_ram=memory)
    return step


def count_read(statistics: Statistics) -> None:
    """Counts the documents of a block."""
    count("documents_read", statistics.documents_read)
    count("source_bytes", statistics.source_bytes)
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


def _is_worker_process() -> bool:
    """Whether this process is a Beam worker, not a user's program or notebook."""
    started = sys.modules["__main__"].__spec__
    return started is not None and started.name.startswith("apache_beam.runners.worker")
