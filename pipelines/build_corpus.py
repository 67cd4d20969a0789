"""Raw text -> a corpus of clean documents: `python -m pipelines.build_corpus --help`."""

from textmill.pipelines.corpus.options import HELP, CorpusOptions
from textmill.pipelines.runners.builder import Builder
from textmill.schemas.commands.entry import import_later, run_entry

BUILDER = Builder(
    HELP,
    CorpusOptions,
    gigabytes=2,
    # Slow imports, which --help does not need.
    run=import_later("textmill.pipelines.corpus.run:run"),
    plan=import_later("textmill.pipelines.corpus.run:plan"),
    print_result=import_later("textmill.pipelines.corpus.summary:print_result"),
    print_plan=import_later("textmill.pipelines.corpus.summary:print_plan"),
    preflight=import_later("textmill.pipelines.preflight.corpus:preflight_corpus"),
)


def main(argv: list[str]) -> None:
    """Runs a command line."""
    BUILDER.main(argv)


if __name__ == "__main__":
    run_entry(main)
