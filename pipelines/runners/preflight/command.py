"""--preflight: looks at a command before a cluster costs money, and says what would fail.

Nothing is written and no job is started.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np

from pipelines.build.options import BuildOptions
from pipelines.build.plan import Run, estimate
from pipelines.build.run import complete, wire
from pipelines.decontamination.options import Decontamination
from pipelines.encoding.tokenizer import load_tokenizer
from pipelines.host.console import Console
from pipelines.readers.files import is_url
from pipelines.readers.sources import Block, plan_blocks
from pipelines.runners.preflight.checks import (
    Asked,
    Check,
    check_filter,
    check_flags,
    check_inputs,
    check_output,
    check_runner,
    most_workers,
    unreachable,
)
from pipelines.runners.preflight.costs import Corpus, Rates, check_counting, check_shards, costs
from pipelines.runners.preflight.job import check_job
from pipelines.train.options import TokenizerOptions
from pipelines.train.run import refuse_unusable, run_of, wire_counting
from pipelines.writers.staging import STAGING, Staging
from schemas.drops import BY_SHARD
from schemas.errors import DataError, TextmillError, UsageError
from schemas.features import token_dtype

Wiring = Callable[[beam.Pipeline], Any]
_NO_INPUTS = "the inputs could not be read from here"


class Preflight:
    """The checks of one command, in their order.

    Attributes:
      checks: that were made.
    """

    def __init__(self, asked: Asked):
        self._asked = asked
        self._console = Console()
        self.checks: list[Check] = []
        self.say(f"preflight of {asked.command}: nothing is written, no job is started")

    def add(self, *checks: Check) -> None:
        """Prints them as they come: some take a minute."""
        for check in checks:
            self.checks.append(check)
            self.say(f"{check.state:12} {check.name:16} {check.found}")
            if check.remedy:
                self.say(f"{'':29} -> {check.remedy}")

    def say(self, line: str) -> None:
        """Prints a line below the checks."""
        self._console.print(line, soft_wrap=True)

    def places(self) -> "list[Block] | None":
        """Runner, flags, inputs, output and filter.

        Returns:
          The plan of the inputs; None where they cannot be read from here.
        """
        asked = self._asked
        self.add(check_runner(asked))
        if asked.on_dataflow:
            self.add(*check_flags(asked.beam_arguments))
        found, blocks = check_inputs(asked)
        self.add(found, check_output(asked))
        if asked.filter_name:
            self.add(check_filter(asked))
        return blocks

    def job(self, wiring: Wiring) -> None:
        """The job as the runner would get it, and the package of its workers."""
        runner_failed = self.checks[0].state == "failed"
        if not self._asked.flags.is_local and not runner_failed:
            for check in check_job(self._asked, wiring):
                self.add(check)

    def end(self) -> None:
        """Says how many failed.

        Raises:
          DataError: some did.
        """
        states = [check.state for check in self.checks]
        failed, skipped = states.count("failed"), states.count("not checked")
        left_out = f"; {skipped} could not be made" if skipped else ""
        if failed:
            raise DataError(f"{failed} of {len(states)} checks failed{left_out}")
        self.say(f"nothing failed in {len(states)} checks{left_out}")


def preflight_shards(options: BuildOptions, beam_arguments: list[str]) -> None:
    """Looks at a build_shards command.

    Args:
      options: of the command.
      beam_arguments: its other flags.

    Raises:
      DataError: a check failed.
    """
    given = options.given_splits()
    patterns = tuple(p for some in given.values() for p in some) or options.input
    asked = Asked(
        "build_shards",
        beam_arguments,
        patterns,
        options.output,
        options.filters.filter,
        options.blocks,
    )
    look = Preflight(asked)
    blocks = look.places()
    path = options.tokenizer
    if is_url(path) and (problem := unreachable(path)):
        look.add(Check("tokenizer", "not checked", f"{path}: {problem}"))
        look.end()
        return
    try:
        tokenizer = load_tokenizer(path)
        options = complete(options, blocks or [], look.say)
        run = Run.of(options, tokenizer, blocks or [], beam_arguments)
    except TextmillError as error:
        look.add(Check("tokenizer", "failed", str(error)))
        look.end()
        return
    said = f"{path}, {tokenizer.vocab_size:,} ids, fits --task={options.task}; it goes with the job"
    look.add(Check("tokenizer", "ok", said))
    look.job(wire(run, as_if_staged(options.output)))
    if blocks is None:
        look.add(Check("keys", "not checked", _NO_INPUTS))
    else:
        _add_costs(look, asked, run)
    look.end()


def as_if_staged(output: str) -> Staging:
    """Where a run would keep its files; nothing is made there."""
    folder = os.path.join(output, STAGING)
    if is_url(output):
        return Staging(folder, os.path.join(tempfile.gettempdir(), STAGING), "preflight")
    return Staging(folder, folder)


def _add_costs(look: Preflight, asked: Asked, run: Run) -> None:
    """Keys, memory and work, from a sample of the inputs and rates that were measured."""
    schema, on = run.schema, run.on
    filters = replace(on.filters, decontamination=Decontamination())  # which takes two passes
    try:
        found = estimate(replace(run, on=replace(on, filters=filters)))
    except TextmillError as error:
        look.add(Check("keys", "failed", str(error), "mend the inputs"))
        return
    rows = sum(found.rows.values()) or 1.0
    kept = found.documents - sum(found.dropped.values())
    wanted = kept + sum(found.dropped.get(drop.name, 0.0) for drop in BY_SHARD)
    fullest = max(schema.shards, key=lambda split: found.rows.get(split, 0) / schema.shards[split])
    corpus = Corpus(
        text_bytes=found.text_bytes,
        documents=found.documents,
        tokens=found.tokens * wanted / max(kept, 1.0),  # all copies travel
        shards=schema.shards[fullest],
        workers=most_workers(asked.beam_arguments) or 1,
        share=found.rows.get(fullest, 0) / rows,
        token_bytes=np.dtype(token_dtype(schema.vocab_size)).itemsize,
    )
    look.add(*check_shards(asked, costs(corpus, Rates()), sum(schema.shards.values())))


def preflight_tokenizer(options: TokenizerOptions, beam_arguments: list[str]) -> None:
    """Looks at a train_tokenizer command.

    Args:
      options: of the command.
      beam_arguments: its other flags.

    Raises:
      UsageError: there is no pipeline to look at, or a flag is no pattern or no chat template.
      DataError: a check failed.
    """
    if options.from_histogram:
        raise UsageError("--from_histogram runs no pipeline: --preflight has nothing to look at")
    refuse_unusable(options)
    asked = Asked(
        "train_tokenizer",
        beam_arguments,
        options.input,
        options.output,
        options.filters.filter,
        lambda: plan_blocks(options.source()),
    )
    look = Preflight(asked)
    blocks = look.places()
    run = run_of(options, blocks or [], beam_arguments)
    look.job(wire_counting(options, run, as_if_staged(options.output)))
    if blocks is None:
        look.add(Check("work", "not checked", _NO_INPUTS))
    else:
        look.add(*check_counting(asked, sum(block.bytes for block in blocks)))
    look.end()
