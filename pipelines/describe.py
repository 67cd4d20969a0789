"""Describes a corpus or a dataset: `python -m pipelines.describe CORPUS|DATASET --to=DIR`."""

from textmill.pipelines.description.options import HELP, DescribeOptions
from textmill.schemas.commands.entry import import_later, run_entry
from textmill.schemas.commands.options import parse_options

# Imports jinja2.
describe = import_later("textmill.pipelines.description.run:describe")


def main(argv: list[str]) -> None:
    """Describes the directory of a command line."""
    options: DescribeOptions = parse_options(argv, HELP, DescribeOptions)
    describe(options)


if __name__ == "__main__":
    run_entry(main)
