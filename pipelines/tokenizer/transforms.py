"""The Beam transforms of train_tokenizer: blocks to counts of bundles to one histogram.

Elements are tables, the counts of a bundle for each bucket of words, never single words. The work
is done by functions of `word_counter` and `histogram`.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from textmill.pipelines.readers.sources import Block
from textmill.pipelines.runners.console import Journal
from textmill.pipelines.runners.shuffle import DeliveryReport, count_and_hash
from textmill.pipelines.runners.steps import BlockStep, spread_blocks
from textmill.pipelines.tokenizer import histogram
from textmill.pipelines.tokenizer.adding import READ_KEY, SAMPLE_KEY, add_up, write_files
from textmill.pipelines.tokenizer.fertility import GroupSample
from textmill.pipelines.tokenizer.output import (
    CountJob,
    Read,
)
from textmill.pipelines.tokenizer.word_counter import BUCKETS, WordCounter
from textmill.pipelines.user_filter import choose_documents


class CountBlocks(BlockStep[CountJob]):
    """Counts the words of a bundle's blocks: (key, counts of a bucket, a sample or a report)."""

    def start_bundle(self) -> None:
        """Starts empty counts and an empty report for this bundle."""
        self._counts = WordCounter()
        self._sample = GroupSample()
        self._read = [Read()]

    def process(self, block: Block) -> None:
        """Reads a block and counts its words."""
        job = self._job
        pieces = (
            (group, choose_documents(job.filter, documents))
            for group, of_group in job.groups.split(block)
            for documents in self.read(of_group)
        )
        for group, chosen in pieces:
            columns, text = chosen.documents.columns, chosen.documents.text
            counts = {
                "documents": len(text),
                "bytes": histogram.array_bytes(text),
                "normalized_bytes": self._counts.count(text, job.cutting),
                "dropped": chosen.dropped,
            }
            self._read.append(Read.of(chosen.documents, **counts))
            self._sample.add(columns[0], group if len(columns.schema) == 1 else columns[1])
        self._read.append(Read(deliveries=DeliveryReport(blocks=(block.index,))))

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Emits the counts of the bundle, its sample, and then its report."""
        tables = ((bucket, histogram.to_bytes(t)) for bucket, t in self._counts.buckets())
        for keyed in chain(tables, [(SAMPLE_KEY, self._sample.to_bytes())]):
            self._read.append(Read(deliveries=DeliveryReport(sent=count_and_hash([keyed]))))
            yield GlobalWindows.windowed_value(keyed)
        yield GlobalWindows.windowed_value((READ_KEY, Read.sum(self._read)))
        del self._counts, self._sample, self._read


def _add_up(keyed: tuple[int, Iterable[Any]], job: CountJob) -> tuple[int, Any]:
    """`add_up`, with a report of its progress."""
    with Journal(job.local).phase("adding up words", BUCKETS + 2):
        return add_up(keyed)


class WriteHistogram(beam.DoFn):
    """Writes the files of the staging directory from all counts and reports."""

    def __init__(self, job: CountJob):
        self._job = job

    def process(self, everything: tuple[int, Iterable[tuple[int, Read, bytes]]]) -> Iterator[str]:
        """Checks that nothing was lost and that documents are left; writes the files."""
        with Journal(self._job.local).phase("writing the histogram"):
            yield from write_files(everything[1], self._job)


class CountWords(beam.PTransform):
    """Counts the words of the blocks in the staging directory; writes the histogram there."""

    def __init__(self, job: CountJob):
        super().__init__()
        self._job = job

    def expand(self, pipeline: beam.Pipeline) -> PCollection[str]:
        """Wires the functions together.

        Counts and reports are one collection, since each grouping takes additional time.
        """
        return (
            spread_blocks(pipeline, self._job.staging)
            | "Count" >> beam.ParDo(CountBlocks(self._job)).with_output_types(tuple[int, Any])
            | "Meet" >> beam.GroupByKey()
            | "Add" >> beam.Map(_add_up, self._job).with_output_types(tuple[int, Any])
            | "Gather" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(WriteHistogram(self._job))
        )
