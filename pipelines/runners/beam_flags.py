"""Checks Beam's flags before a run. Imports Beam; see `launch.check_arguments`."""

import argparse
import contextlib
import importlib
import inspect
from collections.abc import Iterable
from typing import NoReturn

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.runner import PipelineRunner

from textmill.pipelines.runners.job_server import reach_job_server
from textmill.pipelines.runners.runner_flags import runner_flags
from textmill.schemas.commands.help import describe_unknown
from textmill.schemas.errors import UsageError, flag

MOST_WORKERS = 1024  # threads of one process, or processes of one machine
_OTHERS = (
    f"omit {flag('runner')} to run on this machine, or choose DirectRunner, PrismRunner, "
    "PortableRunner, FlinkRunner, SparkRunner, DataflowRunner, or the dotted name of another Beam "
    "runner"
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def check_flags(beam_arguments: list[str], ours: Iterable[str]) -> None:
    """Rejects flags that neither Textmill nor Beam knows: see `launch.check_arguments`."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    for options_class in PipelineOptions.__subclasses__():
        with contextlib.suppress(argparse.ArgumentError):  # two classes have the same flag
            options_class._add_argparse_args(parser)  # pyright: ignore[reportArgumentType]
    _, unknown = parser.parse_known_args(beam_arguments)
    if unknown and (address := runner_flags(beam_arguments).job_server):
        for option in reach_job_server(address):
            with contextlib.suppress(argparse.ArgumentError):
                parser.add_argument(option, nargs="?")
        _, unknown = parser.parse_known_args(beam_arguments)
    if unknown:
        known = [o for action in parser._actions for o in action.option_strings]
        known += [f"--{name}" for name in ours]
        neither = "neither Textmill nor Beam has it"
        raise UsageError(describe_unknown(unknown[0], known, neither))


def refuse_bad_runner(beam_arguments: list[str]) -> None:
    """Raises UsageError for a runner that cannot run, or a wrong number of workers."""
    flags = runner_flags(beam_arguments)
    if not 1 <= flags.number <= MOST_WORKERS:
        raise UsageError(
            f"{flag('direct_num_workers', flags.number)}: must be from 1 to {MOST_WORKERS}"
        )
    if flags.runner is None:
        return
    _refuse_unknown_runner(flags.runner, flags.runner_class)
    if flags.lacks_job_server:
        needs, command = "a job server", "start it"
        if flags.is_prism:
            needs = "a running Prism"
            command += " with `prism --job_port=8073`, which `make prism` builds"
        raise UsageError(
            f"{flag('runner', flags.runner)} needs {needs}: {command}, and set "
            f"{flag('job_endpoint', 'HOST:PORT')}"
        )


def _refuse_unknown_runner(name: str, runner_class: str) -> None:
    """Imports the runner's class; does not call it, since the name may be that of any function."""
    known = {path.rpartition(".")[2]: path for path in StandardOptions.ALL_KNOWN_RUNNERS}
    path = name if "." in name else known.get(runner_class, name)
    module, _, attribute = path.rpartition(".")
    reason = ""
    try:
        value = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing a module may raise anything
        value, reason = None, f" ({type(error).__name__}: {error})"
    is_runner = inspect.isclass(value) and issubclass(value, PipelineRunner)
    if not is_runner or value is PipelineRunner:
        raise UsageError(f"{flag('runner', name)}: there is no such runner{reason}; {_OTHERS}")
