"""Raw text -> a corpus of clean documents: `python -m pipelines.build_corpus --help`."""

from textmill.pipelines.corpus.options import HELP, CorpusOptions
from textmill.pipelines.host.flags import parse_flags
from textmill.pipelines.host.imports import leave_out_pandas
from textmill.pipelines.runners.launch import check_arguments, with_beam
from textmill.pipelines.store import take_s3_flags
from textmill.schemas.commands.entry import import_later, run_entry, want_addresses
from textmill.schemas.commands.flag_file import with_config

build_or_find = import_later("textmill.pipelines.corpus.run:build_or_find")
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
    else:
        build_or_find(options, beam_arguments)


if __name__ == "__main__":
    run_entry(main)
