"""Shows rows of a dataset as text, or its counts: `python -m pipelines.inspect_shards DATASET`."""

import sys

import tyro

from pipelines.host.imports import leave_out_pandas
from pipelines.inspection.options import INSPECT_HELP, InspectOptions
from schemas.commands.entry import import_later, run_entry
from schemas.commands.help import command_name, report_parse_errors, show_help

# Imports pyarrow and tokenizers.
show_sets = import_later("pipelines.inspection.show_sets:show_sets")


def main(argv: list[str]) -> None:
    """Shows the rows or counts that a command line names."""
    show_help(argv, INSPECT_HELP, InspectOptions)
    report_parse_errors(InspectOptions)
    options = tyro.cli(
        InspectOptions, prog=command_name(INSPECT_HELP.module), args=argv, use_underscores=True
    )
    leave_out_pandas()
    if code := show_sets(options):
        sys.exit(code)


if __name__ == "__main__":
    run_entry(main)
