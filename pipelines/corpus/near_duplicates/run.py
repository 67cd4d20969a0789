"""What find_duplicates does once its command line is read: finds the result, or makes it."""

import os
import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.filesize import decimal
from rich.table import Table

from pipelines.corpus.near_duplicates.job import PASSES, FindJob, count_partitions
from pipelines.corpus.near_duplicates.options import FindOptions
from pipelines.corpus.near_duplicates.result import (
    Files,
    Publishing,
    Result,
    find_result,
    read_result,
)
from pipelines.corpus.targets.prepare import prepare_filters
from pipelines.readers.sources import Block, has_blocks, plan_blocks
from pipelines.runners.block_run import BlockRun
from pipelines.runners.console import Console
from pipelines.runners.launch import choose_runner
from pipelines.writers.output_directory import (
    FOUND,
    refuse_others,
    refuse_own_inputs,
)
from pipelines.writers.staging import Staging, find_or_make
from schemas.commands.flag_file import config_bytes
from schemas.commands.terminal import number_of
from schemas.drops import REFUSED, describe_dropped

if TYPE_CHECKING:
    import apache_beam as beam

_console = Console(soft_wrap=True)


def find_or_tell(options: FindOptions, beam_arguments: list[str]) -> None:
    """Finds near-duplicates, or tells what was found; with --dry_run it only prints the plan.

    Raises:
      UsageError: the inputs or the output directory cannot be used so.
      DataError: the inputs are damaged, or there is nothing in them.
    """
    began = time.monotonic()
    refuse_others(options.output, FOUND)
    blocks = plan_blocks(options.source())
    refuse_own_inputs(options.output, (part.path for block in blocks for part in block.parts))
    total_bytes = PASSES * sum(block.bytes for block in blocks)
    beam_arguments, how = choose_runner(beam_arguments, total_bytes)
    if options.dry_run:
        _print_plan(options, blocks, how)
        return
    source, filters, exchange = options.source(), options.filters, options.exchange
    run = BlockRun(
        "find_duplicates", source, filters, blocks, beam_arguments, how, exchange, PASSES
    )

    def find() -> Result | None:
        if options.overwrite:
            return None
        return find_result(options.output, options.parameters(), blocks)

    found = find_or_make(options.output, find, lambda staging: _find(options, run, staging))
    if found is not None:
        _console.print(f"{options.output} holds this very result already: nothing to do")
        _print_summary(found)
    else:
        _print_summary(read_result(options.output), seconds=time.monotonic() - began)


def _find(options: FindOptions, run: BlockRun, staging: Staging) -> None:
    """Runs the pipeline, whose last step publishes the result."""
    _console.print(run.facts)
    run.prepare(staging, _console.print)
    run = prepare_filters(run, staging, _console.print)
    # Publishing removes the folder.
    run.execute(
        wire(options, run, staging), staging, is_done=lambda: not has_blocks(staging.folder)
    )


def wire(
    options: FindOptions, run: BlockRun, staging: Staging
) -> "Callable[[beam.Pipeline], None]":
    """Gives what adds the transforms to a pipeline."""

    def build(pipeline: "beam.Pipeline") -> None:
        # Imports Beam, which takes a second.
        from pipelines.corpus.near_duplicates.transforms import FindDuplicates

        rule = options.near.rule()
        assert rule is not None  # the options refuse others
        job = run.job(
            FindJob,
            staging,
            rule=rule,
            placing=Files(options.num_files),
            partitions=count_partitions(run.total_bytes),
        )
        publishing = Publishing(
            output=options.output,
            staging=staging.folder,
            run=staging.run,
            parameters=options.parameters(),
            config=config_bytes("pipelines.find_duplicates", options),
            max_rejects=options.max_rejects,
            blocks=len(run.blocks),
            files=options.num_files,
        )
        _ = pipeline | FindDuplicates(job, publishing)

    return build


def _print_plan(options: FindOptions, blocks: list[Block], how: str) -> None:
    rule = options.near.rule()
    assert rule is not None  # the options refuse others
    files = {part.path: part.size for block in blocks for part in block.parts}
    size = sum(files.values())
    facts = {
        "inputs": f"{number_of(len(files), 'file')}, {decimal(size)}, "
        f"{number_of(len(blocks), 'block')}; read {PASSES} times",
        **rule.facts(),
        "partitions": f"{count_partitions(size):,}",
        "runs": how,
        "output holds": "what another run found: see whether this one is refused, or --overwrite"
        if os.path.exists(os.path.join(options.output, FOUND))
        else "nothing: the result is made",
    }
    _print_table(facts, "plan (nothing was written)")


def _print_summary(result: Result, *, seconds: float | None = None) -> None:
    found = result.found
    facts = {
        "documents": f"{found.documents_read:,} read, {found.distinct:,} different ones compared",
        "duplicates": f"{found.exact_duplicates:,} equal to another",
        "near duplicates": f"{found.near_duplicates:,} to be removed, for "
        f"{number_of(sum(found.clusters.values()), 'that stays', 'that stay')}",
        **describe_dropped(found.documents_rejected, (REFUSED,)),
        "pairs": f"{found.pairs_verified:,} near, {found.pairs_refuted:,} met and are not",
        "clusters": ", ".join(f"{number:,} of {size}" for size, number in found.clusters.items())
        or "none",
    }
    if found.uncompared:
        facts["uncompared"] = f"{found.uncompared:,} members of large buckets"
    if seconds is not None:
        facts["took"] = f"{seconds:.1f} s"
    _print_table(facts | {"lies in": result.directory})
    _console.print(
        "take it: python -m pipelines.build_shards "
        f"--near_duplicates={shlex.quote(result.directory)} ..."
    )


def _print_table(facts: dict[str, str], title: str | None = None) -> None:
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, value)
    _console.print(table)
