"""The steps of `transforms` that find near-duplicates; their logic is in `steps`, `resolve`."""

from abc import ABC
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from textmill.pipelines.corpus.ancestors import load_older, read_documents, read_ids
from textmill.pipelines.corpus.job import CorpusReport
from textmill.pipelines.corpus.near_duplicates.job import FindJob
from textmill.pipelines.corpus.near_duplicates.resolve import first_messages, resolve, settle
from textmill.pipelines.corpus.near_duplicates.rows import (
    ASK,
    EDGE,
    MEMBER,
    OLDER,
    PAIR,
    all_distinct,
    batches_by_key,
    of_batch,
    rows_of,
    sets_of,
    take_rows,
)
from textmill.pipelines.corpus.near_duplicates.steps import (
    largest_clusters,
    make_sets,
    name_removed,
    propose_pairs,
    verify_pairs,
)
from textmill.pipelines.corpus.partition import digests_of, read_partition
from textmill.pipelines.corpus.shuffles import Shuffle
from textmill.pipelines.rows.example_batch import from_stream
from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.runners.shuffle import DeliveryReport, receive
from textmill.pipelines.runners.steps import KeyedStep, SendingStep
from textmill.pipelines.writers.scratch import load
from textmill.pipelines.writers.staging import check_turn

_EDGE_BYTES = 4 << 20  # bytes of edges sent together


class _Step(KeyedStep[FindJob], ABC):
    REPORT = CorpusReport
    STEP: ClassVar[tuple[int, str]]  # its number among the steps of `FindJob.phase`, what it does

    @property
    def phase(self) -> str:
        """The name of the step in the progress display."""
        return self._job.phase(*self.STEP)

    def put_removed(self, edges: np.ndarray) -> None:
        """Sends removed documents to the partitions of their representatives."""
        self.put(Shuffle.NAMES, batches_by_key(edges, edges["higher"] >> 32))


class Propose(_Step):
    """The members of some buckets -> pairs, and requests for sets."""

    STEP = 2, "candidates"

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Finds pairs."""
        for pairs, asks, counts in propose_pairs(take_rows(streams, MEMBER), self._job.rule):
            self.put(Shuffle.PAIRS, pairs)
            self.put(Shuffle.ASKS, asks)
            self.add(CorpusReport.of_counts(counts))
            yield


class Fetch(_Step):
    """Requests to a partition -> sets, by the partition that compares them."""

    STEP = 3, "fetching texts"

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Makes the sets."""
        if streams:
            requests, rows = take_rows(streams, ASK), None
            if key < OLDER:
                text = read_partition(self._job.scratch, key)["text"]
            else:
                rows = np.unique(rows_of(requests["higher"]))
                file = load_older(self._job.against).files[key - OLDER]
                text = read_documents(file, rows)["text"]
            for batches in make_sets(requests, text, self._job.rule, rows):
                self.put(Shuffle.PAIRS, batches)
                yield

    def count_markers(self, key: int, number: int) -> None:
        """Reports that the partition was visited."""
        block = self._job.blocks + self._job.partitions + key
        self.report(deliveries=DeliveryReport(blocks=(block,) * number))


class Verify(SendingStep[FindJob]):
    """Pairs, and the sets of their higher documents -> edges, by the partition that decides."""

    REPORT = CorpusReport

    def process(self, keyed: tuple[int, Any]) -> Iterator:
        """Compares sets; memory holds the pairs, and one value with sets at a time."""
        job, (key, values), with_sets = self._job, keyed, []
        check_turn(job.staging, job.run)

        def read_pairs() -> Iterator[np.ndarray]:
            for value in values:
                [stream], received = receive(key, [value], Shuffle.PAIRS)
                self.report(deliveries=DeliveryReport(received=received))
                batch = from_stream(stream)
                if sets_of(batch):
                    with_sets.append(value)
                else:
                    yield of_batch(batch, PAIR)

        def read_sets() -> Iterator[tuple[np.ndarray, Ragged]]:
            return filter(None, (sets_of(from_stream(load(value))) for value in with_sets))

        pairs = all_distinct(read_pairs(), PAIR)
        text = read_partition(job.scratch, key)["text"]
        with self._journal.phase(job.phase(4, "comparing"), job.keys):
            for edges, counts in verify_pairs(pairs, read_sets, text, job.rule):
                self.add(CorpusReport.of_counts(counts))
                to = np.zeros(len(edges), np.int64)
                if job.rounds:
                    edges, to = first_messages(edges)
                self.put(Shuffle.ROUNDS, batches_by_key(edges, to))
                # Fewer and larger shuffle files.
                if self._writers[Shuffle.ROUNDS].bytes > _EDGE_BYTES:
                    yield from self.send()


class ResolveLocally(_Step):
    """Edges of a partition's documents -> those that are still open, and removed documents."""

    def __init__(self, job: FindJob, number: int):
        """`number` is the number of the round, from 1."""
        super().__init__(job, Shuffle.ROUNDS + number - 1)
        self._number = number

    @property
    def phase(self) -> str:
        """The name of the round in the progress display."""
        what = f"deciding, round {self._number} of {self._job.rounds}"
        return self._job.phase(4 + self._number, what)

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Decides the documents that the messages suffice for."""
        messages, to, removed = settle(take_rows(streams, EDGE))
        if self._number == self._job.rounds:  # a single worker decides the rest
            to = np.zeros_like(to)
        self.put(Shuffle.ROUNDS + self._number, batches_by_key(messages, to))
        self.put_removed(removed)
        yield


class Resolve(_Step):
    """All edges that are still open -> removed documents."""

    @property
    def phase(self) -> str:
        """The name of the step in the progress display."""
        return self._job.phase(5 + self._job.rounds, "deciding the rest")

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Decides the rest."""
        self.put_removed(resolve(take_rows(streams, EDGE)))
        yield


class AttachIds(_Step):
    """Edges of removed documents -> removed documents, each with its representative."""

    @property
    def phase(self) -> str:
        """The name of the step in the progress display."""
        return self._job.phase(6 + self._job.rounds, "listing")

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Looks up the hashes of representatives, and counts clusters."""
        job, edges = self._job, take_rows(streams, EDGE)
        if key < OLDER:
            batch = read_partition(job.scratch, key)
            digests, clusters = digests_of(batch), largest_clusters(edges, batch)
        else:
            file = load_older(job.against).files[key - OLDER]
            ids = read_ids(file.path, file.rows)
            digests, clusters = ids.view(np.uint8).reshape(-1, ids.itemsize), ()
        removed, counts = name_removed(edges, digests)
        self.put(Shuffle.REMOVALS, removed)
        self.add(replace(CorpusReport.of_counts(counts), clusters=clusters))
        yield
