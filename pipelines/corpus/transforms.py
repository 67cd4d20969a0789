"""The Beam wiring of build_corpus: blocks -> partitions -> files of documents -> a corpus.

    Clean     block               -> documents, by partition
    Stage     partition           -> the staged partition, each document once, in hash order
    FindNear  staged partitions   -> near-duplicates, by partition
    Write     partition, removed  -> a file of documents

What the steps do is in files without Beam.
"""

import time
from collections.abc import Iterator
from typing import Any, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.transforms.core import CallableWrapperCombineFn

from pipelines.corpus.job import (
    CorpusJob,
    CorpusReport,
    count_piece,
    drop_rows,
    remove_near_duplicates,
    write_documents,
)
from pipelines.corpus.near_duplicates.job import REMOVALS, FindReport
from pipelines.corpus.near_duplicates.transforms import FindNear
from pipelines.corpus.partition import (
    cut_batch,
    gather,
    make_batch,
    read_partition,
    stage_partition,
)
from pipelines.corpus.publish import publish_corpus
from pipelines.readers.documents import no_documents
from pipelines.readers.sources import Block
from pipelines.runners.block_run import ALL
from pipelines.runners.block_steps import BlockStep, count, spread_blocks
from pipelines.runners.progress import Journal
from pipelines.runners.shuffle import Deliveries, keyed_type
from pipelines.runners.shuffle_steps import KeyedStep, SendingStep, Wiring, tag_of
from pipelines.writers.rejects import stash
from schemas.manifest import Manifest

_DOCUMENTS = 0  # the shuffle of documents
_STAGED = 1 << 10  # of empty values, one for each staged partition: they carry nothing


class Clean(BlockStep[CorpusJob], SendingStep[CorpusJob]):
    """Blocks -> documents as rules leave them, by partition."""

    REPORT = CorpusReport

    def process(self, block: Block) -> Iterator:
        """Reads, cleans and cuts into partitions."""
        job = self._job
        for piece, filtered in enumerate(self.read(block)):
            batch = make_batch(filtered.documents, keep_source=job.keep_source)
            self.put(_DOCUMENTS, cut_batch(batch, job.partitions))
            yield from self.send()
            stashed = stash(filtered.lines, job.scratch, block.index, piece)
            statistics = count_piece(filtered)
            count("documents_read", statistics.documents_read)
            for reason, number in statistics.dropped.items():
                count(f"documents_dropped_{reason}", number)
            self.add(CorpusReport.of(filtered, stashed, statistics=statistics, hits=filtered.hits))
        self.report(deliveries=Deliveries(blocks=(block.index,)))


class Stage(KeyedStep[CorpusJob]):
    """The documents of a partition -> the staged partition; or its file, where no step follows."""

    REPORT = CorpusReport

    def process(self, keyed: tuple[int, Any]) -> Iterator:
        """Stages, and sends the partition an empty value that lets other steps find it."""
        yield from super().process(keyed)
        yield TaggedOutput(tag_of(_STAGED), (keyed[0], b""))

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Drops exact duplicates and sorts."""
        job = self._job
        batch = gather(streams)
        if batch is None:
            batch = make_batch(no_documents(job.source.roles), keep_source=job.keep_source)
        repeated = batch["copies"].to_numpy() - 1
        count("documents_dropped_duplicates", int(repeated.sum()))
        self.report(statistics=drop_rows(batch, "duplicates", repeated))
        if job.near:
            stage_partition(job.scratch, key, batch)
        else:
            self.add(_write(batch, key, job, self._journal))
        yield


class Write(KeyedStep[CorpusJob]):
    """A staged partition, and which of its documents are near-duplicates -> its files."""

    REPORT = CorpusReport

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Writes them."""
        job = self._job
        batch = read_partition(job.scratch, key)
        batch, report = remove_near_duplicates(batch, streams, key, job)
        removed = report.statistics.dropped.get("near_duplicates", 0)
        count("documents_dropped_near_duplicates", removed)
        self.add(report)
        self.add(_write(batch, key, job, self._journal, removed))
        yield


def _write(
    batch: pa.RecordBatch, key: int, job: CorpusJob, journal: Journal, removed: int = 0
) -> CorpusReport:
    began = time.monotonic()
    report = write_documents(batch, key, job, near_duplicates=removed)
    journal.add(rows=len(batch))
    count("documents_kept", len(batch))
    count("file_milliseconds", round(1000 * (time.monotonic() - began)))
    return report


def _publish(keyed: tuple[int, CorpusReport], job: CorpusJob) -> Manifest:
    return publish_corpus(keyed[1], job)


def _markers(partitions: int) -> Iterator[tuple[int, bytes]]:
    """Gives each partition an empty value, so that one without documents is written too."""
    return ((number, b"") for number in range(partitions))


def _of_near(keyed: tuple[int, FindReport]) -> tuple[int, CorpusReport]:
    return ALL, CorpusReport(deliveries=keyed[1].deliveries, near=keyed[1].counts)


class BuildCorpus(beam.PTransform):
    """Blocks in the staging folder -> a published corpus."""

    def __init__(self, job: CorpusJob):
        super().__init__()
        self._job = job

    def expand(self, input_or_inputs: beam.Pipeline) -> PCollection:
        """Wires the steps."""
        job, pipeline = self._job, input_or_inputs
        wiring = Wiring(job.exchange)
        every_partition = (
            pipeline
            | "Files" >> beam.Create([job.partitions], reshuffle=False)
            | "Partitions" >> beam.FlatMap(_markers).with_output_types(keyed_type(job.exchange))
        )
        blocks = spread_blocks(pipeline, job.staging)
        [documents] = wiring.apply(Clean(job), blocks, _DOCUMENTS)
        grouped = wiring.group("Partition", documents, every_partition)
        [staged] = wiring.apply(Stage(job, _DOCUMENTS), grouped, _STAGED)
        reports = wiring.reports
        if job.near:
            found = cast(dict[str, PCollection], staged | beam.Keys() | FindNear(job.near))
            reports.append(found["reports"] | "NearCounts" >> beam.Map(_of_near))
            wiring.apply(Write(job, REMOVALS), wiring.group("File", staged, found["removed"]))
        return (
            reports
            | "AllReports" >> beam.Flatten()
            | "AddUp" >> beam.CombinePerKey(CallableWrapperCombineFn(CorpusReport.sum, 100))
            | "Publish" >> beam.Map(_publish, job)
        )
