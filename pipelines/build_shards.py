"""Text -> tokenized, packed, masked shards: `python -m pipelines.build_shards --help`."""

from pipelines.build.options import BuildOptions, parse_options
from pipelines.configs.config_file import with_config
from pipelines.runners.launch import check_arguments
from pipelines.runners.runner_check import refuse_bad_runner
from pipelines.storage import store_calls
from pipelines.tasks.task import task_class
from schemas.errors import run_entry
from schemas.features import TASKS
from schemas.memory import want_addresses


def main(argv: list[str]) -> None:
    """Parses the command line and builds the set, or finds it built."""
    argv = with_config(
        argv,
        "build_shards",
        _all_flags,
        check_unknown=lambda flags: check_arguments(flags, *_all_flags()),
    )
    options, beam_arguments = parse_options(argv)
    want_addresses(2.4, "build_shards")
    check_arguments(beam_arguments, BuildOptions, type(options.settings))
    store_calls.use_options(beam_arguments)
    # Not before: --help and a wrong flag are answered without what a run takes.
    from pipelines.build.run import build_or_find
    from pipelines.runners.preflight.command import preflight_shards

    if options.preflight:
        preflight_shards(options, beam_arguments)
        return
    refuse_bad_runner(beam_arguments)
    build_or_find(options, beam_arguments)


def _all_flags() -> tuple[type, ...]:
    return (BuildOptions, *map(task_class, TASKS))


if __name__ == "__main__":
    run_entry(main)
