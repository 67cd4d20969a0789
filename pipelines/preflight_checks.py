"""What --preflight looks at: each function looks at one thing, and says what it found.

What takes credentials or an index, where there are none, is said not to have been checked.
"""

import contextlib
import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console
from rich.filesize import decimal

from pipelines.clean_environment import Installed, install, load_job
from pipelines.cloud_flags import (
    DEFAULT_MACHINE,
    Check,
    bucket_problem,
    check_flags,
    flags_of,
    memory_of,
)
from pipelines.input_files import HUGGING_FACE, expand_lists, is_remote
from pipelines.launch import import_beam, is_local
from pipelines.scale import Costs, Rates
from pipelines.worker_package import Workers, packaged, workers_of
from schemas.errors import TextmillError

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.portability.api import beam_runner_api_pb2 as api

    from pipelines.sources import Block

_PATIENCE = 25.0  # seconds: a store that is not there, or wants credentials, may never say so
_MOST_JOB_BYTES = 10_000_000  # Dataflow refuses a larger job
_MOST_KEY_BYTES = (
    2_000_000_000  # an element that Dataflow takes, and what Flink can be asked to hold
)
_GOOD_KEY_BYTES = 200_000_000
# Measured: a worker with Beam, the engines and a tokenizer (RoBERTa's); and what it takes beside
# that for blocks, with sub-blocks that wait for others, and for counting words.
_WORKER_BYTES, _MILL_BYTES, _COUNT_BYTES = 500_000_000, 700_000_000, 200_000_000
_COPY = "copy it into a bucket in the region of the workers, and give its gs:// path"


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
    def workers(self) -> Workers:
        """Who runs it."""
        return workers_of(self.beam_arguments)

    @property
    def on_dataflow(self) -> bool:
        """Whether Google's machines do."""
        return self.workers.runner.endswith("DataflowRunner")

    @property
    def here(self) -> bool:
        """Whether workers are this machine's."""
        return is_local(self.beam_arguments) or self.workers.environment == "LOOPBACK"


def check_runner(asked: Asked) -> Check:
    """Whether Beam has it, and what it runs on."""
    workers = asked.workers
    if is_local(asked.beam_arguments):
        said = "this machine: there is nothing to check but the plan, which --dry_run prints"
        return Check("runner", "ok", said)
    if asked.on_dataflow and importlib.util.find_spec("google.cloud.dataflow_v1beta3") is None:
        remedy = "pip install 'apache-beam[gcp]'"
        return Check("runner", "failed", "Beam's part for Dataflow is not installed", remedy)
    import_beam()
    from apache_beam.runners.runner import create_runner

    try:
        create_runner(workers.runner)
    except (ValueError, ImportError) as error:
        said = " ".join(str(error).split())
        return Check("runner", "failed", said, "--runner=DataflowRunner, or another of Beam's")
    starts = {
        "DOCKER": f"workers start from {workers.image or 'the image of Beam'}",
        "PROCESS": "workers are processes of the cluster's machines",
        "EXTERNAL": "workers come from pools that run already",
        "LOOPBACK": "workers are threads of this command",
    }[workers.environment]
    return Check("runner", "ok", f"{workers.runner}; {starts}")


def check_inputs(asked: Asked) -> "tuple[Check, list[Block] | None]":
    """Whether workers reach them, what they are, and the plan; None where it cannot be made."""
    name = "inputs"
    patterns = asked.patterns
    try:
        patterns = tuple(expand_lists(asked.patterns))
        for pattern in patterns:
            if problem := bucket_problem(pattern):
                said = f"--input={pattern}: {problem}"
                return Check(name, "failed", said, "mend the name of the bucket"), None
        for pattern in filter(is_remote, patterns):
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
    local = [pattern for pattern in patterns if not is_remote(pattern)]
    if local and asked.on_dataflow:
        what = "in the cache of this machine" if local[0].startswith(HUGGING_FACE) else "local"
        said = f"{local[0]} is {what}: workers of Dataflow do not see it"
        return Check(name, "failed", said, _COPY), blocks
    if local and not asked.here:
        said = f"{found}; {local[0]} is a path here, and has to be the same file for every worker"
        remedy = "a file system that all of them mount at the same place, or a store"
        return Check(name, "not checked", said, remedy), blocks
    return Check(name, "ok", found), blocks


def check_output(asked: Asked) -> Check:
    """Whether workers reach it; whether they may write there is the store's to say."""
    name, path = "output", asked.output
    if problem := bucket_problem(path):
        return Check(name, "failed", f"--output={path}: {problem}", "--output=gs://BUCKET/folder")
    if is_remote(path):
        if problem := unreachable(path.rstrip("/") + "/MANIFEST.json"):
            return Check(name, "not checked", f"{path}: {problem}")
        return Check(name, "ok", f"{path} can be reached; whether workers may write is not known")
    if asked.on_dataflow:
        said = f"--output={path} is local: workers of Dataflow do not see it"
        return Check(name, "failed", said, "--output=gs://BUCKET/folder")
    if not asked.here:
        said = f"{path} is a path here, and has to be the same folder for every worker"
        remedy = "a file system that all of them mount at the same place, or a store"
        return Check(name, "not checked", said, remedy)
    return Check(name, "ok", path)


def unreachable(path: str) -> str:
    """Why a store cannot be looked at from here: "" if it can.

    A look-up without network or credentials may hang: it is waited for in vain, and left behind.
    """
    outcome: list[str] = []

    def look() -> None:
        try:
            from apache_beam.io.filesystems import FileSystems

            FileSystems.match([path], limits=[1])
            outcome.append("")
        except Exception as error:
            said = " ".join(str(error).split())
            outcome.append(f"the store refuses: {said[:200]}")

    import_beam()
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    if not outcome:
        return f"no answer in {_PATIENCE:.0f} s: no network here, or no credentials"
    return outcome[0]


def check_filter(asked: Asked) -> Check:
    """Whether it can be imported here; whether workers can is seen with their package."""
    from pipelines.filters import load_filter

    try:
        function = load_filter(asked.filter_name)
    except TextmillError as error:
        return Check("filter", "failed", str(error), "mend --filter")
    path = getattr(sys.modules[function.__module__], "__file__", None) or "no file"
    return Check("filter", "ok", f"{asked.filter_name}, in {path}")


def check_job(asked: Asked, build: "Callable[[beam.Pipeline], Any]") -> Iterator[Check]:
    """Translates the job, and unpickles it where only the workers' package is installed."""
    workers = asked.workers
    try:
        with packaged(asked.beam_arguments, asked.filter_name) as arguments:
            job = translated(arguments, build)
            yield _check_graph(job)
            if workers.are_bare:
                yield from _check_package(asked, arguments[-1].partition("=")[2], job)
    except TextmillError as error:
        yield Check("workers' package", "failed", str(error))
        return
    except (ValueError, ImportError) as error:  # as Beam says it
        said = " ".join(str(error).split())
        yield Check("job", "failed", said, "mend the flags that it names")
        return
    if not workers.are_bare:
        yield _check_environment(workers)


def translated(arguments: list[str], build: "Callable[[beam.Pipeline], Any]") -> "api.Pipeline":
    """The job as the runner would get it; nobody is asked and nothing is sent.

    Args:
      arguments: Beam's; where those for Dataflow are not complete, others stand in.
      build: adds the transforms.
    """
    import_beam()
    import apache_beam as beam
    from apache_beam.options.pipeline_options import (
        GoogleCloudOptions,
        PipelineOptions,
        TestOptions,
    )
    from apache_beam.runners.runner import create_runner

    runner_name = workers_of(arguments).runner
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


def side_inputs(job: "api.Pipeline") -> list[str]:
    """Steps that have some."""
    from apache_beam.portability.api import beam_runner_api_pb2 as api

    return [
        step.unique_name
        for step in job.components.transforms.values()
        if step.spec.urn == "beam:transform:pardo:v1"
        and api.ParDoPayload.FromString(step.spec.payload).side_inputs
    ]


def _check_graph(job: "api.Pipeline") -> Check:
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


def _check_package(asked: Asked, package: str, job: "api.Pipeline") -> Iterator[Check]:
    """Installs it where nothing else is, and unpickles the job there."""
    name = "workers' package"
    serialized = job.SerializeToString()
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder, contextlib.ExitStack() as stack:
        if sys.stderr.isatty():
            stack.enter_context(Console(stderr=True).status("installing the workers' package"))
        found = _installed(asked, os.path.join(folder, "clean"), package)
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


def _installed(asked: Asked, folder: str, package: str) -> Installed:
    """Installs what workers do."""
    import_beam()
    from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions

    setup = PipelineOptions(asked.beam_arguments).view_as(SetupOptions)
    folders = [os.path.dirname(os.path.abspath(setup.setup_file))] if setup.setup_file else []
    others = [path for path in setup.extra_packages or () if not is_remote(path)]
    return install(folder, [package, *others, *folders], setup.requirements_file)


def check_shards(asked: Asked, taken: Costs, shards: int) -> Iterator[Check]:
    """Keys, memory a worker and work, from the plan."""
    brings = f"{shards:,} shards; the largest key brings {decimal(int(taken.key_bytes))}"
    more = 1 << max(0, (int(shards * taken.key_bytes / _GOOD_KEY_BYTES)).bit_length())
    remedy = f"--num_shards={min(more, 99_999)}"
    if taken.key_bytes > _MOST_KEY_BYTES:
        limit = decimal(_MOST_KEY_BYTES)
        yield Check("keys", "failed", f"{brings}: more than {limit}", remedy)
    else:
        yield Check("keys", "ok", brings)
    remedy = remedy if taken.key_memory > _MILL_BYTES else ""
    yield _memory(asked, _WORKER_BYTES + max(_MILL_BYTES, taken.key_memory), remedy)
    yield _work(asked, taken.cpu_hours, taken.shuffle_bytes)


def check_counting(asked: Asked, stored_bytes: int, workers: int) -> Iterator[Check]:
    """Memory a worker and work of train_tokenizer.

    Args:
      asked: the command.
      stored_bytes: of the inputs, as they lie there.
      workers: that may run at once.
    """
    rates = Rates()
    yield _memory(asked, _WORKER_BYTES + _COUNT_BYTES, "")
    seconds = stored_bytes / 1e9 * rates.count_ms_a_megabyte + rates.start_seconds * workers
    yield _work(asked, seconds / 3600, None)


def _memory(asked: Asked, need: float, remedy: str) -> Check:
    """Whether a worker has what it takes.

    Args:
      asked: the command.
      need: bytes.
      remedy: besides larger machines.
    """
    needs = f"a worker takes up to {decimal(int(need))}"
    if not asked.on_dataflow:
        if asked.here:
            has = psutil.virtual_memory().total
            said = f"{needs}; this machine has {decimal(has)} for all of them"
            return Check("memory", "ok" if need < has else "failed", said, remedy * (need >= has))
        return Check("memory", "not checked", f"{needs}; what one has is the cluster's to say")
    machine_type = flags_of(asked.beam_arguments).machine_type
    has, machine = memory_of(machine_type), machine_type or DEFAULT_MACHINE
    if has is None:
        return Check("memory", "not checked", f"{needs}; what {machine} has is not known here")
    said = f"{needs}; {machine} has {decimal(int(has))} a vCPU"
    if need < has:
        return Check("memory", "ok", said)
    larger = "--worker_machine_type=n2-highmem-2"
    return Check("memory", "failed", said, f"{remedy}, or {larger}" if remedy else larger)


def _work(asked: Asked, cpu_hours: float, shuffle_bytes: float | None) -> Check:
    flags = flags_of(asked.beam_arguments)
    workers = flags.max_num_workers or flags.num_workers
    parts = [f"about {cpu_hours:,.2f} hours of a core (a vCPU is half of one)"]
    if workers:
        parts.append(f"{cpu_hours / workers:,.2f} h with {workers:,} workers of one")
    if shuffle_bytes is not None:
        parts.append(f"{decimal(int(shuffle_bytes))} through the shuffle")
    return Check("work", "ok", f"{', '.join(parts)}; by rates of one machine (README, Scale)")
