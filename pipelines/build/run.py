"""Runs build_shards: finds a finished dataset, or builds it; or prints the plan."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipelines.build.job import Job, share_tokenizer
from pipelines.build.options import BuildOptions
from pipelines.build.plan import Plan, Run, estimate
from pipelines.build.summary import print_plan, print_summary
from pipelines.encoding.tokenizer import load_tokenizer
from pipelines.encoding.tokenizer_files import DEFAULT
from pipelines.input_options import assumed_bytes
from pipelines.readers.label_values import find_labels
from pipelines.readers.sources import Block, describe_documents, has_blocks
from pipelines.runners.console import Console
from pipelines.runners.launch import choose_runner
from pipelines.storage.store import is_url, write_file
from pipelines.writers.finished import count_finished, keep_finished
from pipelines.writers.output_directory import (
    find_finished_set,
    refuse_others,
    refuse_own_inputs,
    set_of,
)
from pipelines.writers.staging import Staging, find_or_make
from schemas.commands.flag_file import config_bytes
from schemas.commands.terminal import number_of
from schemas.manifest import MANIFEST
from schemas.metadata import SetInfo
from schemas.tokenizer_config import tokenizer_settings
from schemas.typed_json import to_json

if TYPE_CHECKING:
    import apache_beam as beam

_console = Console(soft_wrap=True)


def build_or_find(options: BuildOptions, beam_arguments: list[str]) -> None:
    """Builds the dataset unless it exists, and prints a summary; --dry_run only prints the plan.

    Raises:
      UsageError: the inputs, the tokenizer or the output directory do not fit the options.
      DataError: the inputs are damaged or have no document.
    """
    began = time.monotonic()
    refuse_others(options.output, MANIFEST)  # before all inputs are planned
    blocks = options.blocks()
    refuse_own_inputs(options.output, (part.path for block in blocks for part in block.parts))
    documents = describe_documents(blocks, options.source)
    options = complete(options, blocks, _console.print)
    tokenizer = load_tokenizer(options.tokenizer)
    options = replace(options, tokenizer=tokenizer.recorded)  # with the commit of a Hub's name
    total = sum(block.bytes for block in blocks)
    assumed = assumed_bytes(options.run.assume_bytes, dry_run=options.run.dry_run) or total
    beam_arguments, how = choose_runner(beam_arguments, assumed)
    run = Run.of(options, tokenizer, blocks, beam_arguments, how, times=assumed / total)
    if options.run.dry_run:
        print_plan(Plan(run, estimate(run)), _console)
        return
    try:
        found = find_or_make(
            options.output,
            lambda: _find_finished(run),
            lambda staging: _build(run, staging),
            resume=keep_finished if options.run.resume else None,
        )
    except KeyboardInterrupt as stop:
        kept = "its finished shards are kept, and the same command resumes from them"
        lost = "nothing is kept; run it with --resume to keep finished shards"
        raise KeyboardInterrupt(kept if options.run.resume else lost) from stop
    if found is not None:
        _console.print(
            f"{options.output} already contains this dataset (fingerprint "
            f"{run.schema.fingerprint[:12]}): nothing to do"
        )
    seconds = None if found else time.monotonic() - began
    info = found or set_of(options.output)
    print_summary(info, tokenizer, _console, documents=documents, seconds=seconds)


def _find_finished(run: Run) -> SetInfo | None:
    """The requested dataset, if it exists; see `find_finished_set`."""
    options = run.options
    refuse_others(options.output, MANIFEST)
    if options.run.overwrite:
        return None
    return find_finished_set(options.output, run.schema, run.on.blocks)


def complete(
    options: BuildOptions, blocks: list[Block], say: Callable[[str], None]
) -> BuildOptions:
    """Adds to the options the facts of the inputs that the task needs before the run.

    `blocks` are all inputs. `say` prints a line if they have to be read.
    """
    source = options.source
    settings = options.settings.complete(lambda role: find_labels(blocks, source, role, say))
    return replace(options, settings=settings)


def _build(run: Run, staging: Staging) -> None:
    """Runs the pipeline, whose last step publishes the dataset."""
    on, folder = run.on, staging.folder
    _console.print(f"{on.facts}; shuffle by {on.shuffle_by}; ids by {run.tokenizer.encoded_by}")
    if finished := count_finished(folder):
        _console.print(
            f"an earlier run finished {number_of(finished, 'shard')}, which this one reuses"
        )
    write_file(os.path.join(folder, "tokenizer.json"), run.tokenizer.json)
    on.prepare(staging, _console.print)
    on.execute(
        wire(run, staging),
        staging,
        is_done=lambda: not has_blocks(folder),  # publishing removes the folder
        # Counts shards where the command cannot read the workers' journals.
        count_finished=None
        if on.is_local or not is_url(folder)
        else lambda: count_finished(folder),
    )


def wire(run: Run, staging: Staging) -> "Callable[[beam.Pipeline], None]":
    """Returns a function that adds the transforms to a pipeline."""

    def build(pipeline: "beam.Pipeline") -> None:
        # Imports Beam, which takes a second.
        from pipelines.build.transforms import BuildShards

        options = run.options
        share_tokenizer(run.tokenizer)
        job = run.on.job(
            Job,
            staging,
            schema=run.schema,
            task=options.settings,
            output=options.output,
            filter=options.filter,
            max_rejects=options.reading.max_rejects,
            config=config_bytes("pipelines.build_shards", options),
            tokenizer_config=to_json(_tokenizer_config(run)),
            resume=options.run.resume,
        )
        _ = pipeline | BuildShards(job)

    return build


def _tokenizer_config(run: Run) -> dict[str, Any]:
    """The fields of tokenizer_config.json: the tokenizer's own, the rows' length and template."""
    tokenizer, schema = run.tokenizer, run.schema
    others = dict(tokenizer.settings)
    if schema.row_tokens:
        others["model_max_length"] = schema.max_length
    templates = dict(tokenizer.chat_templates)
    if used := schema.parameters.get("chat_template"):
        templates = {DEFAULT: used}
    if templates.keys() == {DEFAULT}:
        others["chat_template"] = templates[DEFAULT]
    elif templates:
        named = ({"name": name, "template": text} for name, text in sorted(templates.items()))
        others["chat_template"] = list(named)
    return tokenizer_settings(tokenizer.json, schema.special_ids, **others)
