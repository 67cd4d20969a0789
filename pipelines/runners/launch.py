"""Chooses the runner of a command from Beam's flags, and imports Beam only when a command needs it.

The flags of runner and workers are parsed without Beam.
"""

import argparse
import dataclasses
import functools
import gc
import logging
import os
import shutil
import sys
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from textmill.pipelines.host.imports import NOT_LOCAL, leave_out
from textmill.schemas.errors import UsageError

IN_PROCESS = "apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
# Measured with two cores (L = 128, MLM): two threads take 0.94 of the time of one for 50 MB, 0.88
# for 110 MB, 0.75 for 400 MB. For 1 GB, two processes take 1.5 times as long as two threads, and
# 1.4 times the memory. But a thread holds the interpreter's lock for a seventh (blocks) to a
# quarter (shards) of its time, so more than four would wait for each other.
THREADS_PAY_BYTES = 50_000_000
PROCESSES_PAY_BYTES = 600_000_000
MOST_THREADS = 4
LAUNCHER = "TEXTMILL_LAUNCHER"  # environment variable: the id of the process that started workers
PACKAGE = "textmill"  # the name of a package with Textmill among --extra_package
# Runners that Beam also knows by a short name (`flink`, `FLINKRUNNER`); a test compares with Beam.
RUNNERS = (
    "DataflowRunner",
    "BundleBasedDirectRunner",
    "DirectRunner",
    "SwitchingDirectRunner",
    "InteractiveRunner",
    "FlinkRunner",
    "FnApiRunner",
    "KafkaStreamsRunner",
    "PortableRunner",
    "PrismRunner",
    "SparkRunner",
    "TestDirectRunner",
    "TestDataflowRunner",
)
_LOCAL = ("BundleBasedDirectRunner", "DirectRunner", "SwitchingDirectRunner", "FnApiRunner")
# Runners whose job server is a Java program, and the flags of its jar.
_JARS = {
    "FlinkRunner": "flink_job_server_jar",
    "SparkRunner": "spark_job_server_jar",
    "KafkaStreamsRunner": "kafka_streams_job_server_jar",
}


class Workers(NamedTuple):
    """The environment in which workers start.

    Attributes:
      environment: DOCKER, PROCESS, EXTERNAL (a running pool of workers) or LOOPBACK (this process).
      image: the user's container image; "" for Beam's.
      are_bare: whether workers start without Textmill, and install staged packages.
    """

    environment: str
    image: str
    are_bare: bool


@dataclass(frozen=True)
class RunnerFlags:
    """Flags of Beam by name, with Beam's defaults; see `runner_flags`."""

    runner: str | None = None
    job_endpoint: str = ""
    prism_location: str = ""
    direct_running_mode: str = ""
    direct_num_workers: int | None = None
    environment_type: str = ""
    environment_config: str = ""
    environment_option: list[str] = field(default_factory=list)
    sdk_container_image: str = ""
    worker_harness_container_image: str = ""
    extra_package: list[str] = field(default_factory=list)
    flink_master: str = "[auto]"
    spark_master_url: str = "local[4]"
    flink_job_server_jar: str = ""
    spark_job_server_jar: str = ""
    kafka_streams_job_server_jar: str = ""

    @cached_property
    def runner_class(self) -> str:
        """The class of the runner: FlinkRunner for `flink` or a dotted name; "" for no runner."""
        name = self.runner or ""
        if "." in name:
            return name.rpartition(".")[2]
        known = {runner.lower(): runner for runner in RUNNERS}
        return known.get(name.lower()) or known.get(f"{name.lower()}runner", name)

    @property
    def is_prism(self) -> bool:
        """Whether the runner is Prism."""
        return self.runner_class == "PrismRunner"

    @property
    def is_dataflow(self) -> bool:
        """Whether the runner is Dataflow."""
        return self.runner_class.endswith("DataflowRunner")

    @property
    def is_local(self) -> bool:
        """Whether all workers share this machine's disk."""
        return not self.runner_class or self.is_prism or self.runner_class in _LOCAL

    @property
    def job_server(self) -> str:
        """HOST:PORT of a running job server; "" for none."""
        return "" if self.job_endpoint == "embed" else self.job_endpoint  # "embed": this process

    @property
    def jar_flag(self) -> str:
        """The flag of the job server's jar that the runner starts; "" if it starts none."""
        return "" if self.job_endpoint else _JARS.get(self.runner_class, "")

    @property
    def number(self) -> int:
        """The number of workers of the local runner."""
        return 1 if self.direct_num_workers is None else self.direct_num_workers

    @property
    def in_processes(self) -> bool:
        """Whether the local runner's workers are separate processes."""
        return self.direct_running_mode == "multi_processing"

    @property
    def in_parallel(self) -> bool:
        """Whether the local runner's workers are threads or processes."""
        return self.direct_running_mode.startswith("multi_")

    @property
    def workers(self) -> Workers:
        """The environment of workers, and whether it contains Textmill."""
        has_own = any(
            os.path.basename(path).startswith(f"{PACKAGE}-") for path in self.extra_package
        )
        if self.is_dataflow:
            image = self.sdk_container_image or self.worker_harness_container_image
            return Workers("DOCKER", image, not image and not has_own)
        if self.runner_class not in ("PortableRunner", "PrismRunner", *_JARS):
            return Workers("LOOPBACK", "", False)
        in_this_process = (
            self.is_prism
            or (self.runner_class == "FlinkRunner" and self.flink_master in ("[auto]", "[local]"))
            or (self.runner_class == "SparkRunner" and self.spark_master_url.startswith("local"))
        )
        environment = self.environment_type or ("LOOPBACK" if in_this_process else "DOCKER")
        image = self.sdk_container_image or self.worker_harness_container_image
        if environment == "DOCKER":
            name = "docker_container_image="
            images = [o.removeprefix(name) for o in self.environment_option if o.startswith(name)]
            image = images[-1] if images else self.environment_config
        environment = environment.upper()
        is_bare = environment in ("DOCKER", "PROCESS") and not image and not has_own
        return Workers(environment, image, is_bare)


def runner_flags(beam_arguments: list[str]) -> RunnerFlags:
    """Parses flags of Beam; ignores those that `RunnerFlags` does not have."""
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    for flag in dataclasses.fields(RunnerFlags):
        names, kind = [f"--{flag.name}"], int if flag.name == "direct_num_workers" else str
        if flag.default_factory is list:  # Beam also has --extra_packages
            parser.add_argument(*names, f"--{flag.name}s", action="append", dest=flag.name)
        else:
            parser.add_argument(*names, type=kind)
    return RunnerFlags(**vars(parser.parse_known_args(beam_arguments)[0]))


def choose_runner(beam_arguments: list[str], total_bytes: int) -> tuple[list[str], str]:
    """Chooses a runner, unless the user did.

    Returns:
      Beam's arguments, and a description of the choice.

    Raises:
      UsageError: Prism's program is not installed.
    """
    flags = runner_flags(beam_arguments)
    if flags.runner is not None:
        how = f"on {flags.runner_class}"
        if flags.is_prism and not flags.job_endpoint:  # Beam would download a program
            program = find_program(flags.prism_location)
            return [*beam_arguments, f"--prism_location={program}"], how
        return beam_arguments, how
    chosen = [f"--runner={IN_PROCESS}"]
    if flags.direct_running_mode or flags.direct_num_workers is not None:
        return chosen + beam_arguments, "on this machine, as the --direct_ flags set"
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    mode, how = "", "in this process"
    if total_bytes >= THREADS_PAY_BYTES and cores > 1:
        mode, how = "multi_threading", f"in {cores} threads"
        if total_bytes >= PROCESSES_PAY_BYTES and cores > MOST_THREADS:
            mode, how = "multi_processing", f"in {cores} worker processes"
    if mode:
        chosen += [f"--direct_running_mode={mode}", f"--direct_num_workers={cores}"]
    return [*chosen, *beam_arguments], f"{how}, the fastest for input of this size"


def find_program(location: str = "") -> str:
    """The path of Prism's program: --prism_location, beside the Python interpreter, or on the PATH.

    Raises:
      UsageError: there is no such program.
    """
    beside = os.path.join(os.path.dirname(sys.executable), "prism")  # in the virtual environment
    if location:
        program = shutil.which(os.path.abspath(location))
        problem = f"--prism_location={location}: there is no such program"
    else:
        program = shutil.which(beside) or shutil.which("prism")
        problem = f"--runner=PrismRunner: its program is neither {beside} nor on the PATH"
    if not program:
        raise UsageError(
            f"{problem}; build it with `make prism` (needs Go), or set --prism_location=PATH "
            "(Textmill does not download it)"
        )
    return location or program


def check_arguments(beam_arguments: list[str], *ours: type, runner: bool = False) -> None:
    """Rejects flags that neither Textmill nor Beam knows.

    Args:
      beam_arguments: the flags that are not Textmill's.
      ours: the dataclasses of Textmill's flags, to suggest the nearest one.
      runner: whether to check the runner, too.

    Raises:
      UsageError: a flag is unknown, or the runner cannot run.
    """
    if beam_arguments:
        on_this_machine = all(argument.startswith("--direct_") for argument in beam_arguments)
        beam_run = with_beam(clouds=not on_this_machine)
        beam_run.check_flags(beam_arguments, ours)
        if runner:
            beam_run.refuse_bad_runner(beam_arguments)


@functools.cache
def with_beam(*, clouds: bool = False):  # a module, whose type is inferred
    """Imports `beam_run`, and with it Beam, without its warnings.

    Args:
      clouds: whether the runner may need Beam's cloud clients.

    Returns:
      The module `beam_run`.
    """
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.CRITICAL)  # Beam's import logs warnings to the root
    gc.disable()  # modules contain no garbage; searching them would take 0.7 s
    try:
        with leave_out(*() if clouds else NOT_LOCAL):
            # Beam takes up to a second, and help or a finished output do not need it.
            from textmill.pipelines.runners import beam_run
    finally:
        gc.freeze()
        gc.enable()
        root.setLevel(level)
    # Beam's log repeats an error for each layer; Textmill reports it once.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    return beam_run
