"""Refuses, before anything is read, flags that nobody knows and runners that cannot work."""

import argparse
import contextlib
import difflib
import importlib
import inspect
import shutil
import zipfile
from typing import NoReturn

import grpc
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.runner import PipelineRunner

from pipelines.runners.beam_flags import RunnerFlags, runner_flags
from schemas.commands.flag_file import kinds_of
from schemas.errors import UsageError

MOST_WORKERS = 1024  # threads of one process, or processes of one machine
_ANSWER_SECONDS = 10
_OTHERS = (
    "leave it out to run on this machine, or give DirectRunner, PrismRunner, PortableRunner, "
    "FlinkRunner, SparkRunner, DataflowRunner, or the dotted name of another of Beam's"
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def check_flags(beam_arguments: list[str], ours: tuple[type, ...]) -> None:
    """Refuses what neither Textmill nor Beam knows: see `launch.check_arguments`."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    for options_class in PipelineOptions.__subclasses__():
        with contextlib.suppress(argparse.ArgumentError):  # two classes offer the same flag
            options_class._add_argparse_args(parser)  # pyright: ignore[reportArgumentType]
    _, unknown = parser.parse_known_args(beam_arguments)
    if unknown and (address := runner_flags(beam_arguments).job_server):
        for flag in reach_job_server(address):
            with contextlib.suppress(argparse.ArgumentError):
                parser.add_argument(flag, nargs="?")
        _, unknown = parser.parse_known_args(beam_arguments)
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = [o for action in parser._actions for o in action.option_strings]
        known += [f"--{name}" for name in kinds_of(*ours)]
        near = difflib.get_close_matches(flag, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"unknown flag {unknown[0]}: neither Textmill nor Beam has it{hint}")


def reach_job_server(address: str) -> list[str]:
    """Waits for a job server, 10 s at most; Beam would wait for five minutes.

    Args:
      address: HOST:PORT.

    Returns:
      Flags that its runner takes beside Beam's, such as `--max_bundle_size`.

    Raises:
      UsageError: no job server answers there.
    """
    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_ANSWER_SECONDS)
        except grpc.FutureTimeoutError as error:
            raise UsageError(
                f"--job_endpoint={address}: no job server answers there within {_ANSWER_SECONDS} "
                "s; start it, or give the address that it listens on (8099 is its usual port)"
            ) from error
        request = beam_job_api_pb2.DescribePipelineOptionsRequest()
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        with contextlib.suppress(grpc.RpcError):  # Prism has no such list
            answer = stub.DescribePipelineOptions(request, timeout=_ANSWER_SECONDS)
            return [f"--{option.name}" for option in answer.options]
    return []


def refuse_bad_runner(beam_arguments: list[str]) -> None:
    """Refuses a runner that is none, or has nothing to run on; and workers of no number.

    Args:
      beam_arguments: that Beam knows.

    Raises:
      UsageError: names the flag, and what to give instead.
    """
    flags = runner_flags(beam_arguments)
    if not 1 <= flags.number <= MOST_WORKERS:
        raise UsageError(f"--direct_num_workers={flags.number}: from 1 to {MOST_WORKERS}")
    if flags.runner is None:
        return
    _refuse_unknown_runner(flags.runner, flags.runner_class)
    if flags.runner_class == "PortableRunner" and not flags.job_endpoint:
        raise UsageError(f"--runner={flags.runner} takes a job server: --job_endpoint=HOST:PORT")
    if flags.jar_flag:
        _check_jar(flags)


def _refuse_unknown_runner(name: str, runner_class: str) -> None:
    """Imports the runner's class, but creates no runner: the name may be that of any function."""
    known = {path.rpartition(".")[2]: path for path in StandardOptions.ALL_KNOWN_RUNNERS}
    path = name if "." in name else known.get(runner_class, name)
    module, _, attribute = path.rpartition(".")
    why = ""
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a module raises that is imported
        found, why = None, f" ({type(error).__name__}: {error})"
    is_runner = inspect.isclass(found) and issubclass(found, PipelineRunner)
    if not is_runner or found is PipelineRunner:
        raise UsageError(f"--runner={name}: there is no such runner{why}; {_OTHERS}")


def _check_jar(flags: RunnerFlags) -> None:
    """Beam by itself would download a jar of 100 MB or more, or try to for minutes."""
    flag, jar = flags.jar_flag, getattr(flags, flags.jar_flag)
    instead = f"give --job_endpoint=HOST:PORT of one that runs, or --{flag}=PATH"
    if not jar:
        raise UsageError(
            f"--runner={flags.runner} takes a job server, and nothing is downloaded: {instead}"
        )
    if "://" not in jar and not zipfile.is_zipfile(jar):
        raise UsageError(f"--{flag}={jar} is not the path of a jar; {instead}")
    if not shutil.which("java"):
        raise UsageError(f"--{flag} takes Java, and there is no `java` on the PATH: {instead}")
