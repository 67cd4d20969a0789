"""Labelled documents -> a model of quality: `python -m pipelines.train_quality_model --help`."""

from textmill.pipelines.quality.options import HELP, QualityOptions
from textmill.pipelines.runtime.imports import block_pandas
from textmill.schemas.commands.entry import import_later, run_entry
from textmill.schemas.commands.options import parse_options

# Import rich, pyarrow and the readers.
make_console = import_later("textmill.pipelines.runners.console:Console")
train_model = import_later("textmill.pipelines.quality.run:train_model")


def main(argv: list[str]) -> None:
    """Trains the model of a command line."""
    options: QualityOptions = parse_options(argv, HELP, QualityOptions)
    block_pandas()
    train_model(options, say=make_console(soft_wrap=True).print)


if __name__ == "__main__":
    run_entry(main)
