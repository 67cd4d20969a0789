"""What --preflight makes of the job: translated as for the runner, unpickled as by its workers.

An empty virtual environment gets what workers would install: by uv where there is one (seconds, if
its cache is warm), else by venv and pip. What takes an index to install from, where there is none,
is said not to have been checked.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    TestOptions,
)
from apache_beam.portability.api import beam_runner_api_pb2 as api
from apache_beam.runners.runner import create_runner
from rich.filesize import decimal

from pipelines.host.console import Console
from pipelines.readers.files import is_url
from pipelines.runners.beam_flags import Workers, runner_flags
from pipelines.runners.preflight.checks import Asked, Check, check_flags
from pipelines.runners.worker_package import package_code
from schemas.errors import TextmillError, one_line

_MOST_JOB_BYTES = 10_000_000  # Dataflow refuses a larger job
_INSTALL_SECONDS, _LOAD_SECONDS = 900, 300
# What installers say where no index answers.
_NO_INDEX = re.compile(
    r"dns error|name resolution|Name or service not known|Network is unreachable|timed out|"
    r"Connection (refused|reset|aborted)|NewConnectionError|error sending request|"
    r"Failed to fetch|Request failed|tunnel|certificate|Max retries|offline|network was disabled",
    re.I,
)
_LOADER = (
    "import sys; from pipelines.runners.preflight.unpickle_job import main; main(sys.argv[1:])"
)


def check_job(asked: Asked, build: Callable[[beam.Pipeline], Any]) -> Iterator[Check]:
    """Translates the job, and unpickles it where only the workers' package is installed."""
    workers = asked.flags.workers
    try:
        with package_code(asked.beam_arguments, asked.filter_name) as arguments:
            job = translate_job(arguments, build)
            yield _check_graph(job)
            if workers.are_bare:
                yield from _check_package(asked, arguments[-1].partition("=")[2], job)
    except TextmillError as error:
        yield Check("workers' package", "failed", str(error))
        return
    except (ValueError, ImportError) as error:  # as Beam says it
        said = one_line(error)
        yield Check("job", "failed", said, "mend the flags that it names")
        return
    if not workers.are_bare:
        yield _check_environment(workers)


def translate_job(arguments: list[str], build: Callable[[beam.Pipeline], Any]) -> api.Pipeline:
    """The job as the runner would get it; nobody is asked and nothing is sent.

    Args:
      arguments: Beam's; where those for Dataflow are not complete, others stand in.
      build: adds the transforms.
    """
    runner_name = runner_flags(arguments).runner or ""
    on_dataflow = runner_name.endswith("DataflowRunner")
    stand_ins = []
    if on_dataflow and any(check.state == "failed" for check in check_flags(arguments)):
        stand_ins = ["--project=not-given", "--region=us-central1", "--temp_location=gs://none/tmp"]
        stand_ins += ["--staging_location=gs://none/tmp", "--job_name=not-given"]
    options = PipelineOptions([*arguments, *stand_ins, "--no_save_main_session"])
    if on_dataflow:
        options.view_as(TestOptions).dry_run = True
        options.view_as(GoogleCloudOptions).no_auth = True
        pipeline = beam.Pipeline(options=options)
        build(pipeline)
        return pipeline.run().job.proto_pipeline  # pyright: ignore[reportAttributeAccessIssue]
    runner = create_runner(runner_name)
    pipeline = beam.Pipeline(runner=runner, options=options)
    build(pipeline)
    return pipeline.to_runner_api(default_environment=runner.default_environment(options))


def side_inputs(job: api.Pipeline) -> list[str]:
    """The steps of the job that have side inputs."""
    return [
        step.unique_name
        for step in job.components.transforms.values()
        if step.spec.urn == "beam:transform:pardo:v1"
        and api.ParDoPayload.FromString(step.spec.payload).side_inputs
    ]


def _check_graph(job: api.Pipeline) -> Check:
    steps, size = len(job.components.transforms), job.ByteSize()
    said = f"{steps} steps, {decimal(size)}, whatever the number of files"
    if sided := side_inputs(job):
        return Check("job", "failed", f"{said}; side inputs of {', '.join(sided)}", "a defect")
    if size > _MOST_JOB_BYTES:
        limit = decimal(_MOST_JOB_BYTES)
        return Check("job", "failed", f"{said}: more than {limit}", "fewer values in the flags")
    return Check("job", "ok", f"{said}; no side inputs")


def _check_environment(workers: Workers) -> Check:
    name = "workers' package"
    if workers.environment == "LOOPBACK":
        return Check(name, "ok", "workers have the modules of this command")
    if workers.environment == "EXTERNAL":
        said = "pools bring Textmill themselves, of the version and the Python of this command"
        return Check(name, "not checked", said)
    brings = f"the image {workers.image}" if workers.image else "your package of Textmill"
    said = f"{brings} is taken to hold Textmill, of the version and the Python of this command"
    return Check(name, "not checked", said, "deploy/Dockerfile makes one")


def _check_package(asked: Asked, package: str, job: api.Pipeline) -> Iterator[Check]:
    """Installs it where nothing else is, and unpickles the job there."""
    name = "workers' package"
    serialized = job.SerializeToString()
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder, contextlib.ExitStack() as stack:
        if sys.stderr.isatty():
            stack.enter_context(Console(stderr=True).status("installing the workers' package"))
        setup = PipelineOptions(asked.beam_arguments).view_as(SetupOptions)
        local = [path for path in setup.extra_packages or () if not is_url(path)]
        if setup.setup_file:
            local.append(os.path.dirname(os.path.abspath(setup.setup_file)))
        found = install(os.path.join(folder, "clean"), [package, *local], setup.requirements_file)
        size = decimal(os.path.getsize(package))
        if found.problem and not found.no_index:
            remedy = "mend what pip says, or give --sdk_container_image (deploy/Dockerfile)"
            yield Check(name, "failed", f"it does not install: {found.problem[:400]}", remedy)
            return
        if found.problem:
            said = f"no index to install from could be reached: {found.problem[:200]}"
            yield Check(name, "not checked", said)
        else:
            yield Check(name, "ok", f"{size}; it installs in an empty environment")
        loaded, problems = load_job(
            found.python or sys.executable,
            serialized,
            asked.filter_name,
            None if found.python else package,
        )
    where = "there" if found.python else "by a new interpreter of this environment"
    for problem in problems:
        yield Check(
            "unpickling",
            "failed",
            problem,
            "workers need it too: as a module or package of its own beside the filter's, as an "
            "--extra_package, or in an image (--sdk_container_image)",
        )
    if not problems:
        yield Check("unpickling", "ok", f"all {loaded} functions and coders load {where}")


@dataclass(frozen=True)
class Installed:
    """What came of installing.

    Attributes:
      python: of the environment; "" if it failed.
      problem: what the installer said.
      no_index: whether that was for want of an index, and says nothing of the packages.
    """

    python: str
    problem: str = ""
    no_index: bool = False


def install(folder: str, packages: list[str], requirements_file: str | None = None) -> Installed:
    """Makes an environment in a folder and installs packages there.

    Args:
      folder: a new one.
      packages: files, or folders with a setup.py.
      requirements_file: of requirements, besides.
    """
    python = os.path.join(folder, "bin", "python")
    uv = shutil.which("uv") or shutil.which("uv", path=os.path.dirname(sys.executable))
    make = (
        [uv, "venv", "--quiet", "--python", sys.executable]
        if uv
        else [sys.executable, "-m", "venv"]
    )
    pip = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    required = ["-r", requirements_file] if requirements_file else []
    for step in ([*make, folder], [*pip, "--quiet", *packages, *required]):
        try:
            done = _run(step, _INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            return Installed("", f"not done after {_INSTALL_SECONDS // 60} minutes", no_index=True)
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())
            return Installed("", said, no_index=_NO_INDEX.search(said) is not None)
    return Installed(python)


def load_job(
    python: str, job: bytes, filter_name: str, package: str | None
) -> tuple[int, list[str]]:
    """Unpickles a job in a fresh interpreter, away from this folder and its modules.

    Args:
      python: that runs it.
      job: a serialized pipeline.
      filter_name: that has to be importable; "" for none.
      package: the workers' package, where it is not installed: its files come before all others.

    Returns:
      How many functions and coders there are, and what does not load.
    """
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        path, modules = os.path.join(folder, "job.pb"), os.path.join(folder, "package")
        with open(path, "wb") as file:
            file.write(job)
        if package:
            with zipfile.ZipFile(package) as wheel:
                wheel.extractall(modules)
        command = [python, "-c", _LOADER, path, *([filter_name] if filter_name else [])]
        try:
            done = _run(command, _LOAD_SECONDS, folder, modules if package else None)
        except subprocess.TimeoutExpired:
            return 0, [f"it is not loaded after {_LOAD_SECONDS // 60} minutes"]
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with exit code {done.returncode}"]
        return 0, [said[-1]]
    found = json.loads(done.stdout.splitlines()[-1])
    return found["loaded"], found["problems"]


def _run(
    command: list[str], seconds: float, folder: str | None = None, modules: str | None = None
) -> "subprocess.CompletedProcess[str]":
    """Runs a command that imports nothing of this environment, but what is in `modules`."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        command,
        cwd=folder,
        env={**environment, "PYTHONPATH": modules} if modules else environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
    )
