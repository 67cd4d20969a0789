"""The Beam transforms of train_tokenizer: blocks to counts of bundles to one histogram.

Elements are tables, the counts of a bundle for each bucket of words, never single words. The work
is done by functions of `word_counter` and `histogram`.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from textmill.pipelines.readers.sources import Block, read_blocks
from textmill.pipelines.runners.block_run import ALL
from textmill.pipelines.runners.console import Journal
from textmill.pipelines.runners.shuffle import Deliveries, add_tallies, check_deliveries, tally
from textmill.pipelines.runners.steps import BlockStep, spread_blocks
from textmill.pipelines.tokenizer import histogram
from textmill.pipelines.tokenizer.fertility import GroupSample, add_samples
from textmill.pipelines.tokenizer.output import (
    HISTOGRAM,
    READ,
    SAMPLE,
    CountJob,
    Read,
    check_read,
    text_of,
)
from textmill.pipelines.tokenizer.word_counter import BUCKETS, WordCounter, add_counts
from textmill.pipelines.user_filter import choose_documents
from textmill.pipelines.writers.rejects import rejects_file
from textmill.pipelines.writers.staging import check_turn
from textmill.schemas.files.store import write_file
from textmill.schemas.typed_json import to_json

_READ = -1  # the key of reports; keys from 0 to BUCKETS - 1 are buckets of words
_SAMPLE = BUCKETS  # the key of samples


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
        self._read.append(Read(deliveries=Deliveries(blocks=(block.index,))))

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Emits the counts of the bundle, its sample, and then its report."""
        tables = ((bucket, histogram.to_bytes(t)) for bucket, t in self._counts.buckets())
        for keyed in chain(tables, [(_SAMPLE, self._sample.to_bytes())]):
            self._read.append(Read(deliveries=Deliveries(sent=tally([keyed]))))
            yield GlobalWindows.windowed_value(keyed)
        yield GlobalWindows.windowed_value((_READ, Read.sum(self._read)))
        del self._counts, self._sample, self._read


def add_up(keyed: tuple[int, Iterable[Any]]) -> tuple[int, tuple[int, Read, bytes]]:
    """Adds up the values of a key: reports, samples or tables; counts what was received."""
    key, parts = keyed
    if key == _READ:
        return ALL, (key, Read.sum(parts), b"")
    received: list[np.ndarray] = []

    def tallied() -> Iterator[bytes]:
        for part in parts:
            received.append(tally([(key, part)]))
            yield part

    if key == _SAMPLE:
        total = add_samples(tallied())
    else:
        total = histogram.to_bytes(add_counts(map(histogram.from_bytes, tallied())))
    return ALL, (key, Read(deliveries=Deliveries(received=add_tallies(received))), total)


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
            yield from self._write(everything[1])

    def _write(self, parts: Iterable[tuple[int, Read, bytes]]) -> Iterator[str]:
        keys, reads, totals = zip(*parts, strict=True)
        read, tables = Read.sum(reads), dict(zip(keys, totals, strict=True))
        sample = tables.pop(_SAMPLE, b"")
        check_deliveries(
            read.deliveries,
            lambda: read_blocks(self._job.staging),
            self._job.blocks,
            lambda key: "the sample" if key == _SAMPLE else f"bucket {key} of the words",
        )
        check_read(read, self._job.max_rejects)
        check_turn(self._job.staging, self._job.run, publishes=True)
        counts = pa.concat_tables(histogram.from_bytes(table) for table in tables.values() if table)
        origin = histogram.Origin(
            self._job.cutting, read.documents, read.bytes, read.normalized_bytes
        )
        sorted_counts = histogram.Histogram(counts.sort_by("word"), origin)
        files = {
            READ: to_json(text_of(read)),
            HISTOGRAM: histogram.to_parquet(sorted_counts),
            SAMPLE: sample,
            **rejects_file(read.rejects),
        }
        for name, content in files.items():
            path = os.path.join(self._job.staging, name)
            write_file(path, content)
            yield path


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
