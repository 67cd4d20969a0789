"""Runs train_tokenizer from parsed options: finds the tokenizer, or trains it."""

import time

from textmill.pipelines.input_options import assumed_bytes
from textmill.pipelines.readers.sources import Block, describe_documents, plan_blocks
from textmill.pipelines.runners.launch import choose_runner
from textmill.pipelines.runners.result import Result, Say
from textmill.pipelines.tokenizer import check
from textmill.pipelines.tokenizer.counting import digest_text, run_of
from textmill.pipelines.tokenizer.options import TokenizerOptions
from textmill.pipelines.tokenizer.plan import TokenizerPlan, plan_tokenizer
from textmill.pipelines.tokenizer.publish import find_tokenizer, publish
from textmill.pipelines.tokenizer.train import train
from textmill.pipelines.writers.output_directory import (
    find_or_make,
    refuse_others,
    refuse_own_inputs,
)
from textmill.pipelines.writers.staging import Staging
from textmill.schemas.errors import Caution
from textmill.schemas.files.finished import TokenizerInfo, open_finished


def plan(options: TokenizerOptions, beam_arguments: list[str], *, say: Say) -> TokenizerPlan:
    """Estimates what `run` would take, from a sample of its text; takes and raises what it does."""
    blocks = _plan_inputs(options)
    total = sum(block.bytes for block in blocks)
    assumed = assumed_bytes(options.assume_bytes, dry_run=True) or total
    beam_arguments, how = choose_runner(beam_arguments, assumed)
    return plan_tokenizer(options, run_of(options, blocks, beam_arguments, how), assumed / total)


def run(options: TokenizerOptions, beam_arguments: list[str], *, say: Say) -> Result[TokenizerInfo]:
    """Trains the tokenizer, unless the output directory already contains it.

    Args:
      options: the command's.
      beam_arguments: Beam's flags.
      say: is given a line at each step.

    Raises:
      UsageError: the inputs or the output directory cannot be used.
      DataError: the inputs are damaged or empty.
    """
    began = time.monotonic()
    blocks = _plan_inputs(options)
    warnings: list[Caution] = []

    def make(staging: Staging) -> None:
        report = train(options, blocks, beam_arguments, staging, say, warnings)
        publish(options.output, staging.run, report)

    def find() -> TokenizerInfo | None:
        return find_tokenizer(
            options.output, options.parameters(), lambda: digest_text(options, blocks)
        )

    found = find_or_make(options.output, TokenizerInfo, find, make, overwrite=options.overwrite)
    seconds = None if found else time.monotonic() - began
    tokenizer = found or open_finished(TokenizerInfo, options.output)
    warnings += check.warn_of_small_vocabulary(options, tokenizer.report.vocab_size)
    return Result(
        thing=tokenizer,
        seconds=seconds,
        documents=describe_documents(blocks, options.source) if blocks else "",
        warnings=tuple(warnings),
        inputs=options.reading.input,
    )


def _plan_inputs(options: TokenizerOptions) -> list[Block]:
    """The blocks of the text; none with --from_histogram."""
    refuse_others(options.output, TokenizerInfo)
    check.refuse_unusable(options)
    blocks = [] if options.from_histogram else plan_blocks(options.source)
    refuse_own_inputs(options.output, (part.path for block in blocks for part in block.parts))
    return blocks
