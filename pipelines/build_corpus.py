"""Raw text -> a corpus of clean documents: `python -m pipelines.build_corpus --help`."""

import tyro

from pipelines.corpus.options import CorpusOptions
from pipelines.host.unused import leave_out_pandas
from pipelines.runners.launch import check_arguments
from pipelines.storage import s3_flags
from schemas.commands.entry import run_entry, want_addresses
from schemas.commands.flag_file import with_config


def main(argv: list[str]) -> None:
    """Parses the command line and builds the corpus, or finds it built."""
    options, beam_arguments = tyro.cli(
        CorpusOptions,
        prog="python -m pipelines.build_corpus",
        args=with_config(
            argv,
            "build_corpus",
            lambda: (CorpusOptions,),
            check_unknown=lambda flags: check_arguments(flags, CorpusOptions),
        ),
        return_unknown_args=True,
        use_underscores=True,
    )
    want_addresses(2, "build_corpus")
    check_arguments(beam_arguments, CorpusOptions, runner=True)
    s3_flags.take(beam_arguments)
    leave_out_pandas()
    # --help and a wrong flag are answered without what this imports.
    from pipelines.corpus.run import build_or_find

    build_or_find(options, beam_arguments)


if __name__ == "__main__":
    run_entry(main)
