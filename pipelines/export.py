"""Converts a dataset to Parquet, JSON Lines, Arrow or MDS: `python -m pipelines.export DATASET`.

Each shard becomes one file of the same name, with its rows in the same order. export.json, written
last, describes the export.
"""

from textmill.pipelines.inspection.options import EXPORT_HELP, ExportOptions
from textmill.pipelines.runtime.imports import block_pandas
from textmill.schemas.commands.entry import import_later, run_entry
from textmill.schemas.commands.options import parse_options

# Imports pyarrow and tokenizers.
export_set = import_later("textmill.pipelines.inspection.export_set:export_set")


def main(argv: list[str]) -> None:
    """Exports the dataset of a command line, or finds it exported."""
    options: ExportOptions = parse_options(argv, EXPORT_HELP, ExportOptions)
    block_pandas()
    export_set(options)


if __name__ == "__main__":
    run_entry(main)
