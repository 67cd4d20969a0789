"""The Beam wiring of build_shards: blocks -> sub-blocks -> shards -> a published set.

One GroupByKey carries the data. What happens on either side of it are the pure files' functions.
"""

import gc
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.transforms.core import CallableWrapperCombineFn
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from pipelines.build import shuffle
from pipelines.build.make_shard import RowMaker, evaluation_of
from pipelines.build.route_examples import Milled, mill
from pipelines.configs.config_file import CONFIG
from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.filters.filters import Filtered, Filters, load_filter
from pipelines.inspection.report.content import SetContent
from pipelines.inspection.report.page import report_file
from pipelines.readers.block_list import read_blocks
from pipelines.readers.documents import Reject
from pipelines.readers.sources import Block, Source, file_digests, read_block
from pipelines.rows.evaluation import EvaluationLine, evaluation_file
from pipelines.rows.example_batch import join
from pipelines.rows.repeats import Kept, keep
from pipelines.rows.routing import Routes
from pipelines.runners import run_metrics
from pipelines.runners.deliveries import (
    AGAIN,
    Deliveries,
    add_deliveries,
    and_more,
    check_deliveries,
    tally,
)
from pipelines.runners.launch import is_worker_process
from pipelines.runners.progress import Journal
from pipelines.storage import store
from pipelines.storage.scratch import Pointer, load, write_scratch
from pipelines.storage.store import disk_errors, write_file
from pipelines.tasks.task import Task
from pipelines.writers import sinks
from pipelines.writers.finished import examples_hash, find_finished, note_finished
from pipelines.writers.rejects import Stashed, collect, rejects_file, stash
from pipelines.writers.row_sample import sample_rows
from pipelines.writers.staging import STAGING, check_turn
from pipelines.writers.tfds_info import tfds_files
from pipelines.writers.token_counts import (
    NO_COUNTS,
    add_token_counts,
    count_tokens,
    token_counts_file,
)
from schemas.errors import DataError
from schemas.manifest import FORMAT_VERSION, Manifest, ManifestFile
from schemas.sidecar import Inputs, Schema
from schemas.statistics import ShardStatistics, Statistics
from schemas.typed_json import to_json

_ROUTED, _REPORTS = "routed", "reports"
_ALL = 0  # the key of every report
Made = tuple[ShardStatistics, tuple[ManifestFile, ...], np.ndarray]  # counts, files, token counts


@dataclass(frozen=True)
class Job:
    """What every worker needs to know.

    Attributes:
      schema: the contract of the set.
      task: what makes examples and rows.
      source: how inputs are read.
      filters: which documents are kept.
      output: the set's directory; the staging folder lies in it.
      local: a folder of the machine that launched the run, for those who watch it.
      scratch: the folder for what workers hand on to each other.
      run: names the run that waits for this job.
      exchange: files or runner.
      max_rejects: a run with more refused documents fails; below 0 for no limit.
      config: the file that repeats the run.
      blocks: how many the plan has, each of which must be reported.
    """

    schema: Schema
    task: Task
    source: Source
    filters: Filters
    output: str
    local: str
    scratch: str
    run: str
    exchange: str
    max_rejects: int
    config: bytes
    blocks: int

    @property
    def staging(self) -> str:
        """Where files wait to be published."""
        return os.path.join(self.output, STAGING)

    def locate(self, name: str) -> str:
        """Where a file of the set lies: staged, or in place, if this is a retry of publishing."""
        staged = os.path.join(self.staging, name)
        return staged if store.exists(staged) else os.path.join(self.output, name)

    @property
    def routes(self) -> Routes:
        """Where documents go."""
        return Routes(self.schema.splits, self.schema.shards)

    def tokenizer(self) -> LoadedTokenizer:
        """The tokenizer as the set carries it."""
        sha256 = self.schema.tokenizer_sha256
        if sha256 not in _loaded_tokenizers:
            path = self.locate("tokenizer.json")
            tokenizer = LoadedTokenizer.from_json(store.read(path))
            if tokenizer.sha256 != sha256:
                raise DataError(f"{path} is not the tokenizer that the run began with: run again")
            share_tokenizer(tokenizer)
        return _loaded_tokenizers[sha256]


# Parsing one takes 0.4 s and the first encode another 0.5: once a process is enough.
_loaded_tokenizers: dict[str, LoadedTokenizer] = {}


def share_tokenizer(tokenizer: LoadedTokenizer) -> None:
    """Lets workers in this process use a tokenizer that is loaded already."""
    _loaded_tokenizers[tokenizer.sha256] = tokenizer


@dataclass(frozen=True)
class Report:
    """What a bundle of blocks or a shard has to say; reports add up."""

    statistics: Statistics = field(default_factory=Statistics)
    files: tuple[ManifestFile, ...] = ()
    rejects: tuple[Reject, ...] = ()
    digests: tuple[tuple[str, int, int, str], ...] = ()
    evaluation: tuple[EvaluationLine, ...] = ()
    stashed: tuple[Stashed, ...] = ()
    token_counts: np.ndarray = field(default_factory=lambda: NO_COUNTS, compare=False)
    deliveries: Deliveries = field(default_factory=Deliveries)


def add_reports(reports: Iterable[Report]) -> Report:
    """All of them as one, in linear time."""
    reports = list(reports)

    def all_of(name: str) -> tuple:
        return tuple(chain.from_iterable(getattr(report, name) for report in reports))

    return Report(
        Statistics.sum(report.statistics for report in reports),
        all_of("files"),
        all_of("rejects"),
        all_of("digests"),
        all_of("evaluation"),
        all_of("stashed"),
        add_token_counts(report.token_counts for report in reports),
        add_deliveries([report.deliveries for report in reports]),
    )


def _add_up() -> beam.PTransform:
    # Few reports at a time: a shard's has a count for each id of the vocabulary, half a megabyte.
    return beam.CombinePerKey(CallableWrapperCombineFn(add_reports, 10))


class MillBlock(beam.DoFn):
    """Blocks -> (route, sub-block or pointer) for each shard their documents go to, and a report.

    A bundle gives one report when all is sent: what a runner loses of it leaves blocks out.
    """

    def __init__(self, job: Job):
        self._job = job

    def setup(self) -> None:
        """Loads the tokenizer and the user's filter, once a worker."""
        self._tokenizer = self._job.tokenizer()
        self._journal = Journal(self._job.local)
        if self._job.filters.filter:
            load_filter(self._job.filters.filter)

    def teardown(self) -> None:
        """Lets a worker process end without a search for garbage in all modules: 0.3 s."""
        if is_worker_process():
            gc.freeze()

    def start_bundle(self) -> None:
        """Starts an empty buffer and an empty report for this bundle."""
        self._held = shuffle.Held()
        self._reports: list[Report] = []

    def process(self, block: Block) -> Iterator:
        """Reads, tokenizes and routes."""
        job = self._job
        check_turn(job.staging, job.run)
        for piece, documents in enumerate(read_block(block, job.source)):
            filtered = job.filters.apply(documents, job.source.roles)
            documents = filtered.documents
            milled = mill(documents, job.task, self._tokenizer, job.schema, job.routes, block.split)
            self._held.add(milled.sub_blocks)
            if job.exchange == "files" or self._held.bytes > shuffle.HELD_BYTES:
                yield from self._send()
            stashed = stash(filtered.lines, job.scratch, block.index, piece)
            report = _read_report(filtered, milled, stashed)
            run_metrics.count_read(report.statistics)
            self._reports.append(report)
            self._journal.add(bytes_read=documents.stored_bytes)
        self._reports.append(Report(deliveries=Deliveries(blocks=(block.index,))))

    def finish_bundle(self) -> Iterator[WindowedValue | TaggedOutput]:
        """Sends what is held, and then the report of the bundle."""
        for element in self._send():
            yield GlobalWindows.windowed_value(element)
        report = GlobalWindows.windowed_value((_ALL, add_reports(self._reports)))
        yield TaggedOutput(_REPORTS, report)
        del self._held, self._reports

    def _send(self) -> Iterator[tuple[int, bytes | Pointer]]:
        sub_blocks = self._held.take()
        values: list[bytes] | list[Pointer]
        values = [sub_block.to_bytes() for _, sub_block in sub_blocks]
        routes = [route for route, _ in sub_blocks]
        sent = tally(zip(routes, values, strict=True))
        self._reports.append(Report(deliveries=Deliveries(sent=sent)))
        if self._job.exchange == "files" and values:
            scratch = self._job.scratch
            with disk_errors(os.path.join(scratch, "sub-blocks")):
                values = write_scratch(scratch, values)
        yield from zip(routes, values, strict=True)


def _read_report(filtered: Filtered, milled: Milled, stashed: tuple[Stashed, ...]) -> Report:
    documents = filtered.documents
    rejects = (*documents.rejects, *milled.rejects)
    rejected = dict(Counter(reject.reason for reject in rejects)) | filtered.dropped
    for reason, number in (("empty", documents.empty), ("no_tokens", milled.blank)):
        if number:
            rejected[reason] = number
    statistics = Statistics(
        documents_read=documents.read + sum(filtered.dropped.values()),
        documents_rejected=rejected,
        source_bytes=documents.source_bytes,
        documents_guarded=milled.guarded,
    )
    return Report(statistics, (), rejects, documents.digests, stashed=stashed)


class WriteShard(beam.DoFn):
    """(route, its sub-blocks) -> a staged shard and its report."""

    def __init__(self, job: Job):
        self._job = job

    def setup(self) -> None:
        """Makes what finishes rows, once a worker."""
        job = self._job
        finish = job.task.finish(job.schema, job.tokenizer())
        self._maker = RowMaker(job.schema, job.task, finish)
        self._journal = Journal(job.local)

    def process(self, routed: tuple[int, Iterable[bytes | Pointer]]) -> Iterator:
        """Puts the shard together and writes it."""
        began = time.monotonic()
        route, values = routed
        job = self._job
        check_turn(job.staging, job.run)
        kept, key_bytes, received = _gathered(route, values)
        name = job.routes.names()[route]
        statistics, files, token_counts = self._made(name, job.routes.split_names()[route], kept)
        self._journal.add(rows=statistics.rows)
        run_metrics.count_shard(
            statistics,
            key_bytes=key_bytes,
            file_bytes=sum(file.bytes for file in files),
            seconds=time.monotonic() - began,
        )
        report = Report(
            Statistics(shards={name: statistics}),
            files,
            evaluation=evaluation_of(kept) if kept else (),
            token_counts=token_counts,
            deliveries=Deliveries(received=received),
        )
        yield _ALL, report

    def _made(self, name: str, split: str, kept: Kept | None) -> Made:
        """The shard, as an earlier run left it, or made now."""
        staging, schema = self._job.staging, self._job.schema
        made_of = examples_hash(schema, name, kept.examples if kept else None)
        found = find_finished(staging, name, made_of)
        if found:
            finished, token_counts = found
            statistics = finished.statistics
            if kept:  # there may be other copies of the same documents
                dropped = {"duplicates": kept.duplicates, "held_out": kept.held_out}
                statistics = replace(statistics, **dropped)
            run_metrics.count_kept_shard()
            return statistics, finished.files, token_counts
        shard = self._maker.make(kept, split) if kept else None
        files = sinks.write_shard(
            shard.chunks() if shard else (),
            staging,
            name,
            schema.file_formats,
            schema.codec().stride,
        )
        statistics, token_counts = ShardStatistics(), NO_COUNTS
        if shard:
            statistics = shard.statistics
            token_counts = count_tokens(shard.streams(), schema.vocab_size)
        note_finished(staging, name, made_of, statistics, tuple(files), token_counts)
        return statistics, tuple(files), token_counts


def _gathered(route: int, values: Iterable[bytes | Pointer]) -> tuple[Kept | None, int, np.ndarray]:
    """What is left of a shard's examples; of what came for it, which is let go, size and tally."""
    streams = [load(value) for value in values if value]
    received = tally((route, stream) for stream in streams)
    examples = join(streams)
    return None if examples is None else keep(examples), sum(map(len, streams)), received


class Publish(beam.DoFn):
    """The report of the whole run -> sidecars and manifest."""

    def __init__(self, job: Job):
        self._job = job

    def process(self, keyed: tuple[int, Report]) -> Iterator[Manifest]:
        """Checks the equations, writes the sidecars, moves everything into place."""
        _, report = keyed
        job, schema = self._job, self._job.schema
        check_complete(report, job)
        check_report(report, job)
        inputs = file_digests(report.digests)
        contents = {
            "schema.json": to_json(schema),
            "stats.json": to_json(report.statistics.to_dict(schema.row_tokens)),
            "inputs.json": to_json(inputs),
            **tfds_files(schema, report.files, report.statistics),
            **evaluation_file(report.evaluation, ids_differ=job.task.ids_differ),
            **rejects_file(report.rejects),
            **token_counts_file(report.token_counts),
            **report_file(lambda: self._content(report, inputs)),
            CONFIG: job.config,
        }
        for name, content in contents.items():
            write_file(os.path.join(job.staging, name), content)
        contents["tokenizer.json"] = store.read(job.locate("tokenizer.json"))
        sidecars = [
            *collect(report.stashed, job.staging),
            *(
                ManifestFile(name, len(content), sha256(content).hexdigest())
                for name, content in contents.items()
            ),
        ]
        files = sorted((*report.files, *sidecars), key=lambda file: file.path)
        manifest = Manifest(FORMAT_VERSION, schema.fingerprint, tuple(files))
        check_turn(job.staging, job.run, publishes=True)
        sinks.publish(job.output, manifest)
        yield manifest

    def _content(self, report: Report, inputs: Inputs) -> SetContent:
        job = self._job
        with store.workspace(job.staging) as folder:
            samples = sample_rows(
                job.schema,
                report.files,
                lambda file: store.local_copy(sinks.find(job.output, file), folder),
            )
        return SetContent(
            schema=job.schema,
            statistics=report.statistics,
            inputs=inputs,
            files=report.files,
            rejects=report.rejects,
            token_counts=report.token_counts,
            samples=samples,
            tokenizer=job.tokenizer(),
            config=job.config,
        )


def check_complete(report: Report, job: Job) -> None:
    """Refuses to publish where the runner lost something on the way.

    Raises:
      DataError: names the block or the shard.
    """
    names = job.routes.names()
    check_deliveries(
        report.deliveries,
        lambda: read_blocks(job.staging),
        job.blocks,
        lambda route: f"the shard {names[route]}",
    )
    lost = sorted({*names} - {*report.statistics.shards})
    if lost:
        raise DataError(
            f"the runner lost what its workers said of the shard {lost[0]}"
            f"{and_more(lost, 'shards')}: {AGAIN}"
        )


def check_report(report: Report, job: Job) -> None:
    """Refuses to publish what lost a document, kept none, or refused too many.

    Raises:
      DataError: says which.
    """
    statistics = report.statistics
    if 0 <= job.max_rejects < len(report.rejects):
        first = report.rejects[0]
        where = "" if first.offset is None else f" at byte {first.offset:,}"
        raise DataError(
            f"{len(report.rejects):,} documents were refused, more than --max_rejects="
            f"{job.max_rejects:,}; the first is in {first.path}{where}: "
            f"{first.reason}, {first.detail}. Mend the input, or allow more (-1: any number)"
        )
    broken = statistics.broken_equations(job.schema.mask_copies)
    if broken:
        raise DataError("tokens or documents were lost, this is a defect: " + "; ".join(broken))
    if not statistics.total().documents:
        reasons = ", ".join(f"{n:,} {r}" for r, n in statistics.documents_rejected.items())
        raise DataError(
            f"no document is left to write; read: {statistics.documents_read:,} "
            f"({reasons or 'only blank lines'})"
        )


def _empty_sub_blocks(shards: int) -> Iterator[tuple[int, bytes]]:
    """No bytes for each shard."""
    return ((route, b"") for route in range(shards))


class BuildShards(beam.PTransform):
    """Blocks in the staging folder -> a published shard set."""

    def __init__(self, job: Job):
        super().__init__()
        self._job = job

    def expand(self, input_or_inputs: beam.Pipeline) -> PCollection:
        """Wires the pure files together."""
        job, pipeline = self._job, input_or_inputs
        # Types are coders: bytes go through a shuffle as they are, and what meets is coded alike.
        routed = tuple[int, bytes] if job.exchange == "runner" else tuple[int, Any]
        reported = tuple[int, Report]
        milled = (
            pipeline
            | "Plan" >> beam.Create([job.staging], reshuffle=False)
            | "Blocks" >> beam.FlatMap(read_blocks)
            | "Spread" >> beam.Reshuffle()
            | "Mill"
            >> beam.ParDo(MillBlock(job))
            .with_output_types(routed, reports=reported)
            .with_outputs(_REPORTS, main=_ROUTED)
        )
        # Every shard gets a key, so that one without documents is written too. (Keys are made by
        # workers: 65,536 of them would swell the job.)
        every_route = (
            pipeline
            | "Shards" >> beam.Create([len(job.routes.names())], reshuffle=False)
            | "Routes" >> beam.FlatMap(_empty_sub_blocks).with_output_types(routed)
        )
        shard_reports = (
            (milled[_ROUTED], every_route)
            | "Meet" >> beam.Flatten()
            | "Group" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(WriteShard(job)).with_output_types(reported)
        )
        return (
            # Those of shards are large, and are added up where they are made.
            (milled[_REPORTS], shard_reports | "AddShards" >> _add_up())
            | "AllReports" >> beam.Flatten()
            | "AddUp" >> _add_up()
            | "Publish" >> beam.ParDo(Publish(job))
        )
