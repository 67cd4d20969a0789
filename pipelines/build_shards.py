"""Text -> tokenized, packed, masked shards: `python -m pipelines.build_shards --help`."""

import os
import shlex
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.filesize import decimal
from rich.table import Table

from pipelines.build.options import BuildOptions, parse_options
from pipelines.configs.config_file import config_bytes, with_config
from pipelines.filters.filters import is_filters
from pipelines.host.console import Console
from pipelines.runners.launch import (
    check_arguments,
    choose_runner,
    import_beam,
    is_local,
    run_pipeline,
    spare_pandas,
)
from pipelines.runners.runner_check import refuse_bad_runner
from pipelines.tasks.task import task_class
from schemas.errors import DataError, run_entry
from schemas.features import TASKS
from schemas.memory import want_addresses
from schemas.sidecar import Schema, SetInfo

if TYPE_CHECKING:
    import apache_beam as beam

    from pipelines.encoding.tokenizer import LoadedTokenizer
    from pipelines.readers.sources import Block
    from pipelines.writers.staging import Staging

_TRAINERS = {"mlm": "flax_mlm"}
_console = Console(soft_wrap=True)


def main(argv: list[str]) -> None:
    """Parses the command line and builds the set, or finds it built."""
    argv = with_config(
        argv,
        "build_shards",
        _all_flags,
        check_unknown=lambda flags: check_arguments(flags, *_all_flags()),
    )
    options, beam_arguments = parse_options(argv)
    want_addresses(2.4, "build_shards")
    check_arguments(beam_arguments, BuildOptions, type(options.settings))
    spare_pandas(options.filters)
    from pipelines.storage import store_calls

    store_calls.use_options(beam_arguments)
    if options.preflight:
        from pipelines.runners.preflight.command import preflight_shards

        preflight_shards(options, beam_arguments, _wiring)
        return
    refuse_bad_runner(beam_arguments)
    # Not before: --help and a wrong flag are answered without what a run takes.
    from pipelines.encoding.tokenizer import load_tokenizer
    from pipelines.train.output import refuse_tokenizer
    from pipelines.writers.reuse import finished_set, set_of
    from pipelines.writers.staging import refuse_own_inputs, staged

    began = time.monotonic()
    refuse_tokenizer(options.output)
    blocks = options.blocks()
    refuse_own_inputs(options.output, (part.path for block in blocks for part in block.parts))
    options = options.informed(blocks, _console.print)
    bytes_of: Counter[str] = Counter()
    for block in blocks:
        bytes_of[block.split] += block.bytes
    total_bytes = bytes_of.total()
    tokenizer = load_tokenizer(options.tokenizer)
    schema = options.schema(tokenizer, bytes_of)
    beam_arguments, how = choose_runner(beam_arguments, total_bytes)
    if options.dry_run:
        _print_plan(options, schema, tokenizer, blocks, beam_arguments, how)
        return
    if not options.overwrite and (found := finished_set(options.output, schema, blocks)):
        _console.print(
            f"{options.output} holds this very set already (fingerprint "
            f"{schema.fingerprint[:12]}): nothing to do"
        )
        _print_summary(found, options, None)
        return
    from pipelines.writers.finished import keep_finished

    with staged(options.output, resume=keep_finished if options.resume else None) as staging:
        _build(options, schema, tokenizer, blocks, beam_arguments, how, staging)
    _print_summary(set_of(options.output), options, time.monotonic() - began)


def _all_flags() -> tuple[type, ...]:
    return (BuildOptions, *map(task_class, TASKS))


def _build(
    options: BuildOptions,
    schema: Schema,
    tokenizer: "LoadedTokenizer",
    blocks: "list[Block]",
    beam_arguments: list[str],
    how: str,
    staging: "Staging",
) -> None:
    """Runs the pipeline, whose last step publishes the set."""
    total_bytes = sum(block.bytes for block in blocks)
    local = is_local(beam_arguments)
    exchange, scratch = _exchange(options, local=local), staging.scratch(local=local)
    _console.print(
        f"{total_bytes / 1e6:,.1f} MB in {len(blocks):,} block{'s' * (len(blocks) != 1)}, {how}; "
        f"exchange by {exchange}"
    )
    from pipelines.readers.spread import CLUSTER_WORKERS, uneven, worker_count

    workers = worker_count(beam_arguments)[0] if local else CLUSTER_WORKERS
    if waiting := uneven(blocks, workers):
        _console.print(f"warning: {waiting}", style="yellow")
    from pipelines.readers.block_list import has_blocks, write_blocks
    from pipelines.runners.deliveries import LOST_END
    from pipelines.storage.store import is_remote, write_file
    from pipelines.writers.finished import count_finished

    if finished := count_finished(staging.folder):
        _console.print(f"{finished:,} shards are there that an earlier run finished")
    if not is_remote(scratch):
        os.mkdir(scratch)
    write_file(os.path.join(staging.folder, "tokenizer.json"), tokenizer.json)
    write_blocks(staging.folder, blocks)
    run_pipeline(
        _wiring(options, schema, tokenizer, len(blocks), beam_arguments, staging),
        beam_arguments,
        local=staging.local,
        total_bytes=total_bytes,
        label="build_shards",
        filter_name=options.filters.filter,
        # Where nobody sees what workers say: else their journal tells.
        count_finished=(lambda: count_finished(staging.folder))
        if is_remote(staging.folder) and not local
        else None,
        is_published=lambda: not has_blocks(staging.folder),
    )
    if has_blocks(staging.folder):  # publishing removes the folder
        raise DataError(LOST_END)


def _exchange(options: BuildOptions, *, local: bool) -> str:
    if options.exchange != "auto":
        return options.exchange
    return "files" if local else "runner"


def _wiring(
    options: BuildOptions,
    schema: Schema,
    tokenizer: "LoadedTokenizer",
    blocks: int,
    beam_arguments: list[str],
    staging: "Staging",
) -> "Callable[[beam.Pipeline], None]":
    """What adds the transforms to a pipeline."""
    local = is_local(beam_arguments)

    def build(pipeline: "beam.Pipeline") -> None:
        from pipelines.build.transforms import BuildShards, Job, share_tokenizer  # imports Beam

        share_tokenizer(tokenizer)
        source = next(iter(options.sources().values()))
        job = Job(
            schema=schema,
            task=options.settings,
            source=source,
            filters=options.filters,
            output=options.output,
            local=staging.local,
            scratch=staging.scratch(local=local),
            run=staging.run,
            exchange=_exchange(options, local=local),
            max_rejects=options.max_rejects,
            config=config_bytes("build_shards", options),
            blocks=blocks,
        )
        _ = pipeline | BuildShards(job)

    return build


def _print_plan(
    options: BuildOptions,
    schema: Schema,
    tokenizer: "LoadedTokenizer",
    blocks: "list[Block]",
    beam_arguments: list[str],
    how: str,
) -> None:
    from pipelines.build.estimate import Making, estimate
    from pipelines.build.plan import Plan, plan_table, warnings
    from pipelines.readers.spread import worker_count

    source = next(iter(options.sources().values()))
    found = estimate(Making(schema, options.settings, source, options.filters, tokenizer), blocks)
    began = time.monotonic()
    import_beam()
    local = is_local(beam_arguments)
    workers, processes = worker_count(beam_arguments)
    plan = Plan(
        output=options.output,
        schema=schema,
        blocks=blocks,
        estimate=found,
        how=how,
        workers=workers if local else 0,
        processes=processes,
        by_files=options.exchange == "files" or (options.exchange == "auto" and local),
        import_seconds=time.monotonic() - began,
        overwrite=options.overwrite,
    )
    _console.print(plan_table(plan))
    for warning in warnings(plan):
        _console.print(f"warning: {warning}", style="yellow")


def _print_summary(made: SetInfo, options: BuildOptions, seconds: float | None) -> None:
    statistics, total = made.stats, made.stats.total()
    rejected, length = statistics.documents_rejected, made.schema.row_tokens
    reasons = {True: [], False: []}
    for reason, number in sorted(rejected.items()):
        reasons[is_filters(reason)].append(f"{number:,} {reason}")
    held_out = f", {total.held_out:,} of train are held out" if total.held_out else ""
    moved = "".join(
        f"{sign} {number:,} {what} "
        for sign, number, what in (
            ("+", total.specials_added, "special"),
            ("+", total.tokens_repeated, "repeated"),
            ("-", total.tokens_truncated, "truncated"),
        )
        if number
    )
    rows = {
        "documents": f"{statistics.documents_read:,} read, {total.documents:,} kept",
        "duplicates": f"{total.duplicates:,} dropped{held_out}",
        "refused": ", ".join(reasons[False]) or "none",
        "filtered": ", ".join(reasons[True]) or "none",
        "tokens": f"{total.tokens:,} {moved}= all in rows",
        "rows": ", ".join(
            f"{split} {made.stats.split(split).rows:,}" for split in sorted(made.schema.splits)
        ),
        "density": f"{total.density(length):.2%} of the places in rows of {length}",
    }
    if seconds is not None:
        rate = statistics.source_bytes / seconds / 1e6
        rows["took"] = f"{seconds:.1f} s, {rate:.1f} MB of text a second"
    rows["lies in"] = f"{made.directory} ({decimal(sum(f.bytes for f in made.manifest.files))})"
    table = Table(show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    _console.print(table)
    if total.labels:
        from pipelines.inspection.set_tables import labels_table

        _console.print("", labels_table(statistics), "")
    directory = shlex.quote(made.directory)
    _console.print(f"look at it: python -m pipelines.inspect_shards {directory} --row=0")
    if made.schema.task in _TRAINERS:
        trainer = f"python -m trainers.{_TRAINERS[made.schema.task]} --shards={directory}"
        _console.print(f"train on it: {trainer}")


if __name__ == "__main__":
    run_entry(main)
