"""The Beam steps that every command begins with: the blocks of its plan, and their documents."""

import gc
from collections.abc import Iterator
from typing import Any, Generic

import apache_beam as beam

from pipelines.filters.filter_documents import Filtered, load_filters
from pipelines.readers.sources import Block, read_blocks
from pipelines.runners.block_run import J, read_filtered
from pipelines.runners.launch import end_with_launcher, is_worker_process
from pipelines.runners.progress import Journal
from pipelines.writers.staging import check_turn


def spread_blocks(pipeline: beam.Pipeline, staging: str) -> Any:  # a PCollection[Block]
    """The blocks in a staging folder, wherever a worker is free."""
    return (
        pipeline
        | "Plan" >> beam.Create([staging], reshuffle=False)
        | "Blocks" >> beam.FlatMap(read_blocks)
        | "Spread" >> beam.Reshuffle()
    )


class BlockStep(beam.DoFn, Generic[J]):
    """A step of a worker: it reads blocks, or what others made of them."""

    def __init__(self, job: J):
        self._job = job

    def setup(self) -> None:
        """Opens the journal of the progress display, and loads what filters need, once a worker."""
        end_with_launcher()
        self._journal = Journal(self._job.local)
        load_filters(self._job.filters, self._job.source.roles)

    def teardown(self) -> None:
        """Lets a worker process end without a search for garbage in all modules: 0.3 s."""
        if is_worker_process():
            gc.freeze()

    def read(self, block: Block) -> Iterator[Filtered]:
        """A block's documents in pieces, as filters leave them; refuses where another run began."""
        check_turn(self._job.staging, self._job.run)
        for filtered in read_filtered(block, self._job):
            yield filtered
            self._journal.add(bytes_read=filtered.documents.stored_bytes)
