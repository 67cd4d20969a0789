"""Text -> its near-duplicates: `python -m pipelines.find_duplicates --help`."""

import tyro

from pipelines.corpus.near_duplicates.options import FindOptions
from pipelines.runners.launch import check_arguments
from pipelines.storage import s3_flags
from schemas.commands.entry import run_entry, want_addresses
from schemas.commands.flag_file import with_config


def main(argv: list[str]) -> None:
    """Parses the command line and finds near-duplicates, or finds them found."""
    options, beam_arguments = tyro.cli(
        FindOptions,
        prog="python -m pipelines.find_duplicates",
        args=with_config(
            argv,
            "find_duplicates",
            lambda: (FindOptions,),
            check_unknown=lambda flags: check_arguments(flags, FindOptions),
        ),
        return_unknown_args=True,
        use_underscores=True,
    )
    want_addresses(2, "find_duplicates")
    check_arguments(beam_arguments, FindOptions, runner=True)
    s3_flags.take(beam_arguments)
    # --help and a wrong flag are answered without what this imports.
    from pipelines.corpus.near_duplicates.run import find_or_tell

    find_or_tell(options, beam_arguments)


if __name__ == "__main__":
    run_entry(main)
