"""Runs build_shards: finds a finished dataset or builds it, or plans the run."""

import os
import time

from textmill.pipelines.readers.forget import stage_digests
from textmill.pipelines.readers.sources import has_blocks
from textmill.pipelines.runners.result import Result, Say
from textmill.pipelines.shards.check import warnings_of
from textmill.pipelines.shards.estimate import estimate
from textmill.pipelines.shards.options import BuildOptions
from textmill.pipelines.shards.plan import BuildPlan
from textmill.pipelines.shards.prepare import BuildRun, prepare
from textmill.pipelines.shards.wire import wire
from textmill.pipelines.writers.output_directory import (
    differ_from,
    find_finished,
    find_or_make,
    handed_over,
)
from textmill.pipelines.writers.staged_shards import count_finished, keep_finished
from textmill.pipelines.writers.staging import Staging
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import flag
from textmill.schemas.files.finished import DatasetInfo, open_finished
from textmill.schemas.files.store import is_url, write_file


def run(
    options: BuildOptions, beam_arguments: list[str], *, say: Say
) -> Result[DatasetInfo] | None:
    """Builds the dataset, unless the output directory contains it.

    None if a template's job will do it.

    Args:
      options: of the command.
      beam_arguments: Beam's flags.
      say: receives lines about the progress.

    Raises:
      UsageError: the inputs, the tokenizer or the output directory do not fit the options.
      DataError: the inputs are damaged or have no document.
    """
    began = time.monotonic()
    prepared = prepare(options, beam_arguments, say)
    differ = differ_from(prepared.schema, prepared.blocks)
    try:
        found = find_or_make(
            options.output,
            DatasetInfo,
            lambda: find_finished(DatasetInfo, options.output, differ),
            lambda staging: _build(prepared, staging, say),
            overwrite=options.run.overwrite,
            resume=keep_finished if options.run.resume else None,
            hands_over=prepared.flags.is_template,
        )
    except KeyboardInterrupt as stop:
        kept = "its finished shards are kept, and the same command resumes from them"
        lost = f"nothing is kept; run it with {flag('resume', True)} to keep finished shards"
        raise type(stop)(kept if options.run.resume else lost) from stop
    if prepared.flags.is_template and found is None:
        say(handed_over(options.output))
        return None
    seconds = None if found else time.monotonic() - began
    info = found or open_finished(DatasetInfo, options.output)
    warnings = tuple(warnings_of(info, prepared.tokenizer, prepared.documents))
    return Result(thing=info, seconds=seconds, documents=prepared.documents, warnings=warnings)


def plan(options: BuildOptions, beam_arguments: list[str], *, say: Say) -> BuildPlan:
    """Plans a run from a sample of its inputs; arguments and errors as of `run`."""
    prepared = prepare(options, beam_arguments, say)
    return BuildPlan(prepared, estimate(prepared))


def _build(run: BuildRun, staging: Staging, say: Say) -> None:
    """Runs the pipeline, whose last step publishes the dataset."""
    folder = staging.folder
    say(f"{run.facts}; shuffle: {run.shuffle}; tokenizer backend: {run.load_encoder()}")
    if finished := count_finished(folder):
        say(f"an earlier run finished {number_of(finished, 'shard')}, which this one reuses")
    write_file(os.path.join(folder, "tokenizer.json"), run.tokenizer.json)
    run.prepare(staging, say)
    run.execute(
        wire(run, staging, stage_digests(run.options.forget, folder)),
        staging,
        # Publishing removes the folder; a template's job has not begun.
        is_done=lambda: run.flags.is_template or not has_blocks(folder),
        # Counts shards where the command cannot read the workers' journals.
        count_finished=None
        if run.is_local or not is_url(folder)
        else lambda: count_finished(folder),
    )
