"""Text -> a dataset of tokenized, packed rows: `python -m pipelines.build_shards --help`."""

from typing import TYPE_CHECKING

from textmill.pipelines.host.imports import leave_out_pandas
from textmill.pipelines.host.s3_flags import take_s3_flags
from textmill.pipelines.runners.launch import check_arguments, with_beam
from textmill.pipelines.shards.options import BuildOptions, parse_options
from textmill.pipelines.tasks.task import task_class
from textmill.schemas.commands.entry import import_later, run_entry, want_addresses
from textmill.schemas.commands.flag_file import with_config
from textmill.schemas.format.features import TASKS

if TYPE_CHECKING:
    from textmill.pipelines.runners.result import Result, Say
    from textmill.schemas.files.finished import SetInfo

# Slow imports, which --help does not need.
run = import_later("textmill.pipelines.shards.run:run")
plan = import_later("textmill.pipelines.shards.run:plan")
print_plan = import_later("textmill.pipelines.shards.summary:print_plan")
print_result = import_later("textmill.pipelines.shards.summary:print_result")
make_console = import_later("textmill.pipelines.runners.console:Console")
preflight_shards = import_later("textmill.pipelines.preflight.shards:preflight_shards")
refuse_cleaning = import_later("textmill.pipelines.corpus.options:refuse_cleaning")


def main(argv: list[str]) -> None:
    """Parses the command line and builds the dataset, or finds it built."""
    options, beam_arguments = parse(argv)
    say = make_console(soft_wrap=True).print
    if result := start(options, beam_arguments, say):
        print_result(result, say)


def parse(argv: list[str]) -> tuple[BuildOptions, list[str]]:
    """The options of a command line, and flags of Beam."""
    argv = with_config(argv, "build_shards", _all_flags, check_unknown=_refuse_unknown)
    options, beam_arguments = parse_options(argv)
    want_addresses(2.4, "build_shards")
    own = BuildOptions, type(options.settings)
    _refuse_unknown(beam_arguments, *own, runner=not options.run.preflight)
    return options, beam_arguments


def start(options: BuildOptions, beam_arguments: list[str], say: "Say") -> "Result[SetInfo] | None":
    """Builds the dataset, or finds it; None if the options request a plan or a check only."""
    take_s3_flags(beam_arguments)
    leave_out_pandas()
    if options.run.preflight:
        with_beam()
        preflight_shards(options, beam_arguments, say=say)
    elif options.run.dry_run:
        print_plan(plan(options, beam_arguments, say=say), say)
    else:
        return run(options, beam_arguments, say=say)
    return None


def _refuse_unknown(arguments: list[str], *own: type, runner: bool = False) -> None:
    if arguments:
        refuse_cleaning(arguments, "build_shards")
        check_arguments(arguments, *(own or _all_flags()), runner=runner)


def _all_flags() -> tuple[type, ...]:
    return (BuildOptions, *map(task_class, TASKS))


if __name__ == "__main__":
    run_entry(main)
