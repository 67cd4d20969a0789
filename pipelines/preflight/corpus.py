"""--preflight of build_corpus."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from textmill.pipelines.corpus.decontamination.targets import find_targets
from textmill.pipelines.corpus.filter_documents import load_filters
from textmill.pipelines.corpus.options import CorpusOptions
from textmill.pipelines.corpus.prepare import CorpusRun
from textmill.pipelines.corpus.rules.decontamination import Decontamination
from textmill.pipelines.corpus.wire import wire
from textmill.pipelines.preflight.command import Command, as_if_staged, print_checks
from textmill.pipelines.readers.sources import Block, plan_blocks
from textmill.pipelines.runners.result import Say

if TYPE_CHECKING:
    import apache_beam as beam


def preflight_corpus(options: CorpusOptions, beam_arguments: list[str], *, say: Say) -> None:
    """Checks a build_corpus command; raises DataError if a check fails."""
    filters = options.filters

    def wire_corpus(blocks: list[Block] | None) -> "Callable[[beam.Pipeline], None]":
        load_filters(replace(filters, decontamination=Decontamination(), filter=""))
        if filters.decontamination.decontaminate:
            find_targets(filters, say)
        run = CorpusRun.of(options, blocks or [], beam_arguments)
        return wire(run, as_if_staged(options.output))

    command = Command(
        name="build_corpus",
        beam_arguments=beam_arguments,
        sources=(options.source,),
        output=options.output,
        filter_name=filters.filter,
        plan=partial(plan_blocks, options.source),
        wire=wire_corpus,
    )
    print_checks(command, say)
