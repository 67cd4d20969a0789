"""--preflight of train_tokenizer."""

from functools import partial

from textmill.pipelines.preflight.command import Command, as_if_staged, print_checks
from textmill.pipelines.readers.sources import plan_blocks
from textmill.pipelines.runners.result import Say
from textmill.pipelines.tokenizer.check import refuse_unusable
from textmill.pipelines.tokenizer.counting import run_of, wire_counting
from textmill.pipelines.tokenizer.options import TokenizerOptions
from textmill.schemas.errors import UsageError, flag


def preflight_tokenizer(options: TokenizerOptions, beam_arguments: list[str], *, say: Say) -> None:
    """Checks a train_tokenizer command; raises DataError if a check fails.

    Raises:
      UsageError: there is no pipeline to check, or the pattern or chat template cannot be used.
    """
    if options.from_histogram:
        raise UsageError(
            f"{flag('preflight', True)} has nothing to check: "
            f"{flag('from_histogram')} runs no pipeline"
        )
    refuse_unusable(options)
    command = Command(
        name="train_tokenizer",
        beam_arguments=beam_arguments,
        sources=(options.source,),
        output=options.output,
        filter_name=options.reading.filter,
        plan=partial(plan_blocks, options.source),
        wire=lambda blocks: wire_counting(
            options, run_of(options, blocks or [], beam_arguments), as_if_staged(options.output)
        ),
    )
    print_checks(command, say)
