"""The Beam wiring that finds target n-grams in too many documents, which are common language.

Blocks -> holders of n-grams, by bucket of n-grams -> common n-grams.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from textmill.pipelines.corpus.decontamination.finders import (
    COMMON,
    NO_HOLDERS,
    add_holders,
    find_common,
    find_holders,
    load_finder,
)
from textmill.pipelines.corpus.decontamination.job import GramJob
from textmill.pipelines.corpus.filter_documents import load_filters
from textmill.pipelines.readers.sources import Block, read_blocks
from textmill.pipelines.runners.block_run import ALL
from textmill.pipelines.runners.shuffle import (
    NO_VALUES,
    DeliveryReport,
    add_tallies,
    check_deliveries,
    count_and_hash,
)
from textmill.pipelines.runners.steps import BlockStep, spread_blocks
from textmill.schemas.files.store import write_file

_BUCKETS = 64
_DELIVERED = _BUCKETS  # the key of deliveries
_Counted = tuple[DeliveryReport, np.ndarray]  # and the common n-grams of a bucket


class FindGrams(BlockStep[GramJob]):
    """Blocks of a bundle -> (bucket, its n-grams and their holders), and deliveries."""

    def setup(self) -> None:
        """Loads the n-grams, and models and lists of rules."""
        super().setup()
        self._filters = load_filters(self._job.filters)
        self._finder = load_finder(self._job.index)

    def start_bundle(self) -> None:
        """Clears the n-grams and blocks of the bundle."""
        self._holders = NO_HOLDERS
        self._blocks: list[int] = []

    def process(self, block: Block) -> None:
        """Finds the n-grams in the documents of a block."""
        job = self._job
        for documents in self.read(block):
            filtered = self._filters.apply(documents)
            holders = find_holders(self._finder, filtered.documents.columns["text"])
            self._holders = add_holders([self._holders, holders], job.limit)
        self._blocks.append(block.index)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yields the holders of the bundle by bucket, and its deliveries."""
        bucket = self._holders[:, 0] % np.uint64(_BUCKETS)
        holders = [(n, self._holders[bucket == n].tobytes()) for n in np.unique(bucket).tolist()]
        deliveries = DeliveryReport(tuple(self._blocks), sent=count_and_hash(holders))
        for keyed in [*holders, (_DELIVERED, deliveries)]:
            yield GlobalWindows.windowed_value(keyed)
        del self._holders, self._blocks


def add_up(keyed: tuple[int, Iterable[Any]], limit: int) -> tuple[int, _Counted]:
    """Adds up the deliveries of bundles, or finds the common n-grams of a bucket."""
    key, parts = keyed
    if key == _DELIVERED:
        return ALL, (DeliveryReport.sum(parts), np.zeros(0, np.int64))
    received, holders = [NO_VALUES], NO_HOLDERS
    for part in parts:
        received.append(count_and_hash([(key, part)]))
        holders = add_holders([holders, np.frombuffer(part, np.uint64).reshape(-1, 2)], limit)
    return ALL, (DeliveryReport(received=add_tallies(received)), find_common(holders, limit))


class WriteCommon(beam.DoFn):
    """The results of all buckets -> the file of common n-grams."""

    def __init__(self, job: GramJob):
        self._job = job

    def process(self, everything: tuple[int, Iterable[_Counted]]) -> Iterator[str]:
        """Checks that nothing was lost, and writes the file."""
        job, counted = self._job, list(everything[1])
        check_deliveries(
            DeliveryReport.sum(deliveries for deliveries, _ in counted),
            lambda: read_blocks(job.staging),
            job.blocks,
            lambda key: f"bucket {key} of the n-grams",
        )
        path = os.path.join(job.staging, COMMON)
        write_file(path, np.sort(np.concatenate([common for _, common in counted])).tobytes())
        yield path


class CountGrams(beam.PTransform):
    """Blocks in the staging folder -> the staged file of common n-grams."""

    def __init__(self, job: GramJob):
        super().__init__()
        self._job = job

    def expand(self, pipeline: beam.Pipeline) -> PCollection[str]:
        """Wires the steps."""
        return (
            spread_blocks(pipeline, self._job.staging)
            | "Find" >> beam.ParDo(FindGrams(self._job)).with_output_types(tuple[int, Any])
            | "Meet" >> beam.GroupByKey()
            | "Add" >> beam.Map(add_up, self._job.limit).with_output_types(tuple[int, Any])
            | "Gather" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(WriteCommon(self._job))
        )
