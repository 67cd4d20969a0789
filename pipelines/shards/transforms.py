"""The Beam steps of build_shards: blocks -> example batches -> shards -> a published dataset.

One GroupByKey carries the data. The code on either side of it does not import Beam.
"""

import time
from collections.abc import Iterable, Iterator

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.core import CallableWrapperCombineFn

from textmill.pipelines.readers.sources import Block
from textmill.pipelines.rows.example_batch import join, keep
from textmill.pipelines.runners.block_run import ALL
from textmill.pipelines.runners.console import Journal
from textmill.pipelines.runners.shuffle import DeliveryReport, receive
from textmill.pipelines.runners.steps import (
    BlockStep,
    SendingStep,
    Wiring,
    count,
    count_read,
    count_shard,
    mark_keys,
    spread_blocks,
    with_memory,
)
from textmill.pipelines.shards.choose import choose
from textmill.pipelines.shards.job import DatasetReport, Job
from textmill.pipelines.shards.publish import publish_dataset
from textmill.pipelines.shards.steps import RowMaker, evaluation_of, route_examples
from textmill.pipelines.shards.write import write_shard
from textmill.pipelines.writers.scratch import Pointer
from textmill.pipelines.writers.staging import check_turn
from textmill.schemas.format.drops import total_counts
from textmill.schemas.format.statistics import Statistics

_ROUTED = 0  # the shuffle of example batches


def _add_up() -> beam.PTransform:
    # Few reports at a time: each has a count for each id of the vocabulary, half a megabyte.
    return beam.CombinePerKey(CallableWrapperCombineFn(DatasetReport.sum, 10))


class RouteBlock(BlockStep[Job], SendingStep[Job]):
    """Blocks -> example batches, keyed by shard."""

    REPORT = DatasetReport

    def setup(self) -> None:
        """Loads the tokenizer too."""
        super().setup()
        self._tokenizer = self._job.tokenizer()

    def process(self, block: Block) -> Iterator:
        """Reads, tokenizes and routes."""
        job = self._job
        for documents in self.read(block):
            chosen, forgotten = choose(documents, job.task, job.filter, job.listed())
            routed = route_examples(
                chosen.documents, job.task, self._tokenizer, job.schema, block.split
            )
            self.put(_ROUTED, ((route, examples.batch) for route, examples in routed.batches))
            yield from self.send()
            statistics = Statistics(
                documents_read=chosen.read,
                dropped=total_counts(chosen.dropped, routed.dropped),
                source_bytes=documents.source_bytes,
            )
            count_read(statistics)
            counts = {"statistics": statistics, "forgotten": forgotten}
            self.add(DatasetReport.of(documents, refused=routed.rejects, **counts))
        self.report(deliveries=DeliveryReport(blocks=(block.index,)))


class WriteShard(beam.DoFn):
    """(route, its example batches) -> a staged shard and its report."""

    def __init__(self, job: Job):
        self._job = job

    def setup(self) -> None:
        """Loads the tokenizer and makes the function that finishes rows, once per worker."""
        job = self._job
        finish = job.task.finish(job.schema, job.tokenizer())
        self._maker = RowMaker(job.schema, job.task, finish)
        self._journal = Journal(job.local)

    def process(self, routed: tuple[int, Iterable[bytes | Pointer]]) -> Iterator:
        """Joins the batches of a shard and writes it."""
        began = time.monotonic()
        route, values = routed
        job = self._job
        check_turn(job.staging, job.run)
        streams, received = receive(route, values)
        key_bytes, examples = sum(map(len, streams)), join(streams)
        del streams
        with self._journal.phase("packing and writing shards", job.keys):
            kept = keep(examples) if examples is not None else None
            name = job.routes.names()[route]
            split = job.routes.split_names()[route]
            written = write_shard(job, self._maker, name, split, kept)
        if written.is_kept:
            count("shards_kept", 1)
        statistics, files = written.statistics, written.files
        self._journal.add(rows=statistics.rows)
        count_shard(
            statistics,
            key_bytes=key_bytes,
            file_bytes=sum(file.bytes for file in files),
            seconds=time.monotonic() - began,
        )
        report = DatasetReport(
            statistics=Statistics(shards={name: statistics}),
            files=files,
            evaluation=evaluation_of(kept) if kept else (),
            token_counts=written.token_counts,
            deliveries=DeliveryReport(received=received),
        )
        yield ALL, report


def _publish(keyed: tuple[int, DatasetReport], job: Job) -> None:
    with Journal(job.local).phase("writing the report, and publishing"):
        publish_dataset(keyed[1], job)


class BuildShards(beam.PTransform):
    """Blocks in the staging folder -> a published dataset."""

    def __init__(self, job: Job):
        super().__init__()
        self._job = job

    def expand(self, input_or_inputs: beam.Pipeline) -> PCollection:
        """Connects the steps."""
        job, pipeline = self._job, input_or_inputs
        wiring = Wiring(job.shuffle_by)
        write = beam.ParDo(WriteShard(job)).with_output_types(tuple[int, DatasetReport])
        blocks = spread_blocks(pipeline, job.staging)
        [batches] = wiring.apply(RouteBlock(job), blocks, _ROUTED, name="Route")
        every_route = mark_keys(pipeline, len(job.routes.names()), job.shuffle_by)
        shard_reports = (
            (batches, every_route)
            | "Meet" >> beam.Flatten()
            | "Group" >> beam.GroupByKey()
            | "Write" >> with_memory(write, job.memory)
        )
        return (
            # Reports on shards are large: the workers add them up.
            (*wiring.reports, shard_reports | "AddShards" >> _add_up())
            | "AllReports" >> beam.Flatten()
            | "AddUp" >> _add_up()
            | "Publish" >> beam.Map(_publish, job)
        )
