"""Jobs as Dataflow would get them: steps, coders, workers, what is staged. No job is started.

Our own command goes all the way but for the last call: with --template_location Beam stages the job
in a bucket (of a server on loopback) and leaves it there. The launcher of a Flex Template does the
same; the staged pipeline then runs on Beam's local runner, in a process of its own.
"""

import base64
import bz2
import json
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2 as api

from tests.tools.places import ROOT
from tests.tools.python_process import run_python
from textmill.pipelines import build_corpus, build_shards, train_tokenizer
from textmill.pipelines.preflight.job import load_job
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.lock import LOCK
from textmill.schemas.version import VERSION

FLAGS = ["--runner=DataflowRunner", "--project=my-project", "--region=europe-west4", "--no_auth"]
IMAGE = "europe-docker.pkg.dev/my-project/textmill/build_shards:1"
PARDO, RESHUFFLE = "beam:transform:pardo:v1", "beam:transform:reshuffle:v1"
GROUP, FLATTEN = "beam:transform:group_by_key:v1", "beam:transform:flatten:v1"


@dataclass(frozen=True)
class Staged:
    """A job that was staged.

    Attributes:
      json: bytes of the request that would start it.
      proto: the pipeline.
      files: name to content of what workers get.
    """

    json: bytes
    proto: api.Pipeline
    files: dict[str, bytes]

    def steps(self, urn):
        """Name to transform, of a kind."""
        steps = self.proto.components.transforms.values()
        return {step.unique_name: step for step in steps if step.spec.urn == urn}

    def coder_of(self, collection):
        """`kv(varint, bytes)`; what is pickled is called `pickled`."""
        return self._coder(self.proto.components.pcollections[collection].coder_id)

    def _coder(self, name):
        coder = self.proto.components.coders[name]
        inner = ", ".join(map(self._coder, coder.component_coder_ids))
        kind = coder.spec.urn.removeprefix("beam:coder:").removesuffix(":v1")
        return {"pickled_python": "pickled"}.get(kind, kind) + (f"({inner})" if inner else "")


def places(store):
    """Flags for where a job and what it makes go."""
    return [
        f"--output={store.url('out')}",
        f"--temp_location={store.url('tmp')}",
        f"--template_location={store.url('job.json')}",
    ]


def staged(store, command, *flags):
    """Stages the job of a command as Dataflow wants it."""
    command([*FLAGS, *places(store), *flags])
    return found(store)


def found(store):
    """The job that was staged in a bucket."""
    names = store.names("tmp/")
    folder = names[0].rsplit("/", 1)[0] + "/"
    assert all(name.startswith(folder) for name in names)
    files = {name.removeprefix(folder): store.get(name) for name in names}
    proto = api.Pipeline.FromString(files.pop("pipeline.pb"))
    return Staged(store.get("job.json"), proto, files)


def check_shape(job):
    """Checks that hold for both commands' jobs."""
    for step in job.steps(PARDO).values():
        assert not api.ParDoPayload.FromString(step.spec.payload).side_inputs
    # Keys are numbers, which everyone codes alike.
    for step in job.steps(GROUP).values():
        [given] = step.inputs.values()
        assert job.coder_of(given).startswith("kv(varint, ")
    for step in job.steps(FLATTEN).values():
        collections = [*step.inputs.values(), *step.outputs.values()]
        assert len({job.coder_of(collection) for collection in collections}) == 1
    # The plan is one worker's to read: after it, work is spread again.
    [(name, spread)] = job.steps(RESHUFFLE).items()
    [blocks], [out] = spread.inputs.values(), spread.outputs.values()
    [before] = [n for n, s in job.steps(PARDO).items() if blocks in s.outputs.values()]
    [after] = [n for n, s in job.steps(PARDO).items() if out in s.inputs.values()]
    assert name.endswith("/Spread") and before.endswith("/Blocks")
    return after


def check_workers(job, folder):
    """Workers start from Beam's image; all they need beside it is in the package."""
    [environment] = job.proto.components.environments.values()
    assert environment.urn == "beam:env:docker:v1"
    image = api.DockerPayload.FromString(environment.payload).container_image
    version = "python{}.{}".format(*sys.version_info)
    assert re.fullmatch(rf"gcr\.io/.*/beam_{version}_sdk:{re.escape(beam.__version__)}", image)
    package = f"textmill-{VERSION}-py3-none-any.whl"
    assert set(job.files) == {
        package,
        "extra_packages.txt",
        "submission_environment_dependencies.txt",
    }
    assert job.files["extra_packages.txt"].decode().split() == [package]
    path = folder / package
    path.write_bytes(job.files[package])
    serialized = job.proto.SerializeToString()
    loaded, problems = load_job(serialized, "", str(path))
    assert problems == [] and loaded > 20


def test_shards_travel_as_numbers_and_bytes(gs_store, corpus, tokenizer_path):
    flags = [f"--input={corpus}", f"--tokenizer={tokenizer_path}"]
    job = staged(gs_store, build_shards.main, *flags)
    assert check_shape(job) == "BuildShards/Route/ParDo(RouteBlock)"
    [given] = job.steps(GROUP)["BuildShards/Group"].inputs.values()
    assert job.coder_of(given) == "kv(varint, bytes)"
    groups = {name.removeprefix("BuildShards/") for name in job.steps(GROUP)}
    assert groups == {
        "Spread/ReshufflePerKey/GroupByKey",
        "Group",
        "AddShards/GroupByKey",
        "AddUp/GroupByKey",
    }
    request = json.loads(job.json)
    assert request["type"] == "JOB_TYPE_BATCH"
    assert request["environment"]["sdkPipelineOptions"]["options"]["save_main_session"] is False


PRIME = "--dataflow_service_options=enable_prime"
MIN_RAM = "beam:resources:min_ram_bytes:v1"


def memory_of(job):
    """Name to bytes that a step requests."""
    environments = job.proto.components.environments
    hints = {n: dict(s.resource_hints) for n, s in environments.items()}
    return {
        name: int(hints[step.environment_id][MIN_RAM])
        for name, step in job.steps(PARDO).items()
        if MIN_RAM in hints[step.environment_id]
    }


def test_steps_on_keys_request_memory_of_dataflow_prime(gs_store, corpus, tokenizer_path):
    """Two processes of 0.5 GB and three bytes for each byte of a shard's text."""
    flags = [f"--input={corpus}", f"--tokenizer={tokenizer_path}", "--num_shards=4"]
    flags += ["--splits=train:1"]
    job = staged(gs_store, build_shards.main, *flags, PRIME)
    expected = int(2 * (500_000_000 + 3 * Path(corpus).stat().st_size / 4))
    assert memory_of(job) == {"BuildShards/Write": expected}


@pytest.mark.slow
def test_steps_on_partitions_request_memory_of_dataflow_prime(gs_store, corpus):
    flags = [f"--input={corpus}", "--num_files=2", "--near_duplicates=jaccard:0.8"]
    job = staged(gs_store, build_corpus.main, *flags, "--experiments=enable_prime")
    found_memory = memory_of(job)
    expected = int(2 * (500_000_000 + 8 * Path(corpus).stat().st_size / 2))
    assert set(found_memory.values()) == {expected}
    steps = {name.rpartition("/")[2] for name in found_memory}
    assert {"ParDo(Stage)", "ParDo(Write)", "ParDo(Propose)"} <= steps
    assert not {"ParDo(Clean)", "ParDo(ComputeSignatures)"} & steps


@pytest.mark.slow
def test_words_travel_to_numbers_of_buckets(gs_store, corpus, tmp_path):
    flags = [*FLAGS, *places(gs_store), f"--input={corpus}", "--vocab_size=400"]
    # The command itself trains, once the job has counted words.
    with pytest.raises(
        DataError, match=r"before its last step \(a Dataflow template runs no job\)"
    ):
        train_tokenizer.main(flags)
    job = found(gs_store)
    assert check_shape(job) == "CountWords/Count"
    check_workers(job, tmp_path)


@pytest.mark.slow  # test_build_shards starts worker processes from `python -m`
def test_workers_load_what_is_staged_whatever_command_was_typed(
    gs_store, corpus, tokenizer_path, tmp_path
):
    """A worker has another __main__: what `python -m` runs must not be in what is pickled."""
    flags = [*FLAGS, *places(gs_store), f"--input={corpus}", f"--tokenizer={tokenizer_path}"]
    done = run_python("-m", "pipelines.build_shards", *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    job = found(gs_store)
    for step in job.steps(PARDO).values():
        pickled = api.ParDoPayload.FromString(step.spec.payload).do_fn.payload
        assert b"__main__" not in bz2.decompress(base64.b64decode(pickled)), step.unique_name
    check_workers(job, tmp_path)


@pytest.mark.slow
def test_an_image_of_the_users_is_taken_as_it_is(gs_store, corpus, tokenizer_path):
    image = "europe-docker.pkg.dev/my-project/textmill/worker:1"
    flags = [f"--input={corpus}", f"--tokenizer={tokenizer_path}", f"--sdk_container_image={image}"]
    job = staged(gs_store, build_shards.main, *flags)
    [environment] = job.proto.components.environments.values()
    assert api.DockerPayload.FromString(environment.payload).container_image == image
    assert set(job.files) == {"submission_environment_dependencies.txt"}


RUN_STAGED = """
import sys
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2 as api
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from textmill.pipelines.runners.beam_patches import patch_beam

patch_beam()
proto = api.Pipeline.FromString(open(sys.argv[1], "rb").read())
for environment in proto.components.environments.values():  # the image of the workers
    environment.urn, environment.payload = python_urns.EMBEDDED_PYTHON, b""
FnApiRunner().run_via_runner_api(proto, PipelineOptions([])).wait_until_finish()
"""


@pytest.mark.slow
def test_the_job_of_a_template_needs_nothing_of_its_launcher(
    gs_store, corpus, tokenizer_path, tmp_path
):
    """The launcher's process has ended, and its disk is gone, before the job begins."""
    gs_store.put("in.jsonl", Path(corpus).read_bytes())
    flags = [f"--input={gs_store.url('in.jsonl')}", "--max_length=32", "--num_shards=2"]
    alone = tmp_path / "alone"
    build_shards.main([*flags, f"--tokenizer={tokenizer_path}", f"--output={alone}"])

    folder = tmp_path / "launcher"  # its tokenizer and temporary files
    (folder / "tmp").mkdir(parents=True)
    shutil.copy(tokenizer_path, folder / "tokenizer.json")
    launched = run_python(
        *(ROOT / "deploy/flex_template.py", *flags, f"--tokenizer={folder}/tokenizer.json"),
        *(*FLAGS, *places(gs_store)),
        cwd=tmp_path,
        TEXTMILL_COMMAND="build_shards",
        TEXTMILL_IMAGE=IMAGE,
        TMPDIR=str(folder / "tmp"),
    )
    assert launched.returncode == 0, launched.stderr
    assert f"its last step publishes {gs_store.url('out')}" in launched.stdout
    assert not gs_store.names("out/MANIFEST") and gs_store.names("out/.staging/")
    job = found(gs_store)
    [environment] = job.proto.components.environments.values()
    assert api.DockerPayload.FromString(environment.payload).container_image == IMAGE
    shutil.rmtree(folder)

    (tmp_path / "pipeline.pb").write_bytes(job.proto.SerializeToString())
    done = run_python("-c", RUN_STAGED, tmp_path / "pipeline.pb", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = {str(path.relative_to(alone)) for path in alone.rglob("*") if path.is_file()}
    assert {name.removeprefix("out/") for name in gs_store.names("out/")} == names | {LOCK}
    assert gs_store.get(f"out/{LOCK}").endswith(b" ended")
    for name in names - {LOCK, "config.yaml", "MANIFEST.json"}:  # they name the tokenizer's path
        assert gs_store.get(f"out/{name}") == (alone / name).read_bytes(), name


def test_a_template_needs_an_output_in_a_bucket(gs_store, corpus, tokenizer_path, tmp_path):
    flags = [*FLAGS, *places(gs_store)[1:], f"--output={tmp_path / 'out'}", f"--input={corpus}"]
    with pytest.raises(UsageError, match="which the job of a template does not see: give a bucket"):
        build_shards.main([*flags, f"--tokenizer={tokenizer_path}"])
    assert not (tmp_path / "out").exists()


def test_a_template_has_no_job_that_counts_n_grams(gs_store, corpus):
    flags = [*FLAGS, *places(gs_store), f"--input={corpus}", f"--decontaminate={corpus}"]
    with pytest.raises(UsageError, match="a template has one job") as refused:
        build_corpus.main(flags)
    assert "--decontaminate_max_documents=0" in str(refused.value)
    assert gs_store.names("out/") == []
