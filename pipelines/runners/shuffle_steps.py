"""Steps that hand on batches to each other through numbered shuffles, and how they are wired.

A step puts batches by key into the outbox of a shuffle, and reports once a bundle what it sent,
what it received, and what it counted: so that the end of a run can prove that nothing was lost.
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
    """What a step knows of its run; see `pipelines.runners.block_run.BlockJob`."""

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
    """A step that sends batches, and reports once a bundle.

    REPORT is the class of its reports, which has a field `deliveries` and a function `sum`.
    """

    REPORT: ClassVar[Any]

    def start_bundle(self) -> None:
        """Starts empty outboxes and an empty report for this bundle."""
        self._outboxes: dict[int, Outbox] = {}
        self._reports: list[Any] = []

    def finish_bundle(self) -> Iterator:
        """Sends what waits, and then the report of the bundle."""
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
        """What goes into the shuffles now."""
        for shuffle, outbox in self._outboxes.items():
            if outbox.is_full or not only_full:
                for keyed in outbox.send():
                    yield TaggedOutput(tag_of(shuffle), keyed)


class KeyedStep(SendingStep[S], ABC):
    """A step that takes all that came for a key at once."""

    def __init__(self, job: S, receives: int = 0):
        """`receives` is the shuffle that the step follows, if it follows one."""
        super().__init__(job)
        self._receives = receives

    def process(self, keyed: tuple[int, Any]) -> Iterator:
        """Handles all that came for a key."""
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
        """Puts what travels on into outboxes, and yields where it may be sent."""

    def count_markers(self, key: int, number: int) -> None:
        """Reports the empty values that created a key, where a step counts them."""


def tag_of(shuffle: int) -> str:
    """The output of a step that goes into a shuffle."""
    return f"shuffle_{shuffle}"


class Wiring:
    """Applies steps, and gathers their reports.

    Attributes:
      reports: (ALL, report) of each step.
    """

    def __init__(self, shuffle_by: str):
        self.reports: list[PCollection] = []
        self._shuffle_by = shuffle_by

    def apply(
        self, step: SendingStep, collection: Any, *shuffles: int, name: str = ""
    ) -> list[PCollection]:
        """What a step sends into some shuffles, one collection of (key, value) each."""
        types = {tag_of(shuffle): keyed_type(self._shuffle_by) for shuffle in shuffles}
        typed = beam.ParDo(step).with_output_types(
            tuple[int, bytes | Pointer], **types, **{_REPORTS: tuple[int, step.REPORT]}
        )
        label = name or type(step).__name__
        found = cast(Any, collection | label >> typed.with_outputs(_REPORTS, *types))
        self.reports.append(found[_REPORTS])
        return [found[tag_of(shuffle)] for shuffle in shuffles]

    def group(self, name: str, *collections: PCollection) -> PCollection:
        """Collections of (key, value), grouped by key."""
        return collections | f"All{name}" >> beam.Flatten() | f"By{name}" >> beam.GroupByKey()
