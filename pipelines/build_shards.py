"""Text -> a dataset of tokenized, packed rows: `python -m pipelines.build_shards --help`."""

from textmill.pipelines.runners.builder import Builder
from textmill.pipelines.shards.options import HELP, BuildOptions, parse_of_task
from textmill.pipelines.tasks.task import task_classes
from textmill.schemas.commands.entry import import_later, run_entry

BUILDER = Builder(
    HELP,
    BuildOptions,
    gigabytes=2.4,
    parse_own=parse_of_task,
    list_more=task_classes,
    # Slow imports, which --help does not need.
    run=import_later("textmill.pipelines.shards.run:run"),
    plan=import_later("textmill.pipelines.shards.run:plan"),
    print_result=import_later("textmill.pipelines.shards.summary:print_result"),
    print_plan=import_later("textmill.pipelines.shards.summary:print_plan"),
    preflight=import_later("textmill.pipelines.preflight.shards:preflight_shards"),
)


def main(argv: list[str]) -> None:
    """Runs a command line."""
    BUILDER.main(argv)


if __name__ == "__main__":
    run_entry(main)
