"""Shows a row of a shard set as text, its counts, rows that hold a text.

`python -m pipelines.inspect_shards DIR`; see --help.
"""

import sys

import tyro

from pipelines.host.unused import leave_out_pandas
from pipelines.inspection.options import InspectOptions
from schemas.commands.entry import import_later, run_entry

# Imports pyarrow and tokenizers.
show_sets = import_later("pipelines.inspection.show_sets:show_sets")


def main(argv: list[str]) -> None:
    """Shows what a command line asks for."""
    options = tyro.cli(
        InspectOptions, prog="python -m pipelines.inspect_shards", args=argv, use_underscores=True
    )
    leave_out_pandas()
    if code := show_sets(options):
        sys.exit(code)


if __name__ == "__main__":
    run_entry(main)
