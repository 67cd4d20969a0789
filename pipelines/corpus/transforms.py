"""The Beam wiring of build_corpus: blocks -> partitions -> files of documents -> a corpus.

One GroupByKey carries the documents. What is done on either side of it lies in files without Beam.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.transforms.core import CallableWrapperCombineFn
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from pipelines.corpus.job import CorpusJob, CorpusReport, count_piece, drop_rows, write_documents
from pipelines.corpus.partition import (
    cut_batch,
    gather,
    make_batch,
    read_partition,
    stage_partition,
)
from pipelines.corpus.publish import publish_corpus
from pipelines.readers.sources import Block
from pipelines.runners.block_run import ALL
from pipelines.runners.block_steps import BlockStep, count, spread_blocks
from pipelines.runners.progress import Journal
from pipelines.runners.shuffle import Deliveries, Outbox, keyed_type, receive
from pipelines.storage.store import Pointer
from pipelines.writers.rejects import stash
from pipelines.writers.staging import check_turn
from schemas.manifest import Manifest

_MAIN, _REPORTS = "main", "reports"
_REPORT = tuple[int, CorpusReport]


class CleanBlock(BlockStep[CorpusJob]):
    """Blocks -> (partition, batch or pointer) for each partition of their documents, and a report.

    A bundle gives one report when all is sent: what a runner loses of it leaves blocks out.
    """

    def start_bundle(self) -> None:
        """Starts an empty buffer and an empty report for this bundle."""
        self._outbox = Outbox(self._job.exchange, self._job.scratch)
        self._reports: list[CorpusReport] = []

    def process(self, block: Block) -> Iterator:
        """Reads, cleans and cuts into partitions."""
        job = self._job
        for piece, filtered in enumerate(self.read(block)):
            batch = make_batch(filtered.documents, keep_source=job.keep_source)
            self._outbox.add(cut_batch(batch, job.partitions))
            if self._outbox.is_full:
                yield from self._outbox.send()
            stashed = stash(filtered.lines, job.scratch, block.index, piece)
            statistics = count_piece(filtered)
            count("documents_read", statistics.documents_read)
            for reason, number in statistics.dropped.items():
                count(f"documents_dropped_{reason}", number)
            report = CorpusReport.of(filtered, stashed, statistics=statistics, hits=filtered.hits)
            self._reports.append(report)
        self._reports.append(CorpusReport(deliveries=Deliveries(blocks=(block.index,))))

    def finish_bundle(self) -> Iterator[WindowedValue | TaggedOutput]:
        """Sends what waits in the buffer, and then the report of the bundle."""
        for element in self._outbox.send():
            yield GlobalWindows.windowed_value(element)
        self._reports.append(CorpusReport(deliveries=Deliveries(sent=self._outbox.sent)))
        report = GlobalWindows.windowed_value((ALL, CorpusReport.sum(self._reports)))
        yield TaggedOutput(_REPORTS, report)
        del self._outbox, self._reports


class StagePartition(beam.DoFn):
    """(partition, its batches) -> the number of the staged partition, and a report."""

    def __init__(self, job: CorpusJob):
        self._job = job

    def process(self, keyed: tuple[int, Iterable[bytes | Pointer]]) -> Iterator:
        """Drops exact duplicates, sorts and stages."""
        job, (number, values) = self._job, keyed
        check_turn(job.staging, job.run)
        streams, received = receive(number, values)
        batch = gather(streams)
        report = CorpusReport(deliveries=Deliveries(received=received))
        if batch is not None:
            stage_partition(job.scratch, number, batch)
            repeated = batch["copies"].to_numpy() - 1
            statistics = drop_rows(batch, "duplicates", repeated)
            count("documents_dropped_duplicates", int(repeated.sum()))
            report = CorpusReport.sum([report, CorpusReport(statistics=statistics)])
        yield number, batch is not None
        yield TaggedOutput(_REPORTS, (ALL, report))


class WriteFile(beam.DoFn):
    """(partition, whether it holds documents) -> its staged file, and a report."""

    def __init__(self, job: CorpusJob):
        self._job = job

    def setup(self) -> None:
        """Opens the journal of the progress display, once a worker."""
        self._journal = Journal(self._job.local)

    def process(self, keyed: tuple[int, bool]) -> Iterator:
        """Writes the file."""
        job, (number, holds_documents) = self._job, keyed
        check_turn(job.staging, job.run)
        batch = read_partition(job.scratch, number) if holds_documents else None
        report = write_documents(batch, number, job)
        self._journal.add(rows=report.statistics.total().documents)
        count("documents_kept", report.statistics.total().documents)
        yield ALL, report


def _publish(keyed: tuple[int, CorpusReport], job: CorpusJob) -> Manifest:
    return publish_corpus(keyed[1], job)


def _empty_batches(partitions: int) -> Iterator[tuple[int, bytes]]:
    """Gives each partition an empty value, so that one without documents is written too."""
    return ((number, b"") for number in range(partitions))


class BuildCorpus(beam.PTransform):
    """Blocks in the staging folder -> a published corpus."""

    def __init__(self, job: CorpusJob):
        super().__init__()
        self._job = job

    def expand(self, input_or_inputs: beam.Pipeline) -> PCollection:
        """Wires the pure files together."""
        job, pipeline = self._job, input_or_inputs
        batch_type: Any = keyed_type(job.exchange)
        batches = spread_blocks(pipeline, job.staging) | "Clean" >> beam.ParDo(
            CleanBlock(job)
        ).with_output_types(batch_type, reports=_REPORT).with_outputs(_REPORTS, main=_MAIN)
        every_partition = (
            pipeline
            | "Files" >> beam.Create([job.partitions], reshuffle=False)
            | "Partitions" >> beam.FlatMap(_empty_batches).with_output_types(batch_type)
        )
        staged = (
            (batches[_MAIN], every_partition)
            | "Meet" >> beam.Flatten()
            | "Group" >> beam.GroupByKey()
            | "Stage"
            >> beam.ParDo(StagePartition(job))
            .with_output_types(tuple[int, bool], reports=_REPORT)
            .with_outputs(_REPORTS, main=_MAIN)
        )
        written = staged[_MAIN] | "Write" >> beam.ParDo(WriteFile(job)).with_output_types(_REPORT)
        return (
            (batches[_REPORTS], staged[_REPORTS], written)
            | "AllReports" >> beam.Flatten()
            | "AddUp" >> beam.CombinePerKey(CallableWrapperCombineFn(CorpusReport.sum, 100))
            | "Publish" >> beam.Map(_publish, job)
        )
