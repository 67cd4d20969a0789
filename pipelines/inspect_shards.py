"""Shows rows of a dataset as text, or its counts: `python -m pipelines.inspect_shards DATASET`."""

import sys

from textmill.pipelines.inspection.options import INSPECT_HELP, InspectOptions
from textmill.pipelines.runtime.imports import block_pandas
from textmill.schemas.commands.entry import import_later, run_entry
from textmill.schemas.commands.options import parse_options

# Imports pyarrow and tokenizers.
show_sets = import_later("textmill.pipelines.inspection.show_sets:show_sets")


def main(argv: list[str]) -> None:
    """Shows the rows or counts that a command line names."""
    options: InspectOptions = parse_options(argv, INSPECT_HELP, InspectOptions)
    block_pandas()
    if code := show_sets(options):
        sys.exit(code)


if __name__ == "__main__":
    run_entry(main)
