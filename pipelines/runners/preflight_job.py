"""Checks a job: translates it as for the runner, and unpickles it as workers would.

The packages of workers are installed in an empty virtual environment: by uv if it is installed
(seconds, if its cache is warm), else by venv and pip.
"""

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
from typing import Any, Literal

import apache_beam as beam
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    TestOptions,
)
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.portability.api import beam_runner_api_pb2 as api
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.runners.runner import create_runner
from rich.filesize import decimal

from textmill.pipelines.readers.files import is_url
from textmill.pipelines.runners.beam_run import make_pipeline
from textmill.pipelines.runners.console import Console
from textmill.pipelines.runners.launch import Workers, runner_flags
from textmill.pipelines.runners.worker_package import package_code
from textmill.pipelines.user_filter import load_filter
from textmill.schemas.errors import TextmillError, one_line

_INSTALL_SECONDS, _LOAD_SECONDS = 900, 300
# Messages of installers if no index answers; the packages may still be right.
NO_INDEX = re.compile(
    r"dns error|name resolution|Name or service not known|Network is unreachable|timed out|"
    r"Connection (refused|reset|aborted)|NewConnectionError|error sending request|"
    r"Failed to fetch|Request failed|tunnel|certificate|Max retries|offline|network was disabled",
    re.I,
)
_LOADER = (
    "import sys; from textmill.pipelines.runners.preflight_job import main; main(sys.argv[1:])"
)
_STAND_INS = (
    *("--project=not-given", "--region=us-central1", "--temp_location=gs://none/tmp"),
    *("--staging_location=gs://none/tmp", "--job_name=not-given"),
)


@dataclass(frozen=True)
class Check:
    """The result of a check, with a detail and a remedy for the user."""

    name: str
    state: Literal["ok", "failed", "not checked"]
    detail: str
    remedy: str = ""


def check_flags(beam_arguments: list[str]) -> Check:
    """Checks the flags that Dataflow requires; without a bucket, Beam would create one."""
    flags = PipelineOptions(beam_arguments).view_as(GoogleCloudOptions)
    region = flags.region or os.environ.get("CLOUDSDK_COMPUTE_REGION")
    locations = {
        name: getattr(flags, name)
        for name in ("temp_location", "staging_location")
        if getattr(flags, name)
    }
    needed = {"project": flags.project, "region": region, "temp_location": locations}
    problems = [f"no --{name}" for name, value in needed.items() if not value]
    validator = PipelineOptionsValidator(flags, None)
    for name in locations:
        problems += validator.validate_gcs_path(flags, name)
    if flags.template_location:
        problems.append("--template_location: a job needs the plan of one command")
    if problems:
        remedy = (
            "--project=PROJECT_ID --region=REGION --temp_location=gs://BUCKET/tmp, with a bucket "
            "in the region, without --template_location"
        )
        return Check("flags", "failed", "; ".join(problems), remedy)
    paths = ", ".join(locations.values())
    detail = f"project {flags.project}, region {region}, {paths}: Dataflow checks that they exist"
    return Check("flags", "ok", detail)


def check_job(
    beam_arguments: list[str],
    filter_name: str,
    build: Callable[[beam.Pipeline], Any],
) -> Iterator[Check]:
    """Translates the job, and unpickles it in an environment with the workers' package only."""
    flags = runner_flags(beam_arguments)
    workers, stand_ins = flags.workers, ()
    if flags.is_dataflow and check_flags(beam_arguments).state == "failed":
        stand_ins = _STAND_INS
    try:
        with package_code(beam_arguments, filter_name) as arguments:
            job = translate_job([*arguments, *stand_ins], build)
            size = f"{len(job.components.transforms)} steps, {decimal(job.ByteSize())}"
            yield Check("job", "ok", f"{size}, independent of the number of files")
            if workers.are_bare:
                package = arguments[-1].partition("=")[2]
                yield from _check_package(beam_arguments, filter_name, package, job)
            else:
                yield _check_environment(workers)
    except TextmillError as error:
        yield Check("workers' package", "failed", str(error))
    except (ValueError, ImportError) as error:  # raised by Beam
        remedy = "correct these flags, or pip install '/path/to/textmill[pipelines,gcp]'"
        yield Check("job", "failed", one_line(error), remedy)


def translate_job(arguments: list[str], build: Callable[[beam.Pipeline], Any]) -> api.Pipeline:
    """The job as the runner would receive it; nothing is sent."""
    options = PipelineOptions([*arguments, "--no_save_main_session"])
    flags = runner_flags(arguments)
    if flags.is_dataflow:
        options.view_as(TestOptions).dry_run = True
        options.view_as(GoogleCloudOptions).no_auth = True
        pipeline = make_pipeline(options=options)
        build(pipeline)
        return pipeline.run().job.proto_pipeline  # pyright: ignore[reportAttributeAccessIssue]
    runner = create_runner(flags.runner or "")
    pipeline = make_pipeline(runner=runner, options=options)
    build(pipeline)
    return pipeline.to_runner_api(default_environment=runner.default_environment(options))


def _check_environment(workers: Workers) -> Check:
    name = "workers' package"
    if workers.environment == "LOOPBACK":
        return Check(name, "ok", "workers use the modules of this command")
    same = "Textmill and Python in the versions of this command"
    if workers.environment == "EXTERNAL":
        return Check(name, "not checked", f"pools must have {same}")
    source = f"the image {workers.image}" if workers.image else "your package"
    detail = f"{source} must have {same}"
    return Check(name, "not checked", detail, "deploy/Dockerfile makes an image")


def _check_package(
    beam_arguments: list[str], filter_name: str, package: str, job: api.Pipeline
) -> Iterator[Check]:
    """Installs the package in an empty environment, and unpickles the job there."""
    name, where = "workers' package", "there"
    setup = PipelineOptions(beam_arguments).view_as(SetupOptions)
    local = [path for path in setup.extra_packages or () if not is_url(path)]
    if setup.setup_file:
        local.append(os.path.dirname(os.path.abspath(setup.setup_file)))
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        console = Console(stderr=True, soft_wrap=True)
        with console.working("installing the workers' package in an empty environment"):
            python = os.path.join(folder, "clean", "bin", "python")
            problem = install(python, [package, *local], setup.requirements_file)
        if problem and not NO_INDEX.search(problem):
            remedy = "correct it as pip reports, or set --sdk_container_image (deploy/Dockerfile)"
            yield Check(name, "failed", f"it does not install: {problem[:400]}", remedy)
            return
        if problem:
            reason = f"no package index could be reached: {problem[:200]}"
            yield Check(name, "not checked", reason)
            python, where = sys.executable, "in a new interpreter of this environment"
        else:
            size = decimal(os.path.getsize(package))
            yield Check(name, "ok", f"{size}; it installs in an empty environment")
        with console.working("unpickling the job's functions and coders"):
            loaded, problems = load_job(
                python, job.SerializeToString(), filter_name, package if problem else None
            )
    remedy = (
        "workers need it, too: as a module or package beside that of the filter, as an "
        "--extra_package, or in an image (--sdk_container_image)"
    )
    for problem in problems:
        yield Check("unpickling", "failed", problem, remedy)
    if not problems:
        yield Check("unpickling", "ok", f"all {loaded} functions and coders load {where}")


def install(python: str, packages: list[str], requirements_file: str | None = None) -> str:
    """Creates an environment, and installs packages, files or source directories.

    Returns:
      The output of the installer if it failed, else "".
    """
    folder = os.path.dirname(os.path.dirname(python))
    create, pip = [sys.executable, "-m", "venv"], [python, "-m", "pip", "install"]
    if uv := shutil.which("uv") or shutil.which("uv", path=os.path.dirname(sys.executable)):
        create = [uv, "venv", "--quiet", "--python", sys.executable]
        pip = [uv, "pip", "install", "--python", python]
    required = ["-r", requirements_file] if requirements_file else []
    for step in ([*create, folder], [*pip, "--quiet", *packages, *required]):
        done = _run(step, _INSTALL_SECONDS)
        if done.returncode:
            printed = " ".join((done.stderr or done.stdout).split())
            return printed or f"exit code {done.returncode}"
    return ""


def load_job(
    python: str, job: bytes, filter_name: str, package: str | None
) -> tuple[int, list[str]]:
    """Unpickles a job in a new interpreter, without the current directory and its modules.

    Args:
      python: the interpreter.
      job: a serialized pipeline.
      filter_name: the filter that must be importable; "" for none.
      package: the workers' package if it is not installed, else None.

    Returns:
      The number of functions and coders that load, and the problems of the others.
    """
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        path, modules = os.path.join(folder, "job.pb"), os.path.join(folder, "package")
        with open(path, "wb") as file:
            file.write(job)
        if package:
            with zipfile.ZipFile(package) as wheel:
                wheel.extractall(modules)
        command = [python, "-c", _LOADER, path, *([filter_name] if filter_name else [])]
        done = _run(command, _LOAD_SECONDS, folder, modules if package else None)
    if done.returncode:
        printed = done.stderr.strip().splitlines()
        return 0, [(printed or [f"it ended with exit code {done.returncode}"])[-1]]
    result = json.loads(done.stdout.splitlines()[-1])
    return result["loaded"], result["problems"]


def _run(
    command: list[str], seconds: float, folder: str | None = None, modules: str | None = None
) -> "subprocess.CompletedProcess[str]":
    """Runs a command that imports nothing of this environment except `modules`."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    if modules:
        environment["PYTHONPATH"] = modules
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        reason = f"timed out after {seconds / 60:.0f} minutes"
        return subprocess.CompletedProcess(command, 124, "", reason)


def main(argv: list[str]) -> None:
    """Loads a job's functions and coders, and a filter; `load_job` runs it in another interpreter.

    Prints one line of JSON: how many were loaded, and the problems of the others.

    Args:
      argv: the path of a serialized pipeline, and `package.module:function` if there is a filter.
    """
    pickler.set_library("cloudpickle")  # Beam's default
    path, *filters = argv
    with open(path, "rb") as file:
        components = api.Pipeline.FromString(file.read()).components
    context, problems, loaded = PipelineContext(components), [], 0
    functions = {
        step.unique_name: api.ParDoPayload.FromString(step.spec.payload).do_fn.payload
        for step in components.transforms.values()
        if step.spec.urn == "beam:transform:pardo:v1"
    }
    calls: dict[str, tuple[Callable, Any]] = {
        f"the step {name}": (pickler.loads, data) for name, data in functions.items()
    }
    calls |= {f"the coder {name}": (context.coders.get_by_id, name) for name in components.coders}
    calls |= {f"--filter={name}": (load_filter, name) for name in filters}
    for what, (load, argument) in calls.items():
        try:
            load(argument)
            loaded += 1
        except TextmillError as error:
            problems.append(str(error))
        except Exception as error:
            problems.append(f"{what} does not load: {type(error).__name__}: {error}")
    sys.stdout.write(json.dumps({"loaded": loaded, "problems": problems}) + "\n")
