"""Raw text -> a corpus of clean documents: `python -m pipelines.build_corpus --help`."""

from typing import TYPE_CHECKING

from textmill.pipelines.corpus.options import HELP, CorpusOptions
from textmill.pipelines.host.flags import parse_flags
from textmill.pipelines.host.imports import leave_out_pandas
from textmill.pipelines.host.s3_flags import take_s3_flags
from textmill.pipelines.runners.launch import check_arguments, with_beam
from textmill.schemas.commands.entry import import_later, run_entry, want_addresses
from textmill.schemas.commands.flag_file import with_config

if TYPE_CHECKING:
    from textmill.pipelines.runners.result import Result, Say
    from textmill.schemas.files.finished import Corpus

# Slow imports, which --help does not need.
run = import_later("textmill.pipelines.corpus.run:run")
plan = import_later("textmill.pipelines.corpus.run:plan")
print_plan = import_later("textmill.pipelines.corpus.summary:print_plan")
print_result = import_later("textmill.pipelines.corpus.summary:print_result")
make_console = import_later("textmill.pipelines.runners.console:Console")
preflight_corpus = import_later("textmill.pipelines.preflight.corpus:preflight_corpus")


def main(argv: list[str]) -> None:
    """Parses the command line and builds the corpus, or finds it built."""
    options, beam_arguments = parse(argv)
    say = make_console(soft_wrap=True).print
    if result := start(options, beam_arguments, say):
        print_result(result, say)


def parse(argv: list[str]) -> tuple[CorpusOptions, list[str]]:
    """The options of a command line, and flags of Beam."""
    argv = with_config(
        argv,
        "build_corpus",
        lambda: (CorpusOptions,),
        check_unknown=lambda flags: check_arguments(flags, CorpusOptions),
    )
    options, beam_arguments = parse_flags(argv, HELP, CorpusOptions, return_unknown_args=True)
    want_addresses(2, "build_corpus")
    check_arguments(beam_arguments, CorpusOptions, runner=not options.preflight)
    return options, beam_arguments


def start(options: CorpusOptions, beam_arguments: list[str], say: "Say") -> "Result[Corpus] | None":
    """Builds the corpus, or finds it built; None if the options request a plan or a check only."""
    take_s3_flags(beam_arguments)
    leave_out_pandas()
    if options.preflight:
        with_beam()
        preflight_corpus(options, beam_arguments, say=say)
    elif options.dry_run:
        print_plan(plan(options, beam_arguments), say)
    else:
        return run(options, beam_arguments, say=say)
    return None


if __name__ == "__main__":
    run_entry(main)
