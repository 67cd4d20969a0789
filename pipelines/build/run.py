"""What build_shards does once its command line is read: finds the set built, or builds it."""

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipelines.build.estimate import Making, estimate
from pipelines.build.job import Job, share_tokenizer
from pipelines.build.near_marks import Marks
from pipelines.build.options import BuildOptions
from pipelines.build.plan import Plan
from pipelines.build.summary import print_plan, print_summary
from pipelines.configs.config_file import config_bytes
from pipelines.decontamination.finders import put_index
from pipelines.duplicates.job import PASSES, FindJob, count_partitions
from pipelines.duplicates.result import read_result, refuse_other_texts
from pipelines.encoding.tokenizer import LoadedTokenizer, load_tokenizer
from pipelines.host.console import Console
from pipelines.readers.block_list import has_blocks, write_blocks
from pipelines.readers.label_values import find_labels
from pipelines.readers.source import Source
from pipelines.readers.sources import Block
from pipelines.readers.spread import CLUSTER_WORKERS, uneven, worker_count
from pipelines.rows.routing import Routes
from pipelines.runners.deliveries import LOST_END
from pipelines.runners.launch import choose_runner, is_local, with_beam
from pipelines.storage.store import is_url, write_file
from pipelines.targets.prepare import Counting, find_targets, prepare_filters, with_index
from pipelines.writers.finished import count_finished, keep_finished
from pipelines.writers.refusals import refuse_others, refuse_own_inputs
from pipelines.writers.reuse import find_finished_set, set_of
from pipelines.writers.staging import Staging, stage
from schemas.errors import DataError
from schemas.sidecar import Schema, SetInfo
from schemas.terminal import number_of

if TYPE_CHECKING:
    import apache_beam as beam

_console = Console(soft_wrap=True)


@dataclass(frozen=True)
class Run:
    """All that is known before the pipeline starts.

    Attributes:
      options: of the command, with what the task had to learn of the inputs.
      schema: of the set.
      tokenizer: of the set.
      blocks: of all inputs.
      beam_arguments: the command's other flags, with a runner.
      how: the choice of the runner, in words.
    """

    options: BuildOptions
    schema: Schema
    tokenizer: LoadedTokenizer
    blocks: list[Block]
    beam_arguments: list[str]
    how: str

    @property
    def is_local(self) -> bool:
        """Whether all workers are on this machine."""
        return is_local(self.beam_arguments)

    @property
    def exchange(self) -> str:
        """What carries example batches to shards: files or runner."""
        if self.options.exchange != "auto":
            return self.options.exchange
        return "files" if self.is_local else "runner"

    @property
    def source(self) -> Source:
        """How inputs are read."""
        return next(iter(self.options.sources().values()))

    @property
    def total_bytes(self) -> int:
        """Bytes of all inputs, as stored."""
        return sum(block.bytes for block in self.blocks)


def build_or_find(options: BuildOptions, beam_arguments: list[str]) -> None:
    """Builds the set, or finds it built, and says so; with --dry_run it only prints the plan.

    Raises:
      UsageError: the inputs, the tokenizer or the output directory cannot be used so.
      DataError: the inputs are damaged, or there is nothing in them.
    """
    began = time.monotonic()
    refuse_others(options.output)
    blocks = options.blocks()
    refuse_own_inputs(options.output, (part.path for block in blocks for part in block.parts))
    if options.near.directory:
        refuse_other_texts(read_result(options.near.directory), options.text_parameters(), blocks)
    options = complete(options, blocks, _console.print)
    tokenizer = load_tokenizer(options.tokenizer)
    schema = options.schema(tokenizer, bytes_by_split(blocks))
    beam_arguments, how = choose_runner(beam_arguments, sum(block.bytes for block in blocks))
    run = Run(options, schema, tokenizer, blocks, beam_arguments, how)
    if options.dry_run:
        print_plan(_plan(run), _console)
        return
    found, seconds = _find_finished(run), None
    try:
        if found is None:
            with stage(options.output, resume=keep_finished if options.resume else None) as staging:
                refuse_others(options.output)  # again: what may have been published until now
                found = _find_finished(run)
                if found is None:
                    _build(run, staging)
                    seconds = time.monotonic() - began
    except KeyboardInterrupt as stop:
        kept = "its finished shards are kept, and the same command goes on with them"
        lost = "nothing is kept; run it with --resume to keep finished shards"
        raise KeyboardInterrupt(kept if options.resume else lost) from stop
    if found is not None:
        _console.print(
            f"{options.output} holds this very set already (fingerprint "
            f"{schema.fingerprint[:12]}): nothing to do"
        )
    print_summary(found or set_of(options.output), _console, seconds=seconds)


def _find_finished(run: Run) -> SetInfo | None:
    """The set that is asked for, if it is there; see `find_finished_set`."""
    options = run.options
    if options.overwrite:
        return None
    return find_finished_set(options.output, run.schema, run.blocks, explain=options.explains)


def complete(
    options: BuildOptions, blocks: list[Block], say: Callable[[str], None]
) -> BuildOptions:
    """The options, with what the task has to know of the inputs before the run.

    Args:
      options: of the command.
      blocks: all inputs.
      say: prints a line, where they have to be read for it.
    """
    source = next(iter(options.sources().values()))
    settings = options.settings.complete(lambda role: find_labels(blocks, source, role, say))
    return replace(options, settings=settings)


def bytes_by_split(blocks: list[Block]) -> Counter[str]:
    """Bytes of the inputs by the split that they are given for; "" where their hash decides."""
    bytes_of: Counter[str] = Counter()
    for block in blocks:
        bytes_of[block.split] += block.bytes
    return bytes_of


def _build(run: Run, staging: Staging) -> None:
    """Runs the pipeline, whose last step publishes the set."""
    local, folder = run.is_local, staging.folder
    _console.print(
        f"{run.total_bytes / 1e6:,.1f} MB in {number_of(len(run.blocks), 'block')}, {run.how}; "
        f"shuffle by {run.exchange}; ids by {run.tokenizer.encoded_by}"
    )
    workers = worker_count(run.beam_arguments)[0] if local else CLUSTER_WORKERS
    if waiting := uneven(run.blocks, workers):
        _console.print(f"warning: {waiting}", style="yellow")
    if finished := count_finished(folder):
        _console.print(f"{finished:,} shards are there that an earlier run finished")
    scratch = staging.scratch(local=local)
    if not is_url(scratch):
        os.mkdir(scratch)
    write_file(os.path.join(folder, "tokenizer.json"), run.tokenizer.json)
    write_blocks(folder, run.blocks)
    counting = Counting(run.source, run.blocks, run.beam_arguments, staging)
    filters = prepare_filters(run.options.filters, counting, _console.print)
    run = replace(run, options=replace(run.options, filters=filters))
    with_beam().run_pipeline(
        wire(run, staging),
        run.beam_arguments,
        local=staging.local,
        total_bytes=run.total_bytes * (1 + PASSES * (run.options.near.rule() is not None)),
        label="build_shards",
        filter_name=run.options.filters.filter,
        # Where nobody sees what workers say: else their journal tells.
        count_finished=(lambda: count_finished(folder)) if is_url(folder) and not local else None,
        is_published=lambda: not has_blocks(folder),
    )
    if has_blocks(folder):  # publishing removes the folder
        raise DataError(LOST_END)


def wire(run: Run, staging: Staging) -> "Callable[[beam.Pipeline], None]":
    """Gives what adds the transforms to a pipeline."""

    def build(pipeline: "beam.Pipeline") -> None:
        # Imports Beam, which takes a second.
        from pipelines.build.transforms import BuildShards

        options = run.options
        share_tokenizer(run.tokenizer)
        job = Job(
            schema=run.schema,
            task=options.settings,
            source=run.source,
            filters=options.filters,
            output=options.output,
            local=staging.local,
            scratch=staging.scratch(local=run.is_local),
            run=staging.run,
            exchange=run.exchange,
            max_rejects=options.max_rejects,
            config=config_bytes("build_shards", options),
            blocks=len(run.blocks),
            near=_find_job(run, staging),
            found=options.near.directory,
            explain=options.explains,
        )
        _ = pipeline | BuildShards(job)

    return build


def _find_job(run: Run, staging: Staging) -> FindJob | None:
    """How near-duplicates are found, if they are to be."""
    options, schema = run.options, run.schema
    rule, routes = options.near.rule(), Routes(schema.splits, schema.shards)
    if rule is None:
        return None
    return FindJob(
        source=next(iter(options.sources().values())),
        # What they drop is kept, and refused, by those who tokenize.
        filters=replace(options.filters, keep_rejects=False),
        rule=rule,
        placing=Marks(routes, bool(options.given_splits())),
        staging=staging.folder,
        local=staging.local,
        scratch=staging.scratch(local=run.is_local),
        run=staging.run,
        exchange=run.exchange,
        partitions=count_partitions(run.total_bytes),
        blocks=len(run.blocks),
        reads=1,
        routes=None if options.given_splits() else routes,
    )


def _plan(run: Run) -> Plan:
    """Estimates from a sample of the inputs what the run will take."""
    options = run.options
    filters = options.filters
    if filters.decontamination.decontaminate:
        index = find_targets(filters.decontamination, _console.print)
        filters = with_index(filters, put_index(index, None))
    making = Making(run.schema, options.settings, run.source, filters, run.tokenizer)
    found = estimate(making, run.blocks)
    began = time.monotonic()
    with_beam()
    workers, processes = worker_count(run.beam_arguments)
    return Plan(
        output=options.output,
        schema=run.schema,
        blocks=run.blocks,
        encoded_by=run.tokenizer.encoded_by,
        estimate=found,
        how=run.how,
        workers=workers if run.is_local else 0,
        processes=processes,
        by_files=run.exchange == "files",
        import_seconds=time.monotonic() - began,
        overwrite=options.overwrite,
        near=_near_facts(options),
    )


def _near_facts(options: BuildOptions) -> dict[str, str]:
    """What the plan says of near-duplicates."""
    rule = options.near.rule()
    if rule:
        text = f"inputs are read {1 + PASSES} times; the figures here are of documents before that"
        return {**rule.facts(), "near duplicates": f"looked for: {text}"}
    if not options.near.directory:
        return {}
    found = read_result(options.near.directory).found
    return {"near duplicates": f"{found.near_duplicates:,} documents are known to be removed"}
