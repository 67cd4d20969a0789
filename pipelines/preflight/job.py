"""Checks a job: translates it as for the runner, and unpickles it as workers would."""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, TestOptions
from apache_beam.portability.api import beam_runner_api_pb2 as api
from apache_beam.runners.runner import create_runner
from rich.filesize import decimal

from textmill.pipelines.preflight.check import Check
from textmill.pipelines.preflight.flags import check_flags
from textmill.pipelines.runners.beam_patches import RunOptions, make_pipeline
from textmill.pipelines.runners.runner_flags import Workers, runner_flags
from textmill.pipelines.runners.worker_package import package_code
from textmill.schemas.errors import TextmillError, flag, one_line

_LOAD_SECONDS = 300
_STAND_INS = (
    *("--project=not-given", "--region=us-central1", "--temp_location=gs://none/tmp"),
    *("--staging_location=gs://none/tmp", "--job_name=not-given"),
)


def check_job(
    beam_arguments: list[str], filter_name: str, build: Callable[[beam.Pipeline], Any]
) -> Iterator[Check]:
    """Translates the job, and unpickles it with only the modules of the workers' package."""
    flags, stand_ins = runner_flags(beam_arguments), ()
    if flags.is_dataflow and check_flags(beam_arguments).state == "failed":
        stand_ins = _STAND_INS
    try:
        with package_code(beam_arguments, filter_name) as arguments:
            job = translate_job([*arguments, *stand_ins], build)
            size = f"{len(job.components.transforms)} steps, {decimal(job.ByteSize())}"
            yield Check("job", "ok", f"{size}, independent of the number of files")
            if not flags.workers.are_bare:
                yield _check_environment(flags.workers)
                return
            package = arguments[-1].partition("=")[2]
            detail = (
                f"{decimal(os.path.getsize(package))}; it requires the versions of this machine"
            )
            yield Check("workers' package", "ok", detail)
            loaded, problems = load_job(job.SerializeToString(), filter_name, package)
    except TextmillError as error:
        yield Check("workers' package", "failed", str(error))
        return
    except (ValueError, ImportError, OSError, RuntimeError) as error:  # raised by Beam
        remedy = "correct these flags, or pip install '/path/to/textmill[pipelines,gcp]'"
        yield Check("job", "failed", one_line(error), remedy)
        return
    remedy = (
        "workers need it, too: as a module or package beside that of the filter, or in an image "
        f"({flag('sdk_container_image')})"
    )
    # Workers install further packages, which may provide what is missing here.
    state = "not checked" if flags.extra_package else "failed"
    for problem in problems:
        yield Check("unpickling", state, problem, remedy)
    if not problems:
        detail = f"all {loaded} functions and coders load in a new interpreter"
        yield Check("unpickling", "ok", detail)


def translate_job(arguments: list[str], build: Callable[[beam.Pipeline], Any]) -> api.Pipeline:
    """The job as the runner would receive it; nothing is sent."""
    options = RunOptions([*arguments, "--no_save_main_session"])
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


def load_job(job: bytes, filter_name: str, package: str) -> tuple[int, list[str]]:
    """Unpickles a job in a new interpreter, without the current directory and its modules.

    Args:
      job: a serialized pipeline.
      filter_name: the filter that must be importable; "" for none.
      package: the workers' package, a wheel.

    Returns:
      The number of functions and coders that load, and the problems of the others.
    """
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        path, modules = os.path.join(folder, "job.pb"), os.path.join(folder, "package")
        with open(path, "wb") as file:
            file.write(job)
        with zipfile.ZipFile(package) as wheel:
            wheel.extractall(modules)
        command = [sys.executable, "-m", "textmill.pipelines.preflight.loader", path]
        try:
            done = subprocess.run(
                command + [filter_name] * bool(filter_name),
                cwd=modules,
                env=os.environ | {"PYTHONPATH": modules},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LOAD_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return 0, [f"it does not load within {_LOAD_SECONDS} s"]
    if done.returncode:
        printed = done.stderr.strip().splitlines()
        return 0, [(printed or [f"it ended with exit code {done.returncode}"])[-1]]
    result = json.loads(done.stdout.splitlines()[-1])
    return result["loaded"], result["problems"]
