"""What Beam's flags say of a runner and its workers, read in one place and without Beam."""

import argparse
import os
from dataclasses import dataclass
from typing import NamedTuple

PACKAGE = "textmill"  # what a user's own package of Textmill is called
_LOCAL_RUNNERS = (
    "",
    "DirectRunner",
    "SwitchingDirectRunner",
    "BundleBasedDirectRunner",
    "FnApiRunner",
    "PrismRunner",
)
_BY_JOB_SERVER = ("PortableRunner", "FlinkRunner", "SparkRunner", "PrismRunner")


class Workers(NamedTuple):
    """What workers start in.

    Attributes:
      environment: DOCKER, PROCESS, EXTERNAL (a pool that runs already), LOOPBACK (this process).
      image: of the user's own; "" for Beam's.
      are_bare: whether they start without Textmill, and install what is staged for them.
    """

    environment: str
    image: str
    are_bare: bool


@dataclass(frozen=True)
class RunnerFlags:
    """Flags as they are given, with Beam's defaults.

    Attributes:
      is_named: whether a runner is.
      runner: its class name: DataflowRunner; "" where none is named.
      job_endpoint: the address of a job server; "" for none, and for one in this process.
      is_embedded: whether it is to be one in this process.
      prism_location: the program of Prism.
      mode: --direct_running_mode.
      number: --direct_num_workers.
    """

    is_named: bool
    runner: str
    job_endpoint: str
    is_embedded: bool
    prism_location: str | None
    mode: str
    number: int
    given: argparse.Namespace

    @property
    def is_local(self) -> bool:
        """Whether all workers share this machine's disk."""
        return self.runner in _LOCAL_RUNNERS

    @property
    def is_prism(self) -> bool:
        """Whether the runner is Prism."""
        return self.runner == "PrismRunner"

    @property
    def in_processes(self) -> bool:
        """Whether the local runner's workers are processes of their own."""
        return self.mode == "multi_processing"

    @property
    def in_parallel(self) -> bool:
        """Whether the local runner's workers are threads or processes."""
        return self.mode.startswith("multi_")

    @property
    def workers(self) -> Workers:
        """What workers start in, and whether Textmill is there."""
        given, runner = self.given, self.runner
        packages = map(os.path.basename, given.extra_package or ())
        has_own = any(name.startswith(f"{PACKAGE}-") for name in packages)
        image = given.sdk_container_image or given.worker_harness_container_image
        if runner.endswith("DataflowRunner"):
            return Workers("DOCKER", image, not image and not has_own)
        if runner not in _BY_JOB_SERVER:
            return Workers("LOOPBACK", "", False)
        in_this_process = (
            runner == "PrismRunner"
            or (runner == "FlinkRunner" and given.flink_master in ("[auto]", "[local]"))
            or (runner == "SparkRunner" and given.spark_master_url.startswith("local"))
        )
        environment = given.environment_type or ("LOOPBACK" if in_this_process else "DOCKER")
        if environment == "DOCKER":
            options = dict(o.partition("=")[::2] for o in given.environment_option or ())
            image = options.get("docker_container_image", "") or given.environment_config or ""
        environment = environment.upper()
        is_bare = environment in ("DOCKER", "PROCESS") and not image and not has_own
        return Workers(environment, image, is_bare)


def runner_flags(beam_arguments: list[str]) -> RunnerFlags:
    """What they say; flags that are not looked at here are passed over."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("runner", "prism_location", "environment_type", "environment_config"):
        parser.add_argument(f"--{name}")
    for name in ("job_endpoint", "direct_running_mode", "sdk_container_image"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--direct_num_workers", default="1")
    parser.add_argument("--worker_harness_container_image", default="")
    parser.add_argument("--environment_option", "--environment_options", action="append")
    parser.add_argument("--extra_package", "--extra_packages", action="append")
    parser.add_argument("--flink_master", default="[auto]")
    parser.add_argument("--spark_master_url", default="local[4]")
    given = parser.parse_known_args(beam_arguments)[0]
    is_embedded = given.job_endpoint == "embed"
    number = given.direct_num_workers
    return RunnerFlags(
        is_named=given.runner is not None,
        runner=(given.runner or "").rpartition(".")[2],
        job_endpoint="" if is_embedded else given.job_endpoint,
        is_embedded=is_embedded,
        prism_location=given.prism_location,
        mode=given.direct_running_mode,
        number=int(number) if number.isdecimal() else 1,
        given=given,
    )
