"""Refuses, before anything is read, flags that nobody knows and runners that cannot work."""

import argparse
import contextlib
import difflib
import importlib
import inspect
import os
import shutil
import zipfile
from typing import NoReturn

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.runner import PipelineRunner

from pipelines.runners.job_server import ask_flags
from schemas.commands.flag_file import kinds_of
from schemas.errors import UsageError

MOST_WORKERS = 1024  # threads of one process, or processes of one machine
# Runners whose job server is a Java program, and the flags that say where it lies.
_JARS = {
    "FlinkRunner": "flink_job_server_jar",
    "SparkRunner": "spark_job_server_jar",
    "KafkaStreamsRunner": "kafka_streams_job_server_jar",
}
_OTHERS = (
    "; leave it out to run on this machine, or give DirectRunner, PrismRunner, PortableRunner, "
    "FlinkRunner, SparkRunner, DataflowRunner, or the dotted name of another of Beam's"
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def check_flags(beam_arguments: list[str], ours: tuple[type, ...], *, runner: bool) -> list[str]:
    """Refuses what neither Textmill nor Beam knows: see `launch.check_arguments`."""
    _refuse_unknown_flags(beam_arguments, ours)
    beam_arguments = _with_class_name(beam_arguments)
    if runner:
        refuse_bad_runner(beam_arguments)
    return beam_arguments


def _refuse_unknown_flags(beam_arguments: list[str], ours: tuple[type, ...]) -> None:
    parser = _Parser(add_help=False, allow_abbrev=False)
    for options_class in PipelineOptions.__subclasses__():
        with contextlib.suppress(argparse.ArgumentError):  # two classes offer the same flag
            options_class._add_argparse_args(parser)  # pyright: ignore[reportArgumentType]
    _, unknown = parser.parse_known_args(beam_arguments)
    if unknown:
        for flag in ask_flags(beam_arguments):
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


def _with_class_name(beam_arguments: list[str]) -> list[str]:
    """The arguments with the name of the runner's class, where Beam knows it by a shorter one.

    Beam takes `flink`, `FLINKRUNNER` and `FlinkRunner` for one; all else looks at the last alone.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--runner")
    given, others = parser.parse_known_args(beam_arguments)
    known = _class_path(given.runner or "").rpartition(".")[2]
    return [f"--runner={known}", *others] if known else beam_arguments


def _class_path(name: str) -> str:
    """The class of one of Beam's own runners: flink -> apache_beam. ... .FlinkRunner; or ""."""
    meant = {path.rpartition(".")[2].lower(): path for path in StandardOptions.ALL_KNOWN_RUNNERS}
    return meant.get(name.lower()) or meant.get(f"{name.lower()}runner", "")


def refuse_bad_runner(beam_arguments: list[str]) -> None:
    """Refuses a runner that is none, or has nothing to run on; and workers of no number.

    Args:
      beam_arguments: that Beam knows.

    Raises:
      UsageError: names the flag, and what to give instead.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("runner", "job_endpoint", *_JARS.values()):
        parser.add_argument(f"--{flag}")
    parser.add_argument("--direct_num_workers", type=int, default=1)
    given = vars(parser.parse_known_args(beam_arguments)[0])
    workers, name = given["direct_num_workers"], given["runner"]
    if not 1 <= workers <= MOST_WORKERS:
        raise UsageError(f"--direct_num_workers={workers}: from 1 to {MOST_WORKERS}")
    if name is None:
        return
    found = _find_runner(name)
    if given["job_endpoint"]:
        return
    if found == "PortableRunner":
        raise UsageError(f"--runner={name} takes a job server: --job_endpoint=HOST:PORT")
    if found in _JARS:
        _check_jar(name, _JARS[found], given[_JARS[found]])


def _find_runner(name: str) -> str:
    """The name of the runner's class: flink -> FlinkRunner. Imports it, but makes none."""
    known = _class_path(name)
    module, _, cls = (known or name).rpartition(".")
    if known and cls == "InteractiveRunner":
        raise UsageError(f"--runner={name} is for notebooks: leave it out, to run here")
    why = _OTHERS
    try:
        found = getattr(importlib.import_module(module), cls)
    except Exception as error:  # whatever a module raises that is imported
        if known:  # of Beam's own something else is missing, and said: apache_beam[gcp]
            why = f", as a package is missing: {error}"
        raise UsageError(f"--runner={name}: there is no such runner{why}") from error
    if not (inspect.isclass(found) and issubclass(found, PipelineRunner)):
        raise UsageError(f"--runner={name} is no runner{why}")
    if found is PipelineRunner:
        raise UsageError(f"--runner={name} is what runners have in common{why}")
    return found.__name__


def _check_jar(name: str, flag: str, jar: str | None) -> None:
    """Beam by itself would download a jar of 100 MB or more, or try to for minutes."""
    instead = f"give --job_endpoint=HOST:PORT of one that runs, or --{flag}=PATH"
    if not jar:
        raise UsageError(
            f"--runner={name} takes a job server, and nothing is downloaded: {instead}"
        )
    if "://" not in jar and not os.path.isfile(jar):
        raise UsageError(f"--{flag}={jar}: there is no such file; {instead}")
    if "://" not in jar and not zipfile.is_zipfile(jar):
        raise UsageError(f"--{flag}={jar} is no jar; {instead}")
    if not shutil.which("java"):
        raise UsageError(f"--{flag} takes Java, and there is no `java` on the PATH: {instead}")
