"""Shows a row of a shard set as text, its counts, rows that hold a text.

`python -m pipelines.inspect_shards DIR`; see --help.
"""

import sys

import tyro

from pipelines.host.unused import leave_out_pandas
from pipelines.inspection.options import INSPECT_HELP, InspectOptions
from schemas.commands.entry import import_later, run_entry
from schemas.commands.help import command_name, show_help

# Imports pyarrow and tokenizers.
show_sets = import_later("pipelines.inspection.show_sets:show_sets")


def main(argv: list[str]) -> None:
    """Shows what a command line asks for."""
    show_help(argv, INSPECT_HELP, InspectOptions)
    options = tyro.cli(
        InspectOptions, prog=command_name(INSPECT_HELP.module), args=argv, use_underscores=True
    )
    leave_out_pandas()
    if code := show_sets(options):
        sys.exit(code)


if __name__ == "__main__":
    run_entry(main)
