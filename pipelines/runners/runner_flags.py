"""Beam's flags of runner and workers, parsed without Beam."""

import argparse
import dataclasses
import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

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
# Runners to which a job server submits jobs.
_SERVED = ("PortableRunner", "PrismRunner", "FlinkRunner", "SparkRunner", "KafkaStreamsRunner")


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
    """Beam's flags by name, with Beam's defaults; see `runner_flags`."""

    runner: str | None = None
    job_endpoint: str = ""
    direct_running_mode: str = ""
    direct_num_workers: int | None = None
    environment_type: str = ""
    environment_config: str = ""
    environment_option: list[str] = field(default_factory=list)
    sdk_container_image: str = ""
    worker_harness_container_image: str = ""
    extra_package: list[str] = field(default_factory=list)
    dataflow_service_option: list[str] = field(default_factory=list)
    experiment: list[str] = field(default_factory=list)
    flink_master: str = "[auto]"
    spark_master_url: str = "local[4]"
    template_location: str = ""

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
    def is_prime(self) -> bool:
        """Whether the runner is Dataflow Prime, which chooses machines by the hints of steps."""
        options = ",".join([*self.dataflow_service_option, *self.experiment]).split(",")
        return self.is_dataflow and "enable_prime" in options

    @property
    def is_template(self) -> bool:
        """Whether the job is left in a file, and Dataflow starts it once this command has ended."""
        return self.is_dataflow and bool(self.template_location)

    @property
    def is_local(self) -> bool:
        """Whether all workers share this machine's disk."""
        return not self.runner_class or self.is_prism or self.runner_class in _LOCAL

    @property
    def job_server(self) -> str:
        """HOST:PORT of a running job server; "" for none."""
        return "" if self.job_endpoint == "embed" else self.job_endpoint  # "embed": this process

    @property
    def lacks_job_server(self) -> bool:
        """Whether the runner needs a job server, and none is named."""
        return self.runner_class in _SERVED and not self.job_endpoint

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
        if self.runner_class not in _SERVED:
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
    """Parses Beam's flags; ignores those that `RunnerFlags` does not have."""
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
