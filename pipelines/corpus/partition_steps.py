"""The steps of build_corpus on partitions of documents, see `transforms`."""

from abc import ABC
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput

from textmill.pipelines.corpus.best_steps import WritingStep
from textmill.pipelines.corpus.counting import drop_rows
from textmill.pipelines.corpus.forget_documents import forget_rows
from textmill.pipelines.corpus.job import CorpusJob, CorpusReport
from textmill.pipelines.corpus.options import Paragraphs
from textmill.pipelines.corpus.paragraphs import find_repeated, list_paragraphs, send_paragraphs
from textmill.pipelines.corpus.partition import (
    binaries,
    cut_batch,
    digests_of,
    gather,
    no_rows,
    read_partition,
    stage_partition,
)
from textmill.pipelines.corpus.partition_files import (
    edit_paragraphs,
    list_known,
    remove_known,
    remove_near_duplicates,
)
from textmill.pipelines.corpus.shuffles import Shuffle
from textmill.pipelines.readers.forget import load_digests
from textmill.pipelines.runners.steps import count, tag_of

_KEPT, _UNCHANGED = "-kept", "-unchanged"  # later stages of a partition
_KNOWN = "-known"  # hashes of its documents that older corpora have


class _Step(WritingStep, ABC):
    """A step on partitions.

    Attributes:
      NEXT: shuffle of an empty value for each partition, so that a later step visits all; None
        without one.
    """

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
        added = job.filters.added()
        batch = no_rows(job.source.roles, added, keep_source=job.keep_source)
        batch = gather(streams, batch)
        self.add(_drop_equal(batch))
        if job.against:
            batch = self._remove_known(batch, key)
        if job.is_staged:
            stage_partition(job.scratch, key, batch)
        else:
            self.finish(batch, key)
        yield

    def _remove_known(self, batch: pa.RecordBatch, key: int) -> pa.RecordBatch:
        """Removes documents of older corpora, and lists them."""
        batch, known, report = remove_known(batch, key, self._job)
        count("documents_dropped_older_duplicates", len(known))
        self.add(report)
        if self._job.paragraphs:  # edits may make more documents equal to older ones
            stage_partition(
                self._job.scratch, key, pa.record_batch({"digest": binaries(known)}), _KNOWN
            )
        else:
            self.add(list_known(known, key, self._job))
        return batch


class Write(_Step):
    """A staged partition and the list of its near-duplicates -> its files."""

    PHASE = "writing documents"

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Removes near-duplicates and writes the files."""
        batch, report = _without_near(key, streams, self._job)
        self.add(report)
        self.finish(batch, key)
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
        if (listed := load_digests(job.forget)) is not None:
            batch, found, statistics = forget_rows(batch, listed)
            count("documents_dropped_forgotten", sum(found.digests.values()))
            self.add(CorpusReport(statistics=statistics, forgotten=found.digests))
        self.add(_drop_equal(batch))
        if job.against:
            batch, known, report = remove_known(batch, key, job)
            count("documents_dropped_older_duplicates", len(known))
            before = digests_of(read_partition(job.scratch, key, _KNOWN))
            self.add(report)
            self.add(list_known(np.concatenate([before, known]), key, job))
        self.finish(batch, key)
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
