"""Raw text -> a corpus of clean documents: `python -m pipelines.build_corpus --help`."""

from textmill.pipelines.corpus.options import HELP, CorpusOptions
from textmill.pipelines.host.flags import parse_flags
from textmill.pipelines.host.imports import leave_out_pandas
from textmill.pipelines.runners.launch import check_arguments, with_beam
from textmill.pipelines.store import take_s3_flags
from textmill.schemas.commands.entry import import_later, run_entry, want_addresses
from textmill.schemas.commands.flag_file import with_config

# Slow imports, which --help does not need.
run = import_later("textmill.pipelines.corpus.run:run")
plan = import_later("textmill.pipelines.corpus.run:plan")
print_plan = import_later("textmill.pipelines.corpus.summary:print_plan")
print_result = import_later("textmill.pipelines.corpus.summary:print_result")
console = import_later("textmill.pipelines.runners.console:Console")
preflight_corpus = import_later("textmill.pipelines.runners.preflight:preflight_corpus")


def main(argv: list[str]) -> None:
    """Parses the command line and builds the corpus, or finds it built."""
    argv = with_config(
        argv,
        "build_corpus",
        lambda: (CorpusOptions,),
        check_unknown=lambda flags: check_arguments(flags, CorpusOptions),
    )
    options, beam_arguments = parse_flags(argv, HELP, CorpusOptions, return_unknown_args=True)
    want_addresses(2, "build_corpus")
    check_arguments(beam_arguments, CorpusOptions, runner=not options.preflight)
    take_s3_flags(beam_arguments)
    leave_out_pandas()
    if options.preflight:
        with_beam()
        preflight_corpus(options, beam_arguments)
        return
    say = console(soft_wrap=True).print
    if options.dry_run:
        print_plan(plan(options, beam_arguments), say)
    else:
        print_result(run(options, beam_arguments, say=say), say)


if __name__ == "__main__":
    run_entry(main)
