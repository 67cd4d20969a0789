"""Raw text -> a corpus of clean documents: `python -m pipelines.build_corpus --help`."""

from pipelines.corpus.options import HELP, CorpusOptions
from pipelines.host.flags import parse_flags
from pipelines.host.imports import leave_out_pandas
from pipelines.runners.launch import check_arguments, with_beam
from pipelines.store import take_s3_flags
from schemas.commands.entry import import_later, run_entry, want_addresses
from schemas.commands.flag_file import with_config

build_or_find = import_later("pipelines.corpus.run:build_or_find")
preflight_corpus = import_later("pipelines.runners.preflight:preflight_corpus")


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
