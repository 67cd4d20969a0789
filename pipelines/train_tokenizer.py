"""Text -> a tokenizer: `python -m pipelines.train_tokenizer --help`."""

from typing import TYPE_CHECKING

from textmill.pipelines.host.flags import parse_flags
from textmill.pipelines.host.imports import leave_out_pandas
from textmill.pipelines.host.s3_flags import take_s3_flags
from textmill.pipelines.runners.launch import check_arguments, with_beam
from textmill.pipelines.tokenizer.options import HELP, TokenizerOptions
from textmill.schemas.commands.entry import import_later, run_entry, want_addresses
from textmill.schemas.commands.flag_file import with_config

if TYPE_CHECKING:
    from textmill.pipelines.runners.result import Result, Say
    from textmill.pipelines.tokenizer.output import FinishedTokenizer

# Slow imports, which --help does not need.
plan = import_later("textmill.pipelines.tokenizer.run:plan")
run = import_later("textmill.pipelines.tokenizer.run:run")
make_console = import_later("textmill.pipelines.runners.console:Console")
print_plan = import_later("textmill.pipelines.tokenizer.summary:print_plan")
print_result = import_later("textmill.pipelines.tokenizer.summary:print_result")
preflight_tokenizer = import_later("textmill.pipelines.preflight.tokenizer:preflight_tokenizer")
refuse_cleaning = import_later("textmill.pipelines.corpus.options:refuse_cleaning")


def main(argv: list[str]) -> None:
    """Parses the command line and trains the tokenizer, or finds it trained."""
    options, beam_arguments = parse(argv)
    say = make_console(soft_wrap=True).print
    if result := start(options, beam_arguments, say):
        print_result(options, result, say)


def parse(argv: list[str]) -> tuple[TokenizerOptions, list[str]]:
    """The options of a command line, and flags of Beam."""
    argv = with_config(
        argv, "train_tokenizer", lambda: (TokenizerOptions,), check_unknown=_refuse_unknown
    )
    options, beam_arguments = parse_flags(argv, HELP, TokenizerOptions, return_unknown_args=True)
    want_addresses(2, "train_tokenizer")
    _refuse_unknown(beam_arguments, runner=not options.preflight)
    return options, beam_arguments


def start(
    options: TokenizerOptions, beam_arguments: list[str], say: "Say"
) -> "Result[FinishedTokenizer] | None":
    """Trains the tokenizer, or finds it; None if the options request a plan or a check only."""
    take_s3_flags(beam_arguments)
    leave_out_pandas()
    if options.preflight:
        with_beam()
        preflight_tokenizer(options, beam_arguments, say=say)
    elif options.dry_run:
        print_plan(plan(options, beam_arguments), say)
    else:
        return run(options, beam_arguments, say=say)
    return None


def _refuse_unknown(arguments: list[str], *, runner: bool = False) -> None:
    if arguments:
        refuse_cleaning(arguments, "train_tokenizer")
        check_arguments(arguments, TokenizerOptions, runner=runner)


if __name__ == "__main__":
    run_entry(main)
