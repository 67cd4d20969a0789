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

With --keep_best, the step that would write files counts documents by score, and these steps follow:

    FindLast    numbers of all partitions -> the last document to keep
    CountRanks  partition, last document  -> numbers by more bits of the score, and FindLast again
    WriteBest   partition, last document  -> a file of documents

The logic of the steps is in modules that do not import Beam.
"""

from typing import cast

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.core import CallableWrapperCombineFn

from textmill.pipelines.corpus.best_steps import CountRanks, FindLast, WriteBest
from textmill.pipelines.corpus.clean_step import Clean
from textmill.pipelines.corpus.job import CorpusJob, CorpusReport
from textmill.pipelines.corpus.keep_best import SHIFTS
from textmill.pipelines.corpus.near_duplicates.job import FindJob
from textmill.pipelines.corpus.near_duplicates.transforms import FindNear
from textmill.pipelines.corpus.partition_steps import (
    Edit,
    Remove,
    Repeated,
    Stage,
    Write,
    WriteAll,
)
from textmill.pipelines.corpus.publish import publish_corpus
from textmill.pipelines.corpus.shuffles import Shuffle
from textmill.pipelines.runners.console import Journal
from textmill.pipelines.runners.steps import Wiring, mark_keys, spread_blocks
from textmill.schemas.format.manifest import Manifest


def _publish(keyed: tuple[int, CorpusReport], job: CorpusJob) -> Manifest:
    with Journal(job.local).phase("writing the report, and publishing"):
        return publish_corpus(keyed[1], job)


class BuildCorpus(beam.PTransform):
    """Blocks in the staging folder -> a published corpus."""

    def __init__(self, job: CorpusJob):
        super().__init__()
        self._job = job

    def expand(self, input_or_inputs: beam.Pipeline) -> PCollection:
        """Wires the steps."""
        job, pipeline = self._job, input_or_inputs
        wiring = Wiring(job.shuffle_by, job.memory)
        every_partition = mark_keys(pipeline, job.partitions, job.shuffle_by)
        blocks = spread_blocks(pipeline, job.staging)
        [documents] = wiring.apply(Clean(job), blocks, Shuffle.DOCUMENTS)
        grouped = wiring.group("Partition", documents, every_partition)
        counted = () if job.keep_best is None else (Shuffle.RANKS,)
        staged, *ranks = wiring.apply(
            Stage(job, Shuffle.DOCUMENTS), grouped, Shuffle.STAGED, *counted
        )
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
                grouped = wiring.group("Moved", moved)
                ranks = wiring.apply(WriteAll(job, Shuffle.MOVED), grouped, *counted)
            else:
                ranks = wiring.apply(Write(job, Shuffle.REMOVALS), grouped, *counted)
        if ranks:
            self._write_best(wiring, ranks)
        return (
            reports
            | "AllReports" >> beam.Flatten()
            | "AddUp" >> beam.CombinePerKey(CallableWrapperCombineFn(CorpusReport.sum, 100))
            | "Publish" >> beam.Map(_publish, job)
        )

    def _write_best(self, wiring: Wiring, ranks: list[PCollection]) -> None:
        """Numbers of documents by rank -> files of the best documents."""
        job, last = self._job, len(SHIFTS) - 1
        for number in range(len(SHIFTS)):
            grouped = wiring.group(f"Ranks{number}", *ranks)
            find = FindLast(job, number)
            lasts = wiring.apply(find, grouped, Shuffle.LASTS + number, name=f"FindLast{number}")
            grouped = wiring.group(f"Last{number}", *lasts)
            if number < last:
                step = CountRanks(job, number + 1)
                name = f"CountRanks{number + 1}"
                ranks = wiring.apply(step, grouped, Shuffle.RANKS + number + 1, name=name)
        wiring.apply(WriteBest(job), grouped)
