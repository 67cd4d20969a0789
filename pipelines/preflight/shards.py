"""--preflight of build_shards."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from textmill.pipelines.encoding.tokenizer import load_tokenizer
from textmill.pipelines.preflight.check import CannotCheck
from textmill.pipelines.preflight.command import Command, as_if_staged, print_checks
from textmill.pipelines.preflight.reach import reach
from textmill.pipelines.readers.sources import Block
from textmill.pipelines.runners.result import Say
from textmill.pipelines.shards.options import BuildOptions
from textmill.pipelines.shards.prepare import BuildRun, complete
from textmill.pipelines.shards.wire import wire
from textmill.schemas.errors import TextmillError

if TYPE_CHECKING:
    import apache_beam as beam


def preflight_shards(options: BuildOptions, beam_arguments: list[str], *, say: Say) -> None:
    """Checks a build_shards command; raises DataError if a check fails."""

    def wire_shards(blocks: list[Block] | None) -> "Callable[[beam.Pipeline], None]":
        reach(options.tokenizer)
        tokenizer = load_tokenizer(options.tokenizer)
        try:
            completed = complete(options, blocks or [], say)
        except TextmillError as error:
            if blocks is None:  # which the task needs
                raise CannotCheck("the inputs cannot be read from this machine") from error
            raise
        run = BuildRun.of(completed, tokenizer, blocks or [], beam_arguments)
        return wire(run, as_if_staged(options.output))

    command = Command(
        name="build_shards",
        beam_arguments=beam_arguments,
        sources=tuple(options.sources.values()),
        output=options.output,
        filter_name=options.filter,
        plan=options.blocks,
        wire=wire_shards,
    )
    print_checks(command, say)
