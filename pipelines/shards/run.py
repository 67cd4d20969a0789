"""Runs build_shards: finds a finished dataset, or builds it; or prints the plan.

The summary warns of defects of the dataset that harm training, each with a remedy.
"""

import io
import os
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.filesize import decimal

from textmill.pipelines import store
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer, load_tokenizer
from textmill.pipelines.encoding.tokenizer_files import DEFAULT
from textmill.pipelines.input_options import assumed_bytes
from textmill.pipelines.inspection.set_tables import labels_table
from textmill.pipelines.readers.label_values import find_labels
from textmill.pipelines.readers.sources import Block, describe_documents, has_blocks
from textmill.pipelines.runners.console import Console, facts_table
from textmill.pipelines.runners.launch import choose_runner
from textmill.pipelines.shards.job import Job, share_tokenizer
from textmill.pipelines.shards.options import BuildOptions
from textmill.pipelines.shards.plan import Plan, Run, estimate, plan_facts
from textmill.pipelines.shards.split_shares import find_far_shares
from textmill.pipelines.store import is_url, write_file
from textmill.pipelines.tasks.task import task_class
from textmill.pipelines.writers.output_directory import (
    find_finished_set,
    refuse_others,
    refuse_own_inputs,
    set_of,
)
from textmill.pipelines.writers.shard_files import count_finished, keep_finished
from textmill.pipelines.writers.staging import Staging, find_or_make
from textmill.pipelines.writers.token_counts import TOKEN_COUNTS
from textmill.schemas.commands.entry import import_later
from textmill.schemas.commands.flag_file import config_bytes
from textmill.schemas.commands.terminal import command_name, number_of
from textmill.schemas.drops import FILTERED, REJECTED, describe_dropped, drop_of
from textmill.schemas.manifest import MANIFEST
from textmill.schemas.metadata import SetInfo
from textmill.schemas.tokenizer_json import tokenizer_settings
from textmill.schemas.typed_json import to_json

if TYPE_CHECKING:
    import apache_beam as beam

# Imports Beam, which takes a second.
_build_shards = import_later("textmill.pipelines.shards.transforms:BuildShards")
_console = Console(soft_wrap=True)
_RETURNS, _LONG, _RULE = 0.005, 0.05, 0.1  # shares of tokens or documents that warn
_MUCH_TEXT = 1_000_000  # bytes; with less, most of the time goes into starting
_LONG_BIN = 16  # in the histogram of lengths, the first of documents of 32,768 tokens and more


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
        plan = Plan(run, estimate(run))
        _console.print(facts_table(plan_facts(plan), title="plan (nothing was written)"))
        for warning in plan.needs().warnings():
            _console.print(f"warning: {warning}", style="yellow")
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
        raise type(stop)(kept if options.run.resume else lost) from stop
    if found is not None:
        _console.print(
            f"{options.output} already contains this dataset (fingerprint "
            f"{run.schema.fingerprint[:12]}): nothing to do"
        )
    seconds = None if found else time.monotonic() - began
    info = found or set_of(options.output)
    _print_summary(info, tokenizer, documents, seconds)


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
    _console.print(f"{on.facts}; shuffle by {on.shuffle_by}; ids by {run.load_encoder()}")
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
        _ = pipeline | _build_shards(job)

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
    return tokenizer_settings(tokenizer.ids, schema.special_ids, **others)


def _print_summary(
    info: SetInfo, tokenizer: LoadedTokenizer, documents: str, seconds: float | None
) -> None:
    """Prints a finished dataset's counts and warnings, and the next commands.

    Args:
      info: the dataset.
      tokenizer: its tokenizer.
      documents: how the input was split into documents, from `describe_documents`.
      seconds: the run's time; None if the dataset existed before.
    """
    _console.print(facts_table(_facts(info, documents, seconds)))
    if info.stats.total().labels:
        _console.print("", labels_table(info.stats), "")
    for warning in _warnings(info, tokenizer, documents):
        _console.print(f"warning: {warning}", style="yellow")
    directory = shlex.quote(info.directory)
    inspect = command_name("pipelines.inspect_shards")
    _console.print(f"inspect it: {inspect} {directory} --row=0")
    if trainer := task_class(info.schema.task).trainer:
        _console.print(f"train on it: {command_name(f'trainers.{trainer}')} --shards={directory}")


def _facts(info: SetInfo, documents: str, seconds: float | None) -> dict[str, str]:
    """The lines of the summary, by their titles."""
    statistics, total = info.stats, info.stats.total()
    moved = "".join(
        f"{sign} {number:,} {what} "
        for sign, number, what in (
            ("+", total.specials_added, "special"),
            ("+", total.tokens_repeated, "repeated"),
            ("-", total.tokens_truncated, "truncated"),
        )
        if number
    )
    length, splits = info.schema.row_tokens, sorted(info.schema.splits)
    holder = "documents" if info.schema.holds_documents else "rows"
    counts = f"{statistics.documents_read:,} read, {total.documents:,} kept"
    facts = {
        "documents": "; ".join(filter(None, (counts, documents))),
        **describe_dropped(info.stats.all_dropped(), ("duplicates", REJECTED)),
        "tokens": f"{total.tokens:,} {moved}= all in {holder}"
        + f", {total.trained:,} trained on" * (total.trained > 0),
        "splits" if info.schema.holds_documents else "rows": ", ".join(
            f"{split} {statistics.split(split).rows:,}" for split in splits
        ),
    }
    if length:
        facts["packing efficiency"] = (
            f"{total.packing_efficiency(length):.2%} of positions in rows of {length}"
        )
    shards = [file.bytes for file in info.manifest.files if file.split]
    others = sum(file.bytes for file in info.manifest.files if not file.split)
    facts["size"] = (
        f"{decimal(sum(shards))} in {number_of(len(shards), 'shard file')}, {decimal(others)} of "
        "metadata files"
    )
    if seconds is not None:
        text = statistics.source_bytes
        rate = f", {decimal(int(text / seconds))} of text per second" * (text >= _MUCH_TEXT)
        facts["time"] = f"{seconds:.1f} s{rate}"
    return facts | {"output": info.directory}


def _warnings(info: SetInfo, tokenizer: LoadedTokenizer, documents: str) -> Iterator[str]:
    """Warns of Windows line ends, paragraphs as long as books, odd splits and greedy filters.

    Raises:
      DataError: a file of the dataset cannot be read.
    """
    total = info.stats.total()
    content = store.read(os.path.join(info.directory, TOKEN_COUNTS))
    counts = np.load(io.BytesIO(content), allow_pickle=False)
    used = np.flatnonzero(counts).tolist()
    returns = [token for token in used if b"\r" in tokenizer.token_bytes[token]]
    share = counts[returns].sum() / max(counts.sum(), 1)
    if share > _RETURNS:
        yield (
            f"{share:.1%} of all tokens contain a carriage return, from Windows line ends: remove "
            "them (sed -i 's/\\r$//' FILE) and build the dataset again"
        )
    books, tokens = (
        sum(bins[_LONG_BIN:]) for bins in (total.length_histogram, total.length_tokens)
    )
    if info.schema.parameters.get("document") == "paragraph" and tokens > _LONG * total.tokens:
        yield (
            f"{number_of(books, 'document')} of 32,768 tokens and more "
            f"{'has' if books == 1 else 'have'} {tokens / total.tokens:.0%} of all tokens: text "
            "without blank lines is one paragraph. Read such files with --document=line or file"
        )
    yield from _odd_splits(info, documents)
    yield from _hungry_filter(info)


def _odd_splits(info: SetInfo, documents: str) -> Iterator[str]:
    """Warns of splits that are empty, or whose share of the tokens is far from that of --splits."""
    stats, asked = info.stats, info.schema.splits
    total = stats.total().documents
    if info.schema.parameters.get("corpus"):  # a corpus fixes what a document is
        smaller = "build the corpus again with --document=paragraph, or "
    else:
        smaller = "use --document=paragraph, or " * documents.endswith("(--document=file)")
    why = (
        f"a hash of a document's text chooses its split, and {number_of(total, 'document')} "
        f"{'was' if total == 1 else 'were'} kept"
    )
    named = "name the files of each split (--train_input, ...)"
    empty = [split for split in asked if not stats.split(split).rows]
    for split in empty:
        if not asked[split]:
            yield (
                f"the split {split} is empty: no document of --{split}_input was kept (those that "
                "an evaluation split has too are removed from train); name other files"
            )
        else:
            yield f"the split {split} is empty: {why}; {smaller}{named}"
    if empty or not any(asked.values()):
        return
    tokens = {split: stats.split(split).tokens for split in asked}
    if far := find_far_shares(asked, tokens, total):
        shares = (
            f"{split} has {100 * got:.3g} % instead of {100 * asked[split]:.3g} %"
            for split, got in far.items()
        )
        yield (
            f"shares of the tokens are far from those of --splits ({', '.join(shares)}): {why}, so "
            f"single long documents decide; {smaller}give more documents, or {named}"
        )


def _hungry_filter(info: SetInfo) -> Iterator[str]:
    read = info.stats.documents_read
    for reason, number in sorted(info.stats.all_dropped().items()):
        if drop_of(reason).title == FILTERED and number > _RULE * read:
            yield (
                f"--filter drops {number / read:.0%} of all documents as {reason}: check what it "
                "drops, and change the function if it drops too much"
            )
