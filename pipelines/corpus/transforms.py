"""The Beam wiring of build_corpus: blocks -> partitions -> files of documents -> a corpus.

    Clean     block               -> documents, by partition
    Stage     partition           -> the staged partition, each document once, in hash order
    FindNear  staged partitions   -> near-duplicates, by partition
    Write     partition, removed  -> a file of documents

With --duplicate_paragraphs, these steps replace Write:

    Remove    partition, removed  -> the partition without them, and hashes of its paragraphs
    Repeated  paragraphs          -> those in too many documents, by partition
    Edit      partition, repeated -> edited documents, by the partition of their new hash
    WriteAll  partition, edited   -> a file of documents

The logic of the steps is in modules that do not import Beam.
"""

import time
from abc import ABC
from collections.abc import Iterator
from typing import Any, ClassVar, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.transforms.core import CallableWrapperCombineFn

from textmill.pipelines.corpus.counting import count_piece, drop_rows
from textmill.pipelines.corpus.decontamination.finders import load_finder
from textmill.pipelines.corpus.filter_documents import filter_documents, load_filters
from textmill.pipelines.corpus.job import CorpusJob, CorpusReport
from textmill.pipelines.corpus.near_duplicates.transforms import FindJob, FindNear
from textmill.pipelines.corpus.options import Paragraphs
from textmill.pipelines.corpus.paragraphs import find_repeated, list_paragraphs, send_paragraphs
from textmill.pipelines.corpus.partition import (
    cut_batch,
    gather,
    make_batch,
    read_partition,
    stage_partition,
)
from textmill.pipelines.corpus.partition_files import (
    edit_paragraphs,
    remove_near_duplicates,
    write_documents,
)
from textmill.pipelines.corpus.publish import publish_corpus
from textmill.pipelines.corpus.shuffles import Shuffle
from textmill.pipelines.readers.documents import no_documents
from textmill.pipelines.readers.sources import Block
from textmill.pipelines.runners.console import Journal
from textmill.pipelines.runners.shuffle import Deliveries, keyed_type
from textmill.pipelines.runners.steps import (
    BlockStep,
    KeyedStep,
    SendingStep,
    Wiring,
    count,
    spread_blocks,
    tag_of,
)
from textmill.pipelines.writers.rejects import stash
from textmill.schemas.format.manifest import Manifest

_KEPT, _UNCHANGED = "-kept", "-unchanged"  # later stages of a partition


class Clean(BlockStep[CorpusJob], SendingStep[CorpusJob]):
    """Blocks -> filtered documents, by partition."""

    REPORT = CorpusReport

    def setup(self) -> None:
        """Loads models and lists of rules."""
        super().setup()
        job = self._job
        load_filters(job.filters)
        self._finder = load_finder(job.index) if job.index else None

    def process(self, block: Block) -> Iterator:
        """Reads and filters documents, and sends them to their partitions."""
        job = self._job
        for piece, documents in enumerate(self.read(block)):
            filtered = filter_documents(job.filters, documents, self._finder)
            batch = make_batch(filtered.documents, keep_source=job.keep_source)
            self.put(Shuffle.DOCUMENTS, cut_batch(batch, job.partitions))
            yield from self.send()
            stashed = stash(filtered.lines, job.scratch, block.index, piece)
            statistics = count_piece(filtered)
            count("documents_read", statistics.documents_read)
            for reason, number in statistics.dropped.items():
                count(f"documents_dropped_{reason}", number)
            counts = {"statistics": statistics, "hits": filtered.hits, "stashed": stashed}
            counts["hosts"] = documents.hosts
            self.add(CorpusReport.of(documents, **counts))
        self.report(deliveries=Deliveries(blocks=(block.index,)))


class _Step(KeyedStep[CorpusJob], ABC):
    """A step on partitions.

    Attributes:
      NEXT: shuffle of an empty value for each partition, so that a later step visits all; None
        without one.
    """

    REPORT = CorpusReport
    NEXT: ClassVar[int | None] = None

    def process(self, keyed: tuple[int, Any]) -> Iterator:
        """Handles a partition."""
        yield from super().process(keyed)
        if self.NEXT is not None:
            yield TaggedOutput(tag_of(self.NEXT), (keyed[0], b""))


class Stage(_Step):
    """The documents of a partition -> the staged partition; or its file, if no step follows."""

    PHASE, NEXT = "exact duplicates", Shuffle.STAGED

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Removes exact duplicates and sorts."""
        job = self._job
        batch = make_batch(no_documents(job.source.roles), keep_source=job.keep_source)
        batch = gather(streams, batch)
        self.add(_drop_equal(batch))
        if job.is_staged:
            stage_partition(job.scratch, key, batch)
        else:
            self.add(_write(batch, key, job, self._journal))
        yield


class Write(_Step):
    """A staged partition and the list of its near-duplicates -> its files."""

    PHASE = "writing documents"

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Removes near-duplicates and writes the files."""
        batch, report = _without_near(key, streams, self._job)
        self.add(report)
        self.add(_write(batch, key, self._job, self._journal))
        yield


class _ParagraphStep(_Step, ABC):
    """A step that applies --duplicate_paragraphs."""

    def __init__(self, job: CorpusJob, receives: int, rule: Paragraphs):
        super().__init__(job, receives)
        self._rule = rule


class Remove(_ParagraphStep):
    """A partition and the list of its near-duplicates -> it without them; its paragraphs."""

    PHASE, NEXT = "repeated paragraphs, step 1 of 3 (hashing)", Shuffle.REPEATED

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Removes near-duplicates and lists paragraphs."""
        job = self._job
        batch, report = _without_near(key, streams, job)
        self.add(report)
        stage_partition(job.scratch, key, batch, _KEPT)
        rows = list_paragraphs(batch, self._rule)
        self.put(Shuffle.PARAGRAPHS, send_paragraphs(rows, job.partitions))
        yield


class Repeated(_ParagraphStep):
    """Paragraphs by hash -> those in too many documents, by the partition of the document."""

    PHASE = "repeated paragraphs, step 2 of 3 (counting)"

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Counts the documents of each paragraph."""
        self.put(Shuffle.REPEATED, find_repeated(streams, self._rule.most, self._job.partitions))
        yield


class Edit(_ParagraphStep):
    """A partition and its repeated paragraphs -> edited documents, by their new partition."""

    PHASE, NEXT = "repeated paragraphs, step 3 of 3 (removing)", Shuffle.MOVED

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Removes repeated paragraphs, and sends edited documents to their new partitions."""
        job = self._job
        batch = read_partition(job.scratch, key, _KEPT)
        unchanged, changed, report = edit_paragraphs(batch, streams, self._rule)
        self.add(report)
        stage_partition(job.scratch, key, unchanged, _UNCHANGED)
        if changed is not None:
            self.put(Shuffle.MOVED, cut_batch(changed, job.partitions))
        yield


class WriteAll(_Step):
    """The unchanged and edited documents of a partition -> its file."""

    PHASE = "writing documents"

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Removes documents that edits made equal, and writes the file."""
        job = self._job
        batch = gather(streams, read_partition(job.scratch, key, _UNCHANGED))
        self.add(_drop_equal(batch))
        self.add(_write(batch, key, job, self._journal))
        yield


def _drop_equal(batch: pa.RecordBatch) -> CorpusReport:
    duplicates = batch["copies"].to_numpy() - 1
    count("documents_dropped_duplicates", int(duplicates.sum()))
    return CorpusReport(statistics=drop_rows(batch, "duplicates", duplicates))


def _without_near(
    key: int, streams: list[bytes], job: CorpusJob
) -> tuple[pa.RecordBatch, CorpusReport]:
    batch = read_partition(job.scratch, key)
    if not job.near:
        return batch, CorpusReport()
    kept, report = remove_near_duplicates(batch, streams, key, job)
    count("documents_dropped_near_duplicates", len(batch) - len(kept))
    return kept, report


def _write(batch: pa.RecordBatch, key: int, job: CorpusJob, journal: Journal) -> CorpusReport:
    began = time.monotonic()
    report = write_documents(batch, key, job)
    journal.add(rows=len(batch))
    count("documents_kept", len(batch))
    count("file_milliseconds", round(1000 * (time.monotonic() - began)))
    return report


def _publish(keyed: tuple[int, CorpusReport], job: CorpusJob) -> Manifest:
    with Journal(job.local).phase("writing the report, and publishing"):
        return publish_corpus(keyed[1], job)


def _markers(partitions: int) -> Iterator[tuple[int, bytes]]:
    """An empty value for each partition, so that one without documents is written too."""
    return ((number, b"") for number in range(partitions))


class BuildCorpus(beam.PTransform):
    """Blocks in the staging folder -> a published corpus."""

    def __init__(self, job: CorpusJob):
        super().__init__()
        self._job = job

    def expand(self, input_or_inputs: beam.Pipeline) -> PCollection:
        """Wires the steps."""
        job, pipeline = self._job, input_or_inputs
        wiring = Wiring(job.shuffle_by)
        every_partition = (
            pipeline
            | "Files" >> beam.Create([job.partitions], reshuffle=False)
            | "Partitions" >> beam.FlatMap(_markers).with_output_types(keyed_type(job.shuffle_by))
        )
        blocks = spread_blocks(pipeline, job.staging)
        [documents] = wiring.apply(Clean(job), blocks, Shuffle.DOCUMENTS)
        grouped = wiring.group("Partition", documents, every_partition)
        [staged] = wiring.apply(Stage(job, Shuffle.DOCUMENTS), grouped, Shuffle.STAGED)
        reports = wiring.reports
        removed = []
        if rule := job.near:
            find = FindNear(FindJob(**vars(job), rule=rule))
            near = cast(dict[str, PCollection], staged | beam.Keys() | find)
            reports.append(near["reports"])
            removed.append(near["removed"])
        if job.is_staged:
            grouped = wiring.group("File", staged, *removed)
            if rule := job.paragraphs:
                remove = Remove(job, Shuffle.REMOVALS, rule)
                paragraphs, edits = wiring.apply(
                    remove, grouped, Shuffle.PARAGRAPHS, Shuffle.REPEATED
                )
                grouped = wiring.group("Paragraph", paragraphs)
                [repeated] = wiring.apply(
                    Repeated(job, Shuffle.PARAGRAPHS, rule), grouped, Shuffle.REPEATED
                )
                grouped = wiring.group("Edit", edits, repeated)
                [moved] = wiring.apply(Edit(job, Shuffle.REPEATED, rule), grouped, Shuffle.MOVED)
                wiring.apply(WriteAll(job, Shuffle.MOVED), wiring.group("Moved", moved))
            else:
                wiring.apply(Write(job, Shuffle.REMOVALS), grouped)
        return (
            reports
            | "AllReports" >> beam.Flatten()
            | "AddUp" >> beam.CombinePerKey(CallableWrapperCombineFn(CorpusReport.sum, 100))
            | "Publish" >> beam.Map(_publish, job)
        )
