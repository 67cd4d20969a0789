"""The Beam wiring of near-duplicates: staged partitions -> which documents are removed.

    Sign      partition        -> members of buckets
    Propose   buckets          -> pairs, and whose sets are needed
    Fetch     partition, asks  -> sets of the higher documents of pairs
    Verify    pairs, sets      -> edges: pairs that are near
    Settle    edges            -> edges that are still open, and removed documents
    Name      representatives  -> removed documents, by their partition

The steps' work is in `steps` and `resolve`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, cast

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.transforms.window import GlobalWindows

from pipelines.corpus.near_duplicates.job import (
    ASKS,
    MEMBERS,
    NAMES,
    PAIRS,
    REMOVALS,
    ROUNDS,
    FindJob,
    FindReport,
)
from pipelines.corpus.near_duplicates.resolve import first_messages, resolve, settle
from pipelines.corpus.near_duplicates.rows import ASK, EDGE, MEMBER, batches_by_key, take_rows
from pipelines.corpus.near_duplicates.steps import (
    Batches,
    make_members,
    make_sets,
    name_removed,
    propose_pairs,
    verify_pairs,
)
from pipelines.corpus.partition import digests_of, read_partition
from pipelines.runners.block_run import ALL
from pipelines.runners.block_steps import Step
from pipelines.runners.shuffle import Deliveries, Outbox, keyed_type, receive
from pipelines.storage.store import Pointer
from pipelines.writers.staging import check_turn

_REPORTS = "reports"


class _Step(Step[FindJob], ABC):
    """What came for a key -> what travels on, by shuffle, and a report of the bundle."""

    def __init__(self, job: FindJob, receives: int = 0):
        """`receives` is the shuffle that the step follows, if it follows one."""
        super().__init__(job)
        self._receives = receives

    def start_bundle(self) -> None:
        """Starts empty outboxes and an empty report for this bundle."""
        self._outboxes: dict[int, Outbox] = {}
        self._reports: list[FindReport] = []

    def process(self, keyed: tuple[int, Any]) -> Iterator:
        """Handles all that came for a key."""
        check_turn(self._job.staging, self._job.run)
        key, values = keyed[0], list(keyed[1])
        streams, received = receive(key, values, self._receives)
        self._report(deliveries=Deliveries(received=received))
        self._count_markers(key, values.count(b""))
        del values
        for _ in self.handle(key, streams):
            yield from self._send(only_full=True)

    @abstractmethod
    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Puts what travels on into outboxes, and yields where it may be sent."""

    def finish_bundle(self) -> Iterator:
        """Sends what waits, and then the report of the bundle."""
        for output in self._send(only_full=False):
            yield TaggedOutput(output.tag, GlobalWindows.windowed_value(output.value))
        for outbox in self._outboxes.values():
            self._report(deliveries=Deliveries(sent=outbox.sent))
        report = GlobalWindows.windowed_value((ALL, FindReport.sum(self._reports)))
        yield TaggedOutput(_REPORTS, report)
        del self._outboxes, self._reports

    def _count_markers(self, key: int, number: int) -> None:
        """Reports the empty values that created a key, where a step counts them."""

    def _report(self, **fields: Any) -> None:
        self._reports.append(FindReport(**fields))

    def _put(self, shuffle: int, batches: Batches) -> None:
        if shuffle not in self._outboxes:
            self._outboxes[shuffle] = Outbox(self._job.exchange, self._job.scratch, shuffle)
        self._outboxes[shuffle].add(batches)

    def _send(self, *, only_full: bool) -> Iterator:
        for shuffle, outbox in self._outboxes.items():
            if outbox.is_full or not only_full:
                for keyed in outbox.send():
                    yield TaggedOutput(_tag(shuffle), keyed)

    def _put_removed(self, edges: np.ndarray) -> None:
        self._put(NAMES, batches_by_key(edges, edges["higher"] >> 32))


class Sign(_Step):
    """A partition -> members of buckets, and an empty value that lets `Fetch` report it."""

    def process(self, number: int) -> Iterator:
        """Signs the documents."""
        job = self._job
        check_turn(job.staging, job.run)
        yield TaggedOutput(_tag(ASKS), (number, b""))
        for _ in self.handle(number, []):
            yield from self._send(only_full=True)
        self._report(deliveries=Deliveries(blocks=(job.blocks + number,)))

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Signs a part of the documents at a time."""
        job = self._job
        text = read_partition(job.scratch, key)["text"]
        for batches, counts in make_members(key, text, job.rule, job.partitions):
            self._put(MEMBERS, batches)
            self._report(counts=counts)
            yield
        self._journal.add(bytes_read=text.nbytes)


class Propose(_Step):
    """The members of some buckets -> pairs, and whose sets are needed."""

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Finds pairs."""
        for pairs, asks, counts in propose_pairs(take_rows(streams, MEMBER), self._job.rule):
            self._put(PAIRS, pairs)
            self._put(ASKS, asks)
            self._report(counts=counts)
            yield


class Fetch(_Step):
    """What is asked of a partition -> sets, by the partition that compares them."""

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Makes the sets."""
        if streams:
            text = read_partition(self._job.scratch, key)["text"]
            for batches in make_sets(take_rows(streams, ASK), text, self._job.rule):
                self._put(PAIRS, batches)
                yield

    def _count_markers(self, key: int, number: int) -> None:
        block = self._job.blocks + self._job.partitions + key
        self._report(deliveries=Deliveries(blocks=(block,) * number))


class Verify(_Step):
    """Pairs, and the sets of their higher documents -> edges, to where they are decided."""

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Compares sets."""
        job = self._job
        text = read_partition(job.scratch, key)["text"]
        for edges, counts in verify_pairs(streams, text, job.rule):
            self._report(counts=counts)
            to = np.zeros(len(edges), np.int64)
            if job.rounds:
                edges, to = first_messages(edges)
            self._put(ROUNDS, batches_by_key(edges, to))
            yield


class Settle(_Step):
    """Edges of a partition's documents -> those that are still open, and who is removed."""

    def __init__(self, job: FindJob, number: int):
        """`number` is that of the round, from 1 on."""
        super().__init__(job, ROUNDS + number - 1)
        self._number = number

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Decides what can be decided here."""
        messages, to, removed = settle(take_rows(streams, EDGE))
        if self._number == self._job.rounds:  # the rest is decided in one place
            to = np.zeros_like(to)
        self._put(ROUNDS + self._number, batches_by_key(messages, to))
        self._put_removed(removed)
        yield


class Resolve(_Step):
    """All edges that are still open -> who is removed."""

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Decides the rest."""
        self._put_removed(resolve(take_rows(streams, EDGE)))
        yield


class Name(_Step):
    """Edges by which documents are removed -> those documents, each with its representative."""

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Looks up hashes of representatives, and counts clusters."""
        digests = digests_of(read_partition(self._job.scratch, key))
        removed, counts = name_removed(take_rows(streams, EDGE), digests)
        self._put(REMOVALS, removed)
        self._report(counts=counts)
        yield


def _tag(shuffle: int) -> str:
    return f"shuffle_{shuffle}"


class FindNear(beam.PTransform):
    """Numbers of staged partitions -> the documents that are removed, and reports."""

    def __init__(self, job: FindJob):
        super().__init__()
        self._job = job

    def expand(self, numbers: PCollection):  # a dict, which as a hint Beam would warn of
        """Wires the steps.

        Returns:
          `removed`: (partition, REMOVED rows), to be received as of the shuffle REMOVALS;
          `reports`: (ALL, FindReport).
        """
        job, reports, named = self._job, [], []

        def apply(step: _Step, collection: PCollection, *shuffles: int, name: str = ""):
            types = {_tag(shuffle): keyed_type(job.exchange) for shuffle in shuffles}
            typed = beam.ParDo(step).with_output_types(
                tuple[int, bytes | Pointer], **types, **{_REPORTS: tuple[int, FindReport]}
            )
            name = name or type(step).__name__
            found = cast(Any, collection | name >> typed.with_outputs(_REPORTS, *types))
            reports.append(found[_REPORTS])
            return [found[_tag(shuffle)] for shuffle in shuffles]

        def group(name: str, *collections: PCollection) -> PCollection:
            return collections | f"All{name}" >> beam.Flatten() | f"By{name}" >> beam.GroupByKey()

        members, markers = apply(Sign(job), numbers, MEMBERS, ASKS)
        pairs, asks = apply(Propose(job, MEMBERS), group("Bucket", members), PAIRS, ASKS)
        [sets] = apply(Fetch(job, ASKS), group("Asked", markers, asks), PAIRS)
        [edges] = apply(Verify(job, PAIRS), group("Pair", pairs, sets), ROUNDS)
        for number in range(1, job.rounds + 1):
            grouped = group(f"Round{number}", edges)
            edges, removed = apply(
                Settle(job, number), grouped, ROUNDS + number, NAMES, name=f"Settle{number}"
            )
            named.append(removed)
        [removed] = apply(Resolve(job, ROUNDS + job.rounds), group("Rest", edges), NAMES)
        [removed] = apply(Name(job, NAMES), group("Name", *named, removed), REMOVALS)
        return {"removed": removed, "reports": reports | "Reports" >> beam.Flatten()}
