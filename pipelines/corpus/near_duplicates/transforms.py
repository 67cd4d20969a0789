"""The Beam wiring of near-duplicates: blocks -> members -> asked sets -> edges -> who is removed.

What happens to them are the functions of `steps` and `rounds`. Text is read twice: to sign all
documents, and to make the sets of those that met another in a bucket.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, cast

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.transforms.core import CallableWrapperCombineFn
from apache_beam.transforms.window import GlobalWindows

from pipelines.corpus.near_duplicates.job import (
    ASKS,
    MEMBERS,
    PLACED,
    ROUNDS,
    SETS,
    SIZES,
    FindJob,
    FindReport,
    text_of,
)
from pipelines.corpus.near_duplicates.result import Publishing, publish_result, write_part
from pipelines.corpus.near_duplicates.rounds import finish, first_messages, settle
from pipelines.corpus.near_duplicates.rows import (
    ASK,
    EDGE,
    by_key,
    of_streams,
    partition_of,
    to_batch,
)
from pipelines.corpus.near_duplicates.steps import (
    Batches,
    Counts,
    ask_for_sets,
    cluster_sizes,
    make_members,
    make_sets,
    place_of,
    verify_pairs,
)
from pipelines.readers.sources import Block
from pipelines.rows.routing import joint_digests
from pipelines.runners.block_run import ALL, read_filtered
from pipelines.runners.block_steps import BlockStep, spread_blocks
from pipelines.runners.shuffle import Deliveries, Outbox, keyed_type, receive
from pipelines.writers.rejects import stash
from pipelines.writers.staging import check_turn

_REPORTS = "reports"
Keyed = tuple[int, Any]


class _Stage(BlockStep[FindJob]):
    """What came for a key -> what goes on, by shuffle, and a report of the bundle."""

    def start_bundle(self) -> None:
        """Starts empty outboxes and an empty report for this bundle."""
        self._outboxes: dict[int, Outbox] = {}
        self._reports: list[FindReport] = []

    def finish_bundle(self) -> Iterator:
        """Sends what waits, and then the report of the bundle."""
        for output in self._send(only_full=False):
            yield TaggedOutput(output.tag, GlobalWindows.windowed_value(output.value))
        for outbox in self._outboxes.values():
            self._note(deliveries=Deliveries(sent=outbox.sent))
        report = GlobalWindows.windowed_value((ALL, FindReport.sum(self._reports)))
        yield TaggedOutput(_REPORTS, report)
        del self._outboxes, self._reports

    def _note(self, **said: Any) -> None:
        self._reports.append(FindReport(**said))

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
        """Tells who writes it, and who counts clusters, which documents are removed."""
        job = self._job
        self._put(PLACED, job.placing.place(edges))
        to = partition_of(edges["higher"], job.partitions)
        self._put(SIZES, [(to, to_batch(rows)) for to, rows in by_key(edges, to)])
        held_out = (edges["lower_level"] == 0) & (edges["higher_level"] > 0)
        self._note(counts=Counts(removed=len(edges), held_out=int(held_out.sum())))


class _StageOfStreams(_Stage, ABC):
    """A stage that takes all that came for a key at once."""

    def __init__(self, job: FindJob, receives: int):
        """`receives` is the shuffle that it stands behind."""
        super().__init__(job)
        self._receives = receives

    def process(self, keyed: Keyed) -> Iterator:
        """Makes of a key's values what goes on."""
        job = self._job
        check_turn(job.staging, job.run)
        key, values = keyed
        streams, received = receive(key, values, self._receives)
        self._note(deliveries=Deliveries(received=received))
        for _ in self.handle(key, streams):
            yield from self._send(only_full=True)

    @abstractmethod
    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """What a stage does; puts what goes on into outboxes, and yields where it may go."""


class Sign(_Stage):
    """Blocks -> members of buckets, and the block itself to where it is read again."""

    def process(self, block: Block) -> Iterator:
        """Reads and signs."""
        job, row = self._job, 0
        yield TaggedOutput(_tag(ASKS), (block.index, block))
        for piece, filtered in enumerate(self.read(block)):
            text = text_of(filtered)
            digests = joint_digests([text])
            made = make_members(
                text,
                digests,
                job.levels(block, digests),
                place_of(block.index, row),
                job.rule,
                job.partitions,
            )
            row += len(text)
            self._put(MEMBERS, made.batches)
            stashed = stash(filtered.lines, job.scratch, block.index, piece)
            found = {"read": filtered.read, "dropped": filtered.dropped, "counts": made.counts}
            self._reports.append(FindReport.of(filtered, stashed, **found))
            yield from self._send(only_full=True)
        self._note(deliveries=Deliveries(blocks=(block.index + job.reads * job.blocks,)))


class Pair(_StageOfStreams):
    """Members of a partition's buckets -> whose sets are wanted where."""

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Finds pairs."""
        for made in ask_for_sets(streams, self._job.rule, self._job.partitions):
            self._put(ASKS, made.batches)
            self._note(counts=made.counts)
            yield


class Fetch(_Stage):
    """A block and what is asked of it -> sets, by the partition that compares them."""

    def process(self, keyed: Keyed) -> Iterator:
        """Reads the block again, if anything is asked of it."""
        job = self._job
        key, values = keyed[0], list(keyed[1])
        blocks = [value for value in values if isinstance(value, Block)]
        streams, received = receive(
            key, (value for value in values if not isinstance(value, Block)), ASKS
        )
        self._note(
            deliveries=Deliveries(
                blocks=tuple(block.index + (job.reads + 1) * job.blocks for block in blocks),
                received=received,
            )
        )
        check_turn(job.staging, job.run)
        for block in blocks[:1]:
            if streams:
                asked = of_streams(streams, ASK)
                texts = map(text_of, read_filtered(block, job))
                for batches in make_sets(asked, texts, block.place, job.rule):
                    self._put(SETS, batches)
                    yield from self._send(only_full=True)
            self._journal.add(bytes_read=block.bytes)


class Verify(_StageOfStreams):
    """Sets, and with whom they are to be compared -> verified edges, to where they are decided."""

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Compares sets."""
        for edges, counts in verify_pairs(streams, self._job.rule):
            self._note(counts=counts)
            to = np.zeros(len(edges), np.int64)
            if self._job.rounds:
                edges, to = first_messages(edges, self._job.partitions)
            self._put(ROUNDS, [(to, to_batch(rows)) for to, rows in by_key(edges, to)])
            yield


class Settle(_StageOfStreams):
    """Edges of a partition's documents -> those that are open yet, and who is removed."""

    def __init__(self, job: FindJob, number: int):
        """`number` is that of the round, from 1 on."""
        super().__init__(job, ROUNDS + number - 1)
        self._number = number

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Decides what can be decided here."""
        messages, to, removed = settle(of_streams(streams, EDGE), self._job.partitions)
        if self._number == self._job.rounds:  # the rest goes to one place
            to = np.zeros_like(to)
        self._put(
            ROUNDS + self._number, [(to, to_batch(rows)) for to, rows in by_key(messages, to)]
        )
        self._put_removed(removed)
        yield


class Finish(_StageOfStreams):
    """All edges that are open yet -> who is removed."""

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Decides the rest."""
        self._put_removed(finish(of_streams(streams, EDGE)))
        yield


class CountClusters(_StageOfStreams):
    """The edges by which documents were removed, by representative -> sizes of clusters."""

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Counts."""
        self._note(counts=cluster_sizes(of_streams(streams, EDGE)["higher"]))
        yield


def _tag(shuffle: int) -> str:
    return f"shuffle_{shuffle}"


class FindNear(beam.PTransform):
    """Blocks -> what is said of removed documents, by the key of who is told; and reports."""

    def __init__(self, job: FindJob):
        super().__init__()
        self._job = job

    def expand(self, blocks: PCollection):  # a dict, which as a hint Beam would warn of
        """Wires the stages.

        Returns:
          `placed` and `reports`.
        """
        job, reports, placed, sizes = self._job, [], [], []

        def apply(name: str, stage: _Stage, collection: PCollection, *shuffles: int):
            types = {_tag(shuffle): Keyed for shuffle in shuffles}
            if PLACED in shuffles:
                types[_tag(PLACED)] = keyed_type(job.exchange)
            typed = beam.ParDo(stage).with_output_types(
                Keyed, **types, **{_REPORTS: tuple[int, FindReport]}
            )
            found = cast(Any, collection | name >> typed.with_outputs(_REPORTS, *types))
            reports.append(found[_REPORTS])
            return [found[_tag(shuffle)] for shuffle in shuffles]

        members, places = apply("Sign", Sign(job), blocks, MEMBERS, ASKS)
        grouped = members | "Buckets" >> beam.GroupByKey()
        [asks] = apply("Pair", Pair(job, MEMBERS), grouped, ASKS)
        grouped = (places, asks) | "Ask" >> beam.Flatten() | "ByBlock" >> beam.GroupByKey()
        [sets] = apply("Fetch", Fetch(job), grouped, SETS)
        grouped = sets | "Sets" >> beam.GroupByKey()
        [edges] = apply("Verify", Verify(job, SETS), grouped, ROUNDS)
        for number in range(1, job.rounds + 1):
            grouped = edges | f"Round{number}" >> beam.GroupByKey()
            edges, done, size = apply(
                f"Settle{number}", Settle(job, number), grouped, ROUNDS + number, PLACED, SIZES
            )
            placed.append(done)
            sizes.append(size)
        grouped = edges | "Rest" >> beam.GroupByKey()
        done, size = apply("Finish", Finish(job, ROUNDS + job.rounds), grouped, PLACED, SIZES)
        placed.append(done)
        sizes.append(size)
        grouped = sizes | "AllSizes" >> beam.Flatten() | "BySize" >> beam.GroupByKey()
        apply("CountClusters", CountClusters(job, SIZES), grouped)
        return {
            "placed": placed | "Placed" >> beam.Flatten(),
            "reports": reports | "Reports" >> beam.Flatten(),
        }


class WritePart(_StageOfStreams):
    """The removed documents of one file of the result -> the staged file."""

    def __init__(self, job: FindJob, files: int):
        """`files` are all of the result."""
        super().__init__(job, PLACED)
        self._files = files

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Writes it."""
        rows = of_streams(streams, EDGE)
        self._note(files=(write_part(self._job.staging, key, self._files, rows),))
        yield


class FindDuplicates(beam.PTransform):
    """Blocks in the staging folder -> a published directory."""

    def __init__(self, job: FindJob, publishing: Publishing):
        super().__init__()
        self._job, self._publishing = job, publishing

    def expand(self, input_or_inputs: beam.Pipeline) -> PCollection:
        """Finds, writes and publishes."""
        job, pipeline, files = self._job, input_or_inputs, self._publishing.files
        blocks = spread_blocks(pipeline, job.staging)
        found = cast(dict[str, PCollection], blocks | "Find" >> FindNear(job))
        every_file = (
            pipeline
            | "Files" >> beam.Create([files], reshuffle=False)
            | "Parts" >> beam.FlatMap(_empty_parts).with_output_types(keyed_type(job.exchange))
        )
        written = (
            (found["placed"], every_file)
            | "Meet" >> beam.Flatten()
            | "ByFile" >> beam.GroupByKey()
            | "Write"
            >> beam.ParDo(WritePart(job, files))
            .with_output_types(Keyed, **{_REPORTS: tuple[int, FindReport]})
            .with_outputs(_REPORTS)
        )
        return (
            (found["reports"], written[_REPORTS])
            | "AllReports" >> beam.Flatten()
            | "AddUp" >> beam.CombinePerKey(CallableWrapperCombineFn(FindReport.sum, 100))
            | "Publish" >> beam.ParDo(Publish(self._publishing))
        )


def _empty_parts(files: int) -> Iterator[tuple[int, bytes]]:
    """Gives each file an empty value, so that one without documents is written too."""
    return ((file, b"") for file in range(files))


class Publish(beam.DoFn):
    """The report of the whole run -> the published directory."""

    def __init__(self, publishing: Publishing):
        self._publishing = publishing

    def process(self, keyed: tuple[int, FindReport]) -> Iterator[str]:
        """Publishes it, and gives its path."""
        publish_result(keyed[1], self._publishing)
        yield self._publishing.output
