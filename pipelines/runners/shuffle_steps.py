"""Beam steps that send batches to each other through numbered shuffles, and their wiring.

A step puts batches by key into the outbox of a shuffle. Once per bundle it reports what it sent,
received and counted, so that the last step can prove that nothing was lost.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Protocol, TypeVar, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.transforms.window import GlobalWindows

from pipelines.runners.block_run import ALL
from pipelines.runners.block_steps import Step
from pipelines.runners.shuffle import Deliveries, Outbox, keyed_type, receive
from pipelines.storage.store import Pointer
from pipelines.writers.staging import check_turn

_REPORTS = "reports"


class _Job(Protocol):
    """The settings that a step needs; see `pipelines.runners.block_run.BlockJob`."""

    @property
    def local(self) -> str: ...
    @property
    def staging(self) -> str: ...
    @property
    def run(self) -> str: ...
    @property
    def shuffle_by(self) -> str: ...
    @property
    def scratch(self) -> str: ...


S = TypeVar("S", bound=_Job)


class SendingStep(Step[S]):
    """A step that sends batches, and reports once per bundle.

    Attributes:
      REPORT: the class of its reports, with a field `deliveries` and a method `sum`.
    """

    REPORT: ClassVar[Any]

    def start_bundle(self) -> None:
        """Starts empty outboxes and an empty report for this bundle."""
        self._outboxes: dict[int, Outbox] = {}
        self._reports: list[Any] = []

    def finish_bundle(self) -> Iterator:
        """Sends the remaining batches, and then the report of the bundle."""
        for output in self.send(only_full=False):
            yield TaggedOutput(output.tag, GlobalWindows.windowed_value(output.value))
        for outbox in self._outboxes.values():
            self.report(deliveries=Deliveries(sent=outbox.sent))
        report = GlobalWindows.windowed_value((ALL, self.REPORT.sum(self._reports)))
        yield TaggedOutput(_REPORTS, report)
        del self._outboxes, self._reports

    def report(self, **fields: Any) -> None:
        """Adds to the report of the bundle."""
        self.add(self.REPORT(**fields))

    def add(self, report: Any) -> None:
        """Adds a report to that of the bundle."""
        self._reports.append(report)

    def put(self, shuffle: int, batches: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        """Puts batches, by key, into the outbox of a shuffle."""
        if shuffle not in self._outboxes:
            self._outboxes[shuffle] = Outbox(self._job.shuffle_by, self._job.scratch, shuffle)
        self._outboxes[shuffle].add(batches)

    def send(self, *, only_full: bool = True) -> Iterator[TaggedOutput]:
        """Yields values for the shuffles, by default of full outboxes only."""
        for shuffle, outbox in self._outboxes.items():
            if outbox.is_full or not only_full:
                for keyed in outbox.send():
                    yield TaggedOutput(tag_of(shuffle), keyed)


class KeyedStep(SendingStep[S], ABC):
    """A step that handles all values of a key at once."""

    def __init__(self, job: S, receives: int = 0):
        """Follows the shuffle numbered `receives`, if there are several."""
        super().__init__(job)
        self._receives = receives

    def process(self, keyed: tuple[int, Any]) -> Iterator:
        """Handles all values of a key."""
        check_turn(self._job.staging, self._job.run)
        key, values = keyed[0], list(keyed[1])
        streams, received = receive(key, values, self._receives)
        self.report(deliveries=Deliveries(received=received))
        self.count_markers(key, values.count(b""))
        del values
        for _ in self.handle(key, streams):
            yield from self.send()

    @abstractmethod
    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Puts batches into outboxes; yields whenever full ones may be sent."""

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

    def __init__(self, shuffle_by: str):
        self.reports: list[PCollection] = []
        self._shuffle_by = shuffle_by

    def apply(
        self, step: SendingStep, collection: Any, *shuffles: int, name: str = ""
    ) -> list[PCollection]:
        """Applies a step; returns its output for each shuffle, collections of (key, value)."""
        types = {tag_of(shuffle): keyed_type(self._shuffle_by) for shuffle in shuffles}
        typed = beam.ParDo(step).with_output_types(
            tuple[int, bytes | Pointer], **types, **{_REPORTS: tuple[int, step.REPORT]}
        )
        label = name or type(step).__name__
        outputs = cast(Any, collection | label >> typed.with_outputs(_REPORTS, *types))
        self.reports.append(outputs[_REPORTS])
        return [outputs[tag_of(shuffle)] for shuffle in shuffles]

    def group(self, name: str, *collections: PCollection) -> PCollection:
        """Flattens collections of (key, value), and groups them by key."""
        return collections | f"All{name}" >> beam.Flatten() | f"By{name}" >> beam.GroupByKey()
