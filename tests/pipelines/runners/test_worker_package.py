"""The package for workers of a runner: its files, its requirements, and which workers need it."""

import importlib.metadata
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.tools.places import ROOT
from tests.tools.python_process import run_python
from textmill.pipelines.runners.runner_flags import runner_flags
from textmill.pipelines.runners.worker_package import package_code, requirements, write_package
from textmill.schemas.errors import UsageError

DATAFLOW = ["--runner=DataflowRunner"]
# The extra [pipelines] of setup.py, what all of Textmill needs, and what reads stores.
NEEDED = """
apache-beam array-record awkward filelock fsspec gcsfs gigatoken huggingface-hub jinja2 numba numpy
packaging protobuf psutil pyarrow pyyaml rich s3fs tenacity tokenizers tyro xxhash
""".split()


PORTABLE = "--runner=PortableRunner"
DOCKER = f"{PORTABLE} --environment_type=DOCKER"


@pytest.mark.parametrize(
    "arguments, environment, are_bare",
    [
        ("--runner=DataflowRunner", "DOCKER", True),
        ("--runner dataflow", "DOCKER", True),
        ("--runner=DataflowRunner --sdk_container_image=me/t:1", "DOCKER", False),
        ("--runner=DataflowRunner --worker_harness_container_image=me/t:1", "DOCKER", False),
        (f"{DATAFLOW[0]} --extra_package=a/textmill-0.1.0-py3-none-any.whl", "DOCKER", False),
        ("--runner=DataflowRunner --extra_package=dist/my_filters-1.tar.gz", "DOCKER", True),
        ("--runner=DataflowRunner --setup_file=./setup.py", "DOCKER", True),
        (f"{PORTABLE} --job_endpoint=a:1", "DOCKER", True),
        (f"{PORTABLE} --environment_type=LOOPBACK", "LOOPBACK", False),
        (f"{PORTABLE} --environment_type=EXTERNAL", "EXTERNAL", False),
        (f"{PORTABLE} --environment_type=PROCESS", "PROCESS", True),
        (f"{DOCKER} --environment_option=docker_container_image=me/t:1", "DOCKER", False),
        ("--runner=FlinkRunner --environment_config=me/t:1", "LOOPBACK", False),
        ("--runner=FLINKRUNNER --flink_master=host:8081", "DOCKER", True),
        ("--runner=flink --flink_master=a:1 --environment_config=me/t:1", "DOCKER", False),
        ("--runner=prism", "LOOPBACK", False),
        ("", "LOOPBACK", False),
        ("--runner=apache_beam.runners.x.FnApiRunner", "LOOPBACK", False),
    ],
)
def test_whose_workers_start_without_textmill(arguments, environment, are_bare):
    workers = runner_flags(arguments.split()).workers
    assert (workers.environment, workers.are_bare) == (environment, are_bare)


def test_a_package_is_staged_for_them_alone():
    for as_it_was in (
        ["--runner=PrismRunner", "--x=1"],
        [*DATAFLOW, "--sdk_container_image=me/t:1"],
    ):
        with package_code(as_it_was, "") as arguments:
            assert arguments == as_it_was
    with package_code(DATAFLOW, "") as arguments:
        [runner, package] = arguments
        assert [runner] == DATAFLOW
        path = Path(package.removeprefix("--extra_package="))
        assert path.name == "textmill-0.1.0-py3-none-any.whl" and path.exists()
    assert not path.parent.exists()


def test_it_holds_pipelines_and_schemas_and_says_what_they_need(tmp_path):
    with zipfile.ZipFile(write_package(str(tmp_path))) as wheel:
        held = {name: wheel.read(name) for name in wheel.namelist()}
    info = "textmill-0.1.0.dist-info"
    assert {name.split("/")[0] for name in held} == {"textmill", info}
    for name in (
        "pipelines/shards/transforms.py",
        "pipelines/inspection/report/page.html.jinja",
        "schemas/format/codec.py",
    ):
        assert held[f"textmill/{name}"] == (ROOT / name).read_bytes()
    assert not [name for name in held if name.startswith("textmill/trainers")]
    assert not [name for name in held if "__pycache__" in name or name.endswith(".pyc")]
    head = message_from_bytes(held[f"{info}/METADATA"])
    assert head["Requires-Python"] == f"=={sys.version_info[0]}.{sys.version_info[1]}.*"
    needs = {Requirement(text).name: text for text in head.get_all("Requires-Dist", [])}
    assert sorted(needs) == NEEDED
    assert needs["numba"] == f"numba=={importlib.metadata.version('numba')}"
    assert needs["apache-beam"].startswith("apache-beam[") and "gcp" in needs["apache-beam"]
    assert needs["gcsfs"] == f"gcsfs=={importlib.metadata.version('gcsfs')}"
    listed = [line.split(",")[0] for line in held[f"{info}/RECORD"].decode().splitlines()]
    assert sorted(listed) == sorted(held)


def write_module(folder, name):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("def choose(document):\n    return None\n")


def test_a_filter_among_the_users_own_files_goes_along(tmp_path, monkeypatch):
    write_module(tmp_path, "chooser_alone.py")
    write_module(tmp_path, "chooser_folder/__init__.py")
    write_module(tmp_path, "chooser_folder/inner.py")
    monkeypatch.syspath_prepend(tmp_path)
    for name, held in {
        "chooser_alone:choose": {"chooser_alone.py"},
        "chooser_folder.inner:choose": {"chooser_folder/__init__.py", "chooser_folder/inner.py"},
    }.items():
        with zipfile.ZipFile(write_package(str(tmp_path), name)) as wheel:
            own = {n for n in wheel.namelist() if n.startswith("chooser")}
        assert own == held


def test_a_filter_that_was_installed_is_required(tmp_path):
    with zipfile.ZipFile(write_package(str(tmp_path), "hypothesis.strategies:text")) as wheel:
        names = wheel.namelist()
        head = message_from_bytes(wheel.read("textmill-0.1.0.dist-info/METADATA"))
    version = importlib.metadata.version("hypothesis")
    assert f"hypothesis=={version}" in head.get_all("Requires-Dist", [])
    assert not [name for name in names if name.startswith("hypothesis")]


def test_a_filter_whose_folder_holds_the_corpus_is_refused(tmp_path, monkeypatch):
    write_module(tmp_path, "chooser_corpus/__init__.py")
    with open(tmp_path / "chooser_corpus/data.bin", "wb") as file:
        file.truncate(40_000_000)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="has 40 MB in 2 files, too much to send"):
        write_package(str(tmp_path), "chooser_corpus:choose")


def test_without_an_installed_textmill_there_is_no_package(monkeypatch):
    def requires(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.requires", requires)
    with pytest.raises(UsageError, match=r"textmill is not installed here.*--sdk_container_image"):
        requirements()


def test_an_installed_textmill_gives_the_same_package_as_a_checkout(tmp_path):
    """The content of a package is installed, and makes a package itself."""
    first = Path(write_package(str(tmp_path)))
    with zipfile.ZipFile(first) as wheel:
        wheel.extractall(tmp_path / "site")
    info = next((tmp_path / "site").glob("*.dist-info")) / "METADATA"
    info.write_text("Provides-Extra: pipelines\n" + info.read_text())
    (tmp_path / "out").mkdir()
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from textmill.pipelines.runners import worker_package\n"
        "assert worker_package.__file__.startswith(sys.argv[1])\n"
        "print(worker_package.write_package(sys.argv[2]))"
    )
    folders = [str(tmp_path / "site"), str(tmp_path / "out")]
    done = run_python("-c", code, *folders, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).read_bytes() == first.read_bytes()


def test_the_image_is_of_this_beam_and_of_files_that_are_there():
    lines = (ROOT / "deploy/Dockerfile").read_text().splitlines()
    _, base, *stages = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert base.endswith(f"_sdk:{importlib.metadata.version('apache-beam')}")
    assert stages == ["workers"] * 3, "without --target, the image of workers"
    copies = [line for line in lines if line.startswith("COPY ") and "--from" not in line]
    copied = [name for line in copies for name in line.split()[1:-1]]
    assert copied and all((ROOT / name).exists() for name in copied)
    # One file for x86 and Arm: no line fixes a platform, or the processor of loops.
    assert not [line for line in lines if line.startswith("FROM --platform")]
    assert "ENV NUMBA_CPU_NAME=generic" in lines
    assert "--platform=linux/amd64,linux/arm64" in " ".join(lines)
