"""Shard sets as Parquet, JSON Lines or Arrow, for tools that read no tf.train.Example.

`python -m pipelines.export DIR --to=parquet --output=DIR`; see --help. A file a shard, of the same
name and the same order of rows; export.json is written last and tells what was exported.
"""

import tyro

from pipelines.host.unused import leave_out_pandas
from pipelines.inspection.options import EXPORT_HELP, ExportOptions
from schemas.commands.entry import import_later, run_entry
from schemas.commands.help import command_name, show_help

# Imports pyarrow and tokenizers.
export_set = import_later("pipelines.inspection.export_set:export_set")


def main(argv: list[str]) -> None:
    """Exports what a command line asks for, or finds it exported."""
    show_help(argv, EXPORT_HELP, ExportOptions)
    options = tyro.cli(
        ExportOptions, prog=command_name(EXPORT_HELP.module), args=argv, use_underscores=True
    )
    leave_out_pandas()
    export_set(options)


if __name__ == "__main__":
    run_entry(main)
