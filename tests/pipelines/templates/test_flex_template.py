"""flex_template: its metadata by Google's own readers, its commands, and what its launcher runs."""

import json
import re
import shutil
import subprocess
from importlib import import_module

import pytest

from tests.tools.places import ROOT
from tests.tools.python_process import run_python
from textmill.pipelines.flex_template import main
from textmill.pipelines.templates.parameters import command_line, template_metadata
from textmill.schemas.errors import DataError, UsageError

IMAGE = "us-central1-docker.pkg.dev/my-project/textmill/build:1"
FLAGS = [f"--image={IMAGE}", "--bucket=gs://my-bucket/templates"]
COMMANDS = ("build_corpus", "build_shards")


def builder_of(command):
    return import_module(f"textmill.pipelines.{command}").BUILDER


def metadata_of(command):
    builder = builder_of(command)
    return template_metadata(builder.help, builder.kinds())


@pytest.mark.parametrize("command", COMMANDS)
def test_dataflow_reads_the_metadata(command):
    """Its API's message refuses unknown fields and types; name, label and helpText are required."""
    dataflow = pytest.importorskip("google.cloud.dataflow_v1beta3")
    metadata = metadata_of(command)
    read = dataflow.TemplateMetadata.from_json(json.dumps(metadata), ignore_unknown_fields=False)
    parameters = {one.name: one for one in read.parameters}
    assert len(parameters) == len(metadata["parameters"]) > 40
    for one in parameters.values():
        assert one.label and one.help_text and re.fullmatch("[a-z][a-z0-9_]*", one.name)
        assert all(re.compile(each) for each in one.regexes)
        assert bool(one.enum_options) == (one.param_type == dataflow.ParameterType.ENUM)
    needed = {name for name, one in parameters.items() if not one.is_optional}
    assert needed == {"input", "output"} | ({"tokenizer"} if command == "build_shards" else set())
    assert not {"dry_run", "preflight", "filter", "config"} & {*parameters}


def test_a_parameter_of_each_kind():
    [resume, task_flag, document, output] = [
        one
        for name in ("resume", "mask_rate", "document", "output")
        for one in metadata_of("build_shards")["parameters"]
        if one["name"] == name
    ]
    assert resume["paramType"] == "BOOLEAN" and resume["regexes"] == ["^(true|false)$"]
    assert task_flag == {
        "name": "mask_rate",
        "label": "Mask rate",
        "helpText": task_flag["helpText"],
        "paramType": "TEXT",
        "isOptional": True,
    }
    assert [one["value"] for one in document["enumOptions"]] == ["file", "paragraph", "line"]
    assert re.search(output["regexes"][0], "gs://b/out") and "isOptional" not in output
    assert not re.search(output["regexes"][0], "out")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not installed")
@pytest.mark.parametrize("command", COMMANDS)
def test_gcloud_accepts_the_command_and_its_metadata(command, capsys, tmp_path):
    main([*FLAGS, f"--command={command}", "--dry_run"])
    *_, last, text = re.split("\n(?=gcloud|metadata)", capsys.readouterr().out)
    (tmp_path / "metadata.json").write_text(text.partition("\n")[2])
    words = [*last.split(), "--print-only", "--project=my-project"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout[done.stdout.index("{") :])
    assert written["image"] == IMAGE and written["sdkInfo"] == {"language": "PYTHON"}
    assert written["metadata"]["parameters"] == metadata_of(command)["parameters"]


def test_the_texts_of_parameters_become_a_command_line():
    given = [
        "--input=gs://b/a.jsonl;gs://b/c.jsonl",
        "--resume=true",
        "--static_masking=False",
        "--max_length=512",
        "--splits=train:0.9,validation:0.1",
        "--runner=DataflowRunner",
        "--no_use_public_ips",
    ]
    assert command_line(given, builder_of("build_shards").kinds()) == [
        "--input=gs://b/a.jsonl",
        "--input=gs://b/c.jsonl",
        "--resume",
        "--no_static_masking",
        *given[3:],
    ]
    with pytest.raises(UsageError, match="give true or false"):
        command_line(["--resume=yes"], builder_of("build_shards").kinds())


def test_a_dry_run_prints_the_three_commands(capsys):
    main([*FLAGS, "--project=p", "--dry_run"])
    build, push, write, head, *rest = capsys.readouterr().out.splitlines()
    assert build.startswith(
        f"docker build --platform=linux/amd64 --file={ROOT}/deploy/Dockerfile "
        "--target=flex_template --build-arg=PYTHON=3."
    )
    assert f"--build-arg=COMMAND=build_corpus --build-arg=IMAGE={IMAGE}" in build
    assert build.endswith(f"--tag={IMAGE} {ROOT}") and push == f"docker push {IMAGE}"
    assert write == (
        "gcloud dataflow flex-template build gs://my-bucket/templates/build_corpus.json "
        f"--image={IMAGE} --sdk-language=PYTHON --metadata-file=metadata.json --project=p"
    )
    assert head == "metadata.json:"
    assert json.loads("\n".join(rest)) == metadata_of("build_corpus")


def tools(folder, **codes):
    """Programs that note their arguments and end with a code."""
    for name, code in codes.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $@" >> {folder}/log\nexit {code}\n')
        path.chmod(0o755)
    return str(folder)


def test_it_runs_the_commands_in_their_order(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", tools(tmp_path, docker=0, gcloud=0), prepend=":")
    main(FLAGS)
    build, push, write = (tmp_path / "log").read_text().splitlines()
    assert build.startswith("docker build") and push == f"docker push {IMAGE}"
    assert write.startswith("gcloud dataflow flex-template build gs://my-bucket/templates/")
    assert "gcloud dataflow flex-template run NAME --region=REGION" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("codes", "error", "said"),
    [
        ({}, UsageError, "docker is not installed: see https://docs.docker.com/"),
        ({"docker": 0}, UsageError, "gcloud is not installed: see https://cloud.google.com/sdk"),
        ({"docker": 3, "gcloud": 0}, DataError, "docker build failed with exit code 3"),
        ({"docker": 0, "gcloud": 1}, DataError, "gcloud dataflow failed with exit code 1"),
    ],
)
def test_what_fails_is_named(codes, error, said, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", tools(tmp_path, **codes))
    with pytest.raises(error, match=re.escape(said)):
        main(FLAGS)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("--image=textmill", "give REGION-docker.pkg.dev/PROJECT/REPOSITORY/NAME"),
        ("--bucket=my-bucket", "give gs://BUCKET"),
        ("--checkout=/nowhere", "/nowhere has no deploy/Dockerfile: name a checkout of Textmill"),
    ],
)
def test_wrong_flags(wrong, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        main([*FLAGS, "--dry_run", wrong])


@pytest.mark.slow  # test_dataflow's launcher stages a job
def test_the_launcher_runs_the_command(corpus, tmp_path):
    given = [f"--input={corpus};{corpus}", "--keep_rejects=false", "--runner=DirectRunner"]
    done = run_python(
        *(ROOT / "deploy/flex_template.py", *given, f"--output={tmp_path / 'corpus'}"),
        cwd=tmp_path,
        TEXTMILL_COMMAND="build_corpus",
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "corpus/MANIFEST.json").exists()
