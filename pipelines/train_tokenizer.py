"""Text -> a tokenizer: `python -m pipelines.train_tokenizer --help`."""

from textmill.pipelines.runners.builder import Builder
from textmill.pipelines.tokenizer.options import HELP, TokenizerOptions
from textmill.schemas.commands.entry import import_later, run_entry

BUILDER = Builder(
    HELP,
    TokenizerOptions,
    gigabytes=2,
    # Slow imports, which --help does not need.
    run=import_later("textmill.pipelines.tokenizer.run:run"),
    plan=import_later("textmill.pipelines.tokenizer.run:plan"),
    print_result=import_later("textmill.pipelines.tokenizer.summary:print_result"),
    print_plan=import_later("textmill.pipelines.tokenizer.summary:print_plan"),
    preflight=import_later("textmill.pipelines.preflight.tokenizer:preflight_tokenizer"),
)


def main(argv: list[str]) -> None:
    """Runs a command line."""
    BUILDER.main(argv)


if __name__ == "__main__":
    run_entry(main)
