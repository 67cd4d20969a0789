"""Runs train_tokenizer from parsed options: finds the tokenizer, or trains it."""

import os
import time
from collections.abc import Callable

from textmill.pipelines.input_options import assumed_bytes
from textmill.pipelines.readers.sources import Block, describe_documents, plan_blocks
from textmill.pipelines.runners.launch import choose_runner
from textmill.pipelines.runners.result import Result
from textmill.pipelines.tokenizer import check, output
from textmill.pipelines.tokenizer.counting import count_words, digest_text, read_words, run_of
from textmill.pipelines.tokenizer.fertility import measure_groups
from textmill.pipelines.tokenizer.merging import merge
from textmill.pipelines.tokenizer.options import TokenizerOptions, load_model
from textmill.pipelines.tokenizer.plan import TokenizerPlan, plan_tokenizer
from textmill.pipelines.tokenizer.special_roles import config_json, tokenizer_settings
from textmill.pipelines.writers.output_directory import (
    find_or_make,
    refuse_others,
    refuse_own_inputs,
)
from textmill.pipelines.writers.staging import Staging
from textmill.schemas.commands.flag_file import CONFIG, config_bytes
from textmill.schemas.files import store
from textmill.schemas.tokenizers.tokenizer_json import TOKENIZER_CONFIG
from textmill.schemas.typed_json import to_json

Say = Callable[[str], None]


def plan(options: TokenizerOptions, beam_arguments: list[str], *, say: Say) -> TokenizerPlan:
    """Estimates what `run` would take, from a sample of its text; takes and raises what it does."""
    blocks = _plan_inputs(options)
    total = sum(block.bytes for block in blocks)
    assumed = assumed_bytes(options.assume_bytes, dry_run=True) or total
    beam_arguments, how = choose_runner(beam_arguments, assumed)
    return plan_tokenizer(options, run_of(options, blocks, beam_arguments, how), assumed / total)


def run(
    options: TokenizerOptions, beam_arguments: list[str], *, say: Say
) -> Result[output.FinishedTokenizer]:
    """Trains the tokenizer, unless the output directory already contains it.

    Args:
      options: the command's.
      beam_arguments: flags of Beam.
      say: is given a line at each step.

    Raises:
      UsageError: the inputs or the output directory cannot be used.
      DataError: the inputs are damaged or empty.
    """
    began = time.monotonic()
    blocks = _plan_inputs(options)
    warnings: list[str] = []
    made: list[output.Report] = []

    def train(staging: Staging) -> None:
        made.append(_train(options, blocks, beam_arguments, staging, say, warnings))
        output.publish(options.output, staging.run)

    def find() -> output.Report | None:
        return output.find_tokenizer(
            options.output, options.parameters(), lambda: digest_text(options, blocks)
        )

    found = find_or_make(options.output, output.REPORT, find, train, overwrite=options.overwrite)
    report = found or made[0]
    warnings += check.warn_of_small_vocabulary(options, report.vocab_size)
    return Result(
        thing=output.FinishedTokenizer(options.output, report),
        seconds=time.monotonic() - began if made else None,
        documents=describe_documents(blocks, options.source) if blocks else "",
        warnings=tuple(warnings),
        inputs=options.reading.input,
    )


def _plan_inputs(options: TokenizerOptions) -> list[Block]:
    """The blocks of the text; none with --from_histogram."""
    refuse_others(options.output, output.REPORT)
    check.refuse_unusable(options)
    blocks = [] if options.from_histogram else plan_blocks(options.source)
    refuse_own_inputs(options.output, (part.path for block in blocks for part in block.parts))
    return blocks


def _train(
    options: TokenizerOptions,
    blocks: list[Block],
    beam_arguments: list[str],
    staging: Staging,
    say: Say,
    warnings: list[str],
) -> output.Report:
    """Writes all files to the staging directory."""

    def path(name: str) -> str:
        return os.path.join(staging.folder, name)

    def write(name: str, content: bytes) -> None:
        store.write_file(path(name), content)

    if options.from_histogram:
        histogram, text = read_words(options, options.from_histogram)
        write(output.HISTOGRAM, store.read(options.from_histogram))
    else:
        histogram, text = count_words(options, blocks, beam_arguments, staging, say)
    warnings += check.warn_of_returns(histogram)
    model = load_model(options.model)
    words = model.words_of(histogram, options)
    say(f"merging: {words.counts.num_rows:,} distinct words")
    trained = merge(options, words)
    content = model.tokenizer_of(trained, words, options).to_str(pretty=True).encode()
    write(output.TOKENIZER, content)
    settings = tokenizer_settings(options, model)
    write(TOKENIZER_CONFIG, config_json(settings))
    warnings += check.warn_of_endless_turns(settings, options.specials)
    report = output.report_of(
        options.parameters(),
        text,
        words,
        trained,
        tokenizer_sha256=store.sha256(path(output.TOKENIZER)),
        histogram_sha256=store.sha256(path(output.HISTOGRAM)),
        fertility=()
        if options.from_histogram
        else measure_groups(store.read(path(output.SAMPLE)), content),
    )
    write(output.REPORT, to_json(report))
    write(CONFIG, config_bytes("pipelines.train_tokenizer", options))
    return report
