"""Text -> a tokenizer: `python -m pipelines.train_tokenizer --help`."""

import tyro

from pipelines.host.unused import leave_out_pandas
from pipelines.runners.launch import check_arguments, with_beam
from pipelines.storage import s3_flags
from pipelines.train.options import TokenizerOptions
from schemas.commands.entry import run_entry, want_addresses
from schemas.commands.flag_file import with_config


def main(argv: list[str]) -> None:
    """Parses the command line and trains the tokenizer, or finds it trained."""
    options, beam_arguments = tyro.cli(
        TokenizerOptions,
        prog="python -m pipelines.train_tokenizer",
        args=with_config(
            argv,
            "train_tokenizer",
            lambda: (TokenizerOptions,),
            check_unknown=lambda flags: check_arguments(flags, TokenizerOptions),
        ),
        return_unknown_args=True,
        use_underscores=True,
    )
    want_addresses(2, "train_tokenizer")
    check_arguments(beam_arguments, TokenizerOptions, runner=not options.preflight)
    s3_flags.take(beam_arguments)
    leave_out_pandas()
    # --help and a wrong flag are answered without what these import.
    if options.preflight:
        with_beam()
        from pipelines.runners.preflight.command import preflight_tokenizer as command
    else:
        from pipelines.train.run import train_or_find as command
    command(options, beam_arguments)


if __name__ == "__main__":
    run_entry(main)
