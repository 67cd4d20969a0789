"""What --preflight looks at first: the runner and its flags, inputs, output and filter.

What takes credentials, where there are none, is said not to have been checked. Whether flags of
Dataflow are good, Dataflow says.
"""

import importlib.util
import os
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, WorkerOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from rich.filesize import decimal

from pipelines.filters.filters import load_filter
from pipelines.readers.files import HUGGING_FACE, expand_lists, is_url
from pipelines.runners.beam_flags import RunnerFlags, runner_flags
from pipelines.runners.runner_check import refuse_bad_runner
from pipelines.storage import store
from schemas.commands.terminal import in_time
from schemas.errors import TextmillError, UsageError, one_line

if TYPE_CHECKING:
    from pipelines.readers.sources import Block

State = Literal["ok", "failed", "not checked"]
_ENDPOINT_SECONDS = 5.0
_PATIENCE = 25.0  # seconds: a store that is not there, or wants credentials, may never say so
_silent: dict[str, str] = {}  # stores that were waited for in vain, and what was said of them
_SHARE = "a file system that all of them mount at the same place, or a store"
_COPY = "copy it into a bucket in the region of the workers, and give its gs:// path"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
      name: of what.
      state: ok, failed, or not checked.
      found: what is there, or why it could not be looked at.
      remedy: what to do about it.
    """

    name: str
    state: State
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Asked:
    """A command that is to run on a cluster.

    Attributes:
      command: build_shards or train_tokenizer.
      beam_arguments: its flags that are Beam's.
      patterns: of its inputs.
      output: its directory.
      filter_name: of --filter, or "".
      blocks: reads the plan of the inputs.
    """

    command: str
    beam_arguments: list[str]
    patterns: tuple[str, ...]
    output: str
    filter_name: str
    blocks: Callable[[], "list[Block]"]

    @property
    def flags(self) -> RunnerFlags:
        """What Beam's flags say of runner and workers."""
        return runner_flags(self.beam_arguments)

    @property
    def on_dataflow(self) -> bool:
        """Whether Google's machines do."""
        return self.flags.is_dataflow

    @property
    def here(self) -> bool:
        """Whether workers are this machine's."""
        return self.flags.is_local or self.flags.workers.environment == "LOOPBACK"


def check_runner(asked: Asked) -> Check:
    """Whether Beam has it, and what it runs on."""
    flags, workers = asked.flags, asked.flags.workers
    if flags.is_local:
        said = "this machine: there is nothing to check but the plan, which --dry_run prints"
        return Check("runner", "ok", said)
    if asked.on_dataflow and not _has_package("google.cloud.dataflow_v1beta3"):
        remedy = "pip install '/path/to/textmill[pipelines,gcp]'"
        return Check("runner", "failed", "Beam's part for Dataflow is not installed", remedy)
    if flags.runner_class == "PortableRunner" and (problem := _endpoint_problem(asked)):
        remedy = "--job_endpoint=HOST:PORT of a job server that runs"
        return Check("runner", "failed", problem, remedy)
    try:
        refuse_bad_runner(asked.beam_arguments)
    except UsageError as error:
        remedy = "--runner=DataflowRunner, or another of Beam's"
        return Check("runner", "failed", str(error), remedy)
    starts = {
        "DOCKER": f"workers start from {workers.image or 'the image of Beam'}",
        "PROCESS": "workers are processes of the cluster's machines",
        "EXTERNAL": "workers come from pools that run already",
        "LOOPBACK": "workers are threads of this command",
    }[workers.environment]
    return Check("runner", "ok", f"{flags.runner_class}; {starts}")


def _has_package(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a package that it is in
        return False


def _endpoint_problem(asked: Asked) -> str:
    """What is wrong with --job_endpoint; "" for nothing."""
    endpoint = asked.flags.job_endpoint
    if asked.flags.is_embedded:
        return ""
    if not endpoint:
        return "no --job_endpoint"
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit():
        return f"--job_endpoint={endpoint} is not HOST:PORT"
    try:
        socket.create_connection((host, int(port)), _ENDPOINT_SECONDS).close()
    except OSError as error:
        return f"no job server answers at --job_endpoint={endpoint}: {error.strerror or error}"
    return ""


def most_workers(beam_arguments: list[str]) -> int | None:
    """How many workers may run at once; None where no flag says it."""
    options = PipelineOptions(beam_arguments).view_as(WorkerOptions)
    return options.max_num_workers or options.num_workers


def check_flags(beam_arguments: list[str]) -> Iterator[Check]:
    """All that Dataflow wants of flags."""
    flags = PipelineOptions(beam_arguments).view_as(GoogleCloudOptions)
    region = flags.region or os.environ.get("CLOUDSDK_COMPUTE_REGION")
    remedy = "--project=PROJECT_ID, as `gcloud projects list` has it"
    yield _given("project", flags.project, remedy)
    remedy = "--region=REGION, where the buckets are, such as europe-west4"
    yield _given("region", region, remedy)
    remedy = "--temp_location=gs://BUCKET/tmp, of a bucket in the region"
    problem = _bad_location(flags)
    place = None if problem else flags.temp_location or flags.staging_location
    problem = problem or "neither --temp_location nor --staging_location"
    yield _given("temporary files", place, remedy, problem)
    if flags.template_location:
        yield Check(
            "template",
            "failed",
            "--template_location: a job is of one plan of inputs, which lies in the staging folder "
            "and goes when the command ends",
            "leave it out: the command starts the job",
        )


def _given(name: str, value: str | None, remedy: str, problem: str = "none is given") -> Check:
    if not value:
        return Check(name, "failed", problem, remedy)
    return Check(name, "ok", f"{value}, as given: whether there is one, Dataflow says")


def _bad_location(flags: GoogleCloudOptions) -> str:
    """What Beam's validator says of places for temporary files: a run would make a bucket then."""
    validator = PipelineOptionsValidator(flags, None)
    for name in ("temp_location", "staging_location"):
        if getattr(flags, name) and (said := validator.validate_gcs_path(flags, name)):
            return str(said[0])
    return ""


def check_inputs(asked: Asked) -> "tuple[Check, list[Block] | None]":
    """Whether workers reach them, what they are, and the plan; None where it cannot be made."""
    name = "inputs"
    patterns = asked.patterns
    try:
        patterns = tuple(expand_lists(asked.patterns))
        for pattern in filter(is_url, patterns):
            if problem := unreachable(pattern):
                return Check(name, "not checked", f"{pattern}: {problem}"), None
        blocks = asked.blocks()
    except TextmillError as error:
        return Check(name, "failed", str(error), "mend --input"), None
    files = {part.path: part.size for block in blocks for part in block.parts}
    found = (
        f"{len(files):,} file{'s' * (len(files) != 1)}, {decimal(sum(files.values()))}, "
        f"{len(blocks):,} block{'s' * (len(blocks) != 1)}"
    )
    local = [pattern for pattern in patterns if not is_url(pattern)]
    if local and asked.on_dataflow:
        what = "in the cache of this machine" if local[0].startswith(HUGGING_FACE) else "local"
        said = f"{local[0]} is {what}: workers of Dataflow do not see it"
        return Check(name, "failed", said, _COPY), blocks
    if local and not asked.here:
        said = f"{found}; {local[0]} is a path here, and has to be the same file for every worker"
        return Check(name, "not checked", said, _SHARE), blocks
    return Check(name, "ok", found), blocks


def check_output(asked: Asked) -> Check:
    """Whether workers reach it; whether they may write there is the store's to say."""
    name, path = "output", asked.output
    if is_url(path):
        if problem := unreachable(path.rstrip("/") + "/MANIFEST.json"):
            return Check(name, "not checked", f"{path}: {problem}")
        return Check(name, "ok", f"{path} can be reached; whether workers may write is not known")
    if asked.on_dataflow:
        said = f"--output={path} is local: workers of Dataflow do not see it"
        return Check(name, "failed", said, "--output=gs://BUCKET/folder")
    if not asked.here:
        said = f"{path} is a path here, and has to be the same folder for every worker"
        return Check(name, "not checked", said, _SHARE)
    return Check(name, "ok", path)


def unreachable(path: str) -> str:
    """Why a store cannot be looked at from here: "" if it can.

    A look-up without network or credentials may hang: it is waited for in vain, and left behind.
    """
    bucket = "/".join(path.split("/")[:3])  # gs://bucket
    if bucket in _silent:
        return _silent[bucket]
    try:
        in_time(_PATIENCE, lambda: store.exists(path))
    except TimeoutError as error:
        _silent[bucket] = f"{error}: no network here, or no credentials"
        return _silent[bucket]
    except Exception as error:
        return f"the store refuses: {one_line(error)[:200]}"
    return ""


def check_filter(asked: Asked) -> Check:
    """Whether it can be imported here; whether workers can is seen with their package."""
    try:
        function = load_filter(asked.filter_name)
    except TextmillError as error:
        return Check("filter", "failed", str(error), "mend --filter")
    path = getattr(sys.modules[function.__module__], "__file__", None) or "no file"
    return Check("filter", "ok", f"{asked.filter_name}, in {path}")
