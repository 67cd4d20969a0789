"""Runs train_tokenizer with parsed options: counts words, merges, publishes, reports."""

import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.filesize import decimal
from rich.progress import MofNCompleteColumn, Progress
from rich.table import Table
from tokenizers import Tokenizer

from textmill.pipelines import store
from textmill.pipelines.encoding.automaton import UnsupportedPattern, compile_pattern
from textmill.pipelines.encoding.patterns import name_of
from textmill.pipelines.encoding.tokenizer_files import COMMON_SPECIALS
from textmill.pipelines.host.imports import pc
from textmill.pipelines.input_options import assumed_bytes
from textmill.pipelines.readers.sources import Block, describe_documents, hash_inputs, plan_blocks
from textmill.pipelines.runners.block_run import BlockRun
from textmill.pipelines.runners.console import Console, facts_table
from textmill.pipelines.runners.launch import choose_runner
from textmill.pipelines.store import write_file
from textmill.pipelines.tasks.chat_template import read_chat_template
from textmill.pipelines.tasks.chat_turns import find_turn_ends
from textmill.pipelines.tokenizer.fertility import (
    Fertility,
    GroupSample,
    fertility_table,
    file_groups,
    measure_fertility,
)
from textmill.pipelines.tokenizer.histogram import Histogram, read_histogram
from textmill.pipelines.tokenizer.merge_loop import Trained
from textmill.pipelines.tokenizer.options import BPE, TokenizerOptions, load_model
from textmill.pipelines.tokenizer.output import (
    HISTOGRAM,
    READ,
    REPORT,
    SAMPLE,
    TOKENIZER,
    CountJob,
    Report,
    Text,
    config_json,
    finished_tokenizer,
    inputs_digest,
    publish,
    report_of,
)
from textmill.pipelines.tokenizer.plan import plan_tokenizer
from textmill.pipelines.tokenizer.word_counter import fault_of
from textmill.pipelines.writers.output_directory import refuse_others, refuse_own_inputs
from textmill.pipelines.writers.staging import Staging, find_or_make
from textmill.schemas.chat_template import ChatTemplate
from textmill.schemas.commands.entry import import_later
from textmill.schemas.commands.flag_file import CONFIG, config_bytes
from textmill.schemas.commands.terminal import command_name, number_of
from textmill.schemas.drops import REJECTED, describe_dropped
from textmill.schemas.errors import UsageError
from textmill.schemas.tokenizer_json import TOKENIZER_CONFIG
from textmill.schemas.typed_json import from_json, parse_json, to_json

if TYPE_CHECKING:
    import apache_beam as beam

# Importing Beam takes a second; training from a histogram does not need it.
_count_words = import_later("textmill.pipelines.tokenizer.transforms:CountWords")
_console = Console()
_print = partial(_console.print, soft_wrap=True)  # paths stay on one line, to be copied
_LINE_SECONDS = 5.0  # between lines of progress without a terminal
_MANY_RETURNS = 0.005  # share of all words
_SHARED = ("document", "text_field", "input_format", "max_document_bytes", "filter")


def train_or_find(options: TokenizerOptions, beam_arguments: list[str]) -> None:
    """Trains the tokenizer, unless --output already contains it, and prints a summary.

    Raises:
      UsageError: the inputs or the output directory cannot be used.
      DataError: the inputs are damaged or empty.
    """
    began = time.monotonic()
    refuse_others(options.output, REPORT)
    refuse_unusable(options)
    blocks = [] if options.from_histogram else plan_blocks(options.source())
    refuse_own_inputs(options.output, (part.path for block in blocks for part in block.parts))
    documents = describe_documents(blocks, options.source()) if blocks else ""
    if options.dry_run:
        _print_plan(options, blocks, beam_arguments)
        return
    reports: list[Report] = []

    def train(staging: Staging) -> None:
        reports.append(_train(options, blocks, beam_arguments, staging))
        publish(options.output, staging.run)

    if finished := find_or_make(options.output, lambda: _find_finished(options, blocks), train):
        _print(f"{options.output} already contains this tokenizer: nothing to do")
    _print_summary(options, finished or reports[0], documents, time.monotonic() - began)


def _print_plan(options: TokenizerOptions, blocks: list[Block], beam_arguments: list[str]) -> None:
    total = sum(block.bytes for block in blocks)
    assumed = assumed_bytes(options.assume_bytes, dry_run=True) or total
    beam_arguments, how = choose_runner(beam_arguments, assumed)
    plan = plan_tokenizer(options, run_of(options, blocks, beam_arguments, how), assumed / total)
    _print(facts_table(plan.facts(options), title="plan (nothing was written)"))
    for warning in plan.plan.warnings():
        _print(f"warning: {warning}", style="yellow")


def _find_finished(options: TokenizerOptions, blocks: list[Block]) -> Report | None:
    refuse_others(options.output, REPORT)
    if options.overwrite:
        return None

    def digest() -> str:
        if options.from_histogram:
            read_histogram(options.from_histogram)  # raises if it is no histogram
            return store.sha256(options.from_histogram)
        return inputs_digest(hash_inputs(blocks))

    return finished_tokenizer(options.output, _parameters(options), digest)


def _train(
    options: TokenizerOptions, blocks: list[Block], beam_arguments: list[str], staging: Staging
) -> Report:
    """Writes all files to the staging directory."""
    folder = staging.folder
    if options.from_histogram:
        histogram, text = _read_histogram(options, options.from_histogram)
        write_file(os.path.join(folder, HISTOGRAM), store.read(options.from_histogram))
    else:
        histogram, text = _count(options, blocks, beam_arguments, staging)
    _warn_of_returns(histogram)
    model = load_model(options.model)
    words = model.words_of(histogram, options)
    trained = _merge(options, words)
    content = model.tokenizer_of(trained, words, options).to_str(pretty=True).encode()
    write_file(os.path.join(folder, TOKENIZER), content)
    roles = {role: token for role, token in model.ROLES.items() if token in options.specials()}
    settings = roles | model.tokenizer_config(options)
    if options.chat_template:
        settings["chat_template"] = read_chat_template(options.chat_template)
        _warn_of_endless_turns(settings, options.specials())
    write_file(os.path.join(folder, TOKENIZER_CONFIG), config_json(settings))
    report = report_of(
        _parameters(options),
        text,
        words,
        trained,
        tokenizer_sha256=store.sha256(os.path.join(folder, TOKENIZER)),
        histogram_sha256=store.sha256(os.path.join(folder, HISTOGRAM)),
        fertility=() if options.from_histogram else _measure_groups(folder),
    )
    write_file(os.path.join(folder, REPORT), to_json(report))
    write_file(os.path.join(folder, CONFIG), config_bytes("pipelines.train_tokenizer", options))
    return report


def _parameters(options: TokenizerOptions) -> dict[str, Any]:
    """The options that decide the tokenizer besides the text; a chat template as its sha256."""
    template = options.chat_template
    return options.parameters() | ({"chat_template": store.sha256(template)} if template else {})


def refuse_unusable(options: TokenizerOptions) -> None:
    """Checks the splitting pattern and the chat template before the run.

    Raises:
      UsageError: one of them cannot be used.
    """
    _refuse_pattern(options.cutting().pattern, "--pattern")
    if options.chat_template:
        read_chat_template(options.chat_template)


def _refuse_pattern(pattern: str, place: str) -> None:
    if name_of(pattern) == pattern and (fault := fault_of(pattern)):
        raise UsageError(f"{place} {pattern!r}: {fault}")


def _measure_groups(folder: str) -> tuple[Fertility, ...]:
    """Measures the new tokenizer on the sample of each group."""
    sample = GroupSample()
    sample.merge(store.read(os.path.join(folder, SAMPLE)))
    tokenizer = Tokenizer.from_buffer(store.read(os.path.join(folder, TOKENIZER)))
    return measure_fertility(sample, tokenizer)


def _read_histogram(options: TokenizerOptions, path: str) -> tuple[Histogram, Text]:
    """The words of --from_histogram.

    Raises:
      UsageError: this command would cut the text in another way.
    """
    histogram = read_histogram(path)
    origin, theirs, ours = histogram.origin, histogram.origin.cutting, options.cutting()
    _refuse_pattern(theirs.pattern, f"{path}: its pattern")
    for flag in vars(options.bpe):
        old, new = (str(getattr(cutting, flag)) for cutting in (theirs, ours))
        follows = options.model == BPE and getattr(options.bpe, flag) is None
        if old != new and not follows:
            raise UsageError(
                f"{path} was counted with --{flag}={name_of(old)}, but this command has "
                f"{name_of(new)}: use the same value, or count the text again with --input"
            )
    return histogram, Text(store.sha256(path), 0, origin.documents, origin.bytes, {})


def _count(
    options: TokenizerOptions, blocks: list[Block], beam_arguments: list[str], staging: Staging
) -> tuple[Histogram, Text]:
    """Runs the pipeline that counts words."""
    beam_arguments, how = choose_runner(beam_arguments, sum(block.bytes for block in blocks))
    run = run_of(options, blocks, beam_arguments, how)
    _print(f"counting words: {run.facts}")
    _note_slow_pattern(options.cutting().pattern)
    run.prepare(staging, _print)
    path = os.path.join(staging.folder, READ)
    wiring = wire_counting(options, run, staging)
    run.execute(wiring, staging, is_done=lambda: store.exists(path))
    text = from_json(Text, parse_json(store.read(path), path), path)
    return read_histogram(os.path.join(staging.folder, HISTOGRAM)), text


def run_of(
    options: TokenizerOptions, blocks: list[Block], beam_arguments: list[str], how: str = ""
) -> BlockRun:
    """The run that counts words, with a runner that is already chosen."""
    source, name = options.source(), options.reading.filter
    return BlockRun("train_tokenizer", source, blocks, beam_arguments, how, filter=name)


def _warn_of_returns(histogram: Histogram) -> None:
    """Warns if Windows line ends would become a part of the vocabulary."""
    counts = histogram.counts["count"].to_numpy()
    holds = pc.match_substring(histogram.counts["word"], "\r")
    share = counts[holds.to_numpy()].sum() / max(counts.sum(), 1)
    if share > _MANY_RETURNS:
        _print(
            f"warning: {share:.1%} of all words contain a carriage return, from Windows line ends: "
            "remove them (sed -i 's/\\r$//' FILE) and train again"
        )


def _warn_of_endless_turns(settings: Mapping[str, Any], specials: Sequence[str]) -> None:
    """Warns if build_shards --task=chat would reject the chat template with these tokens."""
    roles = {name: token for name, token in settings.items() if name.endswith("_token")}
    try:
        find_turn_ends(ChatTemplate(settings["chat_template"], "the template", roles), specials, "")
    except UsageError as error:
        _print(
            f"warning: build_shards --task=chat would reject this tokenizer: {error}; or add the "
            "end of turn to --special_tokens"
        )


def _note_slow_pattern(pattern: str) -> None:
    try:
        if name_of(pattern) == pattern:
            compile_pattern(pattern)
    except UnsupportedPattern as error:
        _print(
            f"note: Textmill does not compile this --pattern ({error}), so `tokenizers` splits the "
            "words, more slowly"
        )


def wire_counting(
    options: TokenizerOptions, run: BlockRun, staging: Staging
) -> "Callable[[beam.Pipeline], None]":
    """Returns a function that adds the transforms to a pipeline."""

    def build(pipeline: "beam.Pipeline") -> None:
        job = run.job(
            CountJob,
            staging,
            cutting=options.cutting(),
            filter=options.reading.filter,
            max_rejects=options.reading.max_rejects,
            groups=file_groups(run.blocks),
        )
        _ = pipeline | _count_words(job)

    return build


def _merge(options: TokenizerOptions, words: Histogram) -> Trained:
    """Trains in a thread, to show progress and to respond to Ctrl-C."""
    progress = np.zeros(2, np.int64)
    _print(f"merging: {words.counts.num_rows:,} distinct words")
    console = Console(stderr=True)
    with (
        Progress(
            *Progress.get_default_columns(),
            MofNCompleteColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        ) as bar,
        ThreadPoolExecutor(1) as pool,
    ):
        task = bar.add_task("tokens", total=options.vocab_size)
        training = pool.submit(load_model(options.model).train, words, options, progress)
        try:
            told = time.monotonic()
            while not wait([training], timeout=0.1).done:
                bar.update(task, completed=int(progress[0]))
                if not console.is_terminal and time.monotonic() - told >= _LINE_SECONDS:
                    told = time.monotonic()
                    line = f"merging: {progress[0]:,} of {options.vocab_size:,} tokens"
                    console.print(line, soft_wrap=True)
        except KeyboardInterrupt:
            progress[1] = 1  # stops the loop
            raise
        return training.result()


def _print_summary(
    options: TokenizerOptions, report: Report, documents: str, seconds: float
) -> None:
    text = report.text
    counts = f"{number_of(text.documents, 'document')}, {decimal(text.bytes)}"
    rows = {
        "text": "; ".join(filter(None, (counts, documents))),
        **describe_dropped(text.refused, (REJECTED,)),
        "words": f"{report.words:,}, {report.distinct_words:,} distinct",
        "vocabulary": f"{report.vocab_size:,} tokens, {report.merges:,} merges",
        "coverage": f"{report.words_of_one_token:.1%} of words are one token, "
        f"{report.distinct_words_of_one_token:.1%} of distinct words",
        "bytes per token": f"{report.bytes_per_token:.3f}",
        "time": f"{seconds:.1f} s",
        "output": options.output,
    }
    table = Table(show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    _console.print(table)
    if report.fertility:
        _console.print(fertility_table(report.fertility))
    if report.vocab_size < options.vocab_size:
        _print(
            f"note: {report.vocab_size:,} tokens instead of {options.vocab_size:,}: no other pair "
            f"of tokens occurs {max(1, options.min_frequency)} times"
        )
    _print(f"next, build a dataset: {_next_command(options)}")


def _next_command(options: TokenizerOptions) -> str:
    """The build_shards command of a dataset of the text, or of conversations for a template."""
    reading, masks = options.reading, {*COMMON_SPECIALS["mask"]} & {*options.specials()}
    words = [command_name("pipelines.build_shards")]
    if options.chat_template:
        words += ["--task=chat", "--input=CONVERSATIONS"]
    else:
        words.append(f"--task={'mlm' if masks else 'clm'}")
        words += [f"--input={shlex.quote(pattern)}" for pattern in reading.input or ("TEXT",)]
        for field in fields(reading):  # the dataset must read the text in the same way
            value = getattr(reading, field.name)
            if field.name in _SHARED and value != field.default:
                words.append(f"--{field.name}={shlex.quote(str(value))}")
    return " ".join([*words, f"--tokenizer={shlex.quote(options.output)}", "--output=SHARDS"])
