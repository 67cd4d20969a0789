"""Wheels: built from a checkout and from an sdist, installed, used beside a user's own folders.

PyPI would take them, and they work without any package that they do not name.

An installation as editable, which all other tests use, finds modules in another way.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.benchmarks.baselines import with_baselines
from tests.benchmarks.measure import CannotRun
from tests.tools.places import ROOT

pytestmark = pytest.mark.slow

FOLDERS = ("pipelines", "schemas", "trainers")
SOURCES = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py", "textmill")
OWN_MODULES = ROOT / "tests" / "tools" / "own_modules.py"
DOCUMENTS = ROOT / "tests" / "golden" / "inputs" / "documents.jsonl"
# A user's own packages of our names: what fails if it is imported, and what has nothing in it.
HOSTILE = {"raising": "raise RuntimeError(f'{__name__} of the user is imported')\n", "empty": ""}
# Two workers, each a process of its own.
BEAM = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
COMMANDS = [
    [
        *("build-corpus", "--input=documents.jsonl", "--output=corpus", *BEAM),
        "--filter=own_modules:keep",
    ],
    ["train-tokenizer", "--input=corpus", "--output=tokenizer", "--vocab_size=300"],
    [
        *("build-shards", "--task=clm", "--input=corpus", "--output=shards"),
        *("--tokenizer=tokenizer", "--max_length=32", "--splits=train:0.8,validation:0.2"),
    ],
    ["verify", "corpus", "shards"],
    ["inspect", "shards", "--row=0"],
    ["export", "shards", "--to=jsonl", "--output=exported"],
    [
        *("flax-clm", "--shards=shards", "--output=run", "--layers=1", "--hidden_size=16"),
        *("--heads=2", "--intermediate_size=32", "--steps=2", "--batch_size=2"),
    ],
    ["export-model", "run", "--output=weights"],
    ["tf-classifier", "--help"],
    ["demo", "--help"],
]
NOT_INHERITED = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
WORKER = "textmill.pipelines.runners.worker"
READ = """
import json, textmill
shards = textmill.ShardSet("shards")
batches = shards.sequential_batches("validation", batch_size=1)
print(json.dumps([textmill.__file__, len(list(batches))]))
"""
# A user's program, whose workers are new interpreters; on Linux, those of a command are forked.
PROGRAM = """
import textmill
workers = {"direct_running_mode": "multi_processing", "direct_num_workers": 2}
textmill.build_corpus(
    input="documents.jsonl", output="of_program", filter="own_modules:keep", **workers
)
"""
FORKS = sys.platform == "linux"
# `python -m`, with a report of the command's own process.
MAIN = """
import atexit, own_modules, runpy, sys
atexit.register(own_modules.report)
module, *sys.argv[1:] = sys.argv[1:]
sys.argv[0] = "-m"
runpy._run_module_as_main(module)
"""
OWN_TEST = """
import own_modules, textmill.trainers.reader, trainers.reader

def test():
    assert trainers.reader is textmill.trainers.reader
    assert own_modules.loaded_twice() == [] and len(own_modules.loaded_from()) > 5
"""


def run(*command, cwd: Path, check: bool = True, **environment):
    """Runs a command without this checkout on Python's path."""
    inherited = {name: os.environ[name] for name in os.environ.keys() - NOT_INHERITED}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
    )
    assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done


def uv(*arguments: str | Path, cwd: Path = ROOT) -> None:
    run(Path(sys.executable).with_name("uv"), *arguments, "--offline", "--quiet", cwd=cwd)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of what setup.py reads: a build leaves files there."""
    folder = tmp_path_factory.mktemp("checkout")
    junk = shutil.ignore_patterns("__pycache__")
    for name in (*SOURCES, *FOLDERS):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=junk)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def built(checkout) -> dict[str, Path]:
    """A wheel of the checkout; an sdist of it; a wheel of the sdist."""
    build = ["build", "--no-build-isolation", "--python", sys.executable]
    uv(*build, "--wheel", "--out-dir=direct", cwd=checkout)
    uv(*build, "--out-dir=both", cwd=checkout)
    [direct], [sdist] = (checkout / "direct").glob("*.whl"), (checkout / "both").glob("*.tar.gz")
    [by_sdist] = (checkout / "both").glob("*.whl")
    return {"wheel": direct, "sdist": sdist, "wheel of the sdist": by_sdist}


def make_venv(folder: Path, *install: str | Path) -> Path:
    """An environment with Textmill in it, and the packages of this one; returns its bin/."""
    uv("venv", "--python", sys.executable, folder)
    [packages] = (folder / "lib").glob("python*/site-packages")
    [ours] = {path for path in map(Path, sys.path) if path.name == "site-packages"}
    # Python reads no .pth files of a folder that is named in one: no editable Textmill.
    (packages / "others.pth").write_text(f"{ours}\n")
    python = folder / "bin" / "python"
    uv("pip", "install", "--no-deps", "--no-build-isolation", "--python", python, *install)
    return folder / "bin"


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    return make_venv(tmp_path_factory.mktemp("venv") / "wheel", built["wheel"])


@pytest.fixture
def project(tmp_path) -> Path:
    """A user's project, with documents and a filter that reports what its process has loaded."""
    folder = tmp_path / "project"
    (folder / "seen").mkdir(parents=True)
    shutil.copy(DOCUMENTS, folder / "documents.jsonl")
    shutil.copy(OWN_MODULES, folder / "own_modules.py")
    return folder


@pytest.fixture(params=HOSTILE)
def hostile(request, project) -> Path:
    """The same with folders that have our names."""
    for folder in FOLDERS:
        (project / folder).mkdir()
        (project / folder / "__init__.py").write_text(HOSTILE[request.param])
    return project


def check_modules(project: Path, packages: Path) -> list[str]:
    """The main modules of the processes that reported, which had one module for a file."""
    seen = [json.loads(path.read_text()) for path in (project / "seen").glob("*.json")]
    for process in seen:
        assert process["twice"] == [] and len(process["files"]) > 20
        assert all(Path(file).is_relative_to(packages.resolve()) for file in process["files"])
    return sorted({process["main"] for process in seen})


def test_a_wheel_has_the_code_once_with_and_without_an_sdist(built):
    files = read_all(built["wheel"])
    assert read_all(built["wheel of the sdist"]) == files
    sources = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    code = {f"textmill/{path.relative_to(ROOT)}" for path in sources}
    code |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "textmill").glob("*.py")}
    modules = {name for name in files if name.endswith(".py")}
    assert modules == code | {f"{folder}/__init__.py" for folder in FOLDERS}
    data = files.keys() - modules
    for folder, pattern in {"configs": "yaml", "": "jinja", "readers": "csv"}.items():
        kept = {path.name for path in (ROOT / "pipelines" / folder).rglob(f"*.{pattern}")}
        assert kept and kept == {Path(name).name for name in data if name.endswith(pattern)}
    with tarfile.open(built["sdist"]) as sdist:
        names = [name.partition("/")[2] for name in sdist.getnames()]
    assert not [name for name in names if name.startswith("tests")]


def read_all(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_commands_and_the_api_work_beside_folders_of_the_same_names(installed, hostile):
    for name, *flags in COMMANDS:
        done = run(
            installed / "textmill", name, *flags, cwd=hostile, SEEN="seen", JAX_PLATFORMS="cpu"
        )
        assert "python -m" not in done.stdout + done.stderr, "a hint that does not work there"
    own = {path.parent for path in hostile.rglob("__pycache__")} - {hostile}
    assert not own, "what is hidden was imported"
    [packages] = (installed.parent / "lib").glob("python*/site-packages")
    found, rows = json.loads(run(installed / "python", "-c", READ, cwd=hostile).stdout)
    assert Path(found) == packages / "textmill" / "__init__.py" and rows > 0
    run(installed / "python", "-c", PROGRAM, cwd=hostile, SEEN="seen")
    assert check_modules(hostile, packages) == [*[""] * FORKS, WORKER]
    for module in ("pipelines.build_corpus", "trainers.flax_mlm"):
        hidden = run(installed / "python", "-m", module, "--help", cwd=hostile, check=False)
        assert hidden.returncode == 1  # Python's own message: nothing of ours runs
        assert "RuntimeError" in hidden.stderr or f"No module named {module}" in hidden.stderr


def test_an_editable_installation_has_one_module_for_a_file(checkout, project, tmp_path):
    python = make_venv(tmp_path / "venv", "--editable", checkout) / "python"
    name, *flags = COMMANDS[0]
    module = f"pipelines.{name.replace('-', '_')}"
    run(python, "-c", MAIN, module, *flags, cwd=project, SEEN="seen")
    assert check_modules(project, checkout) == [module, *[WORKER] * (not FORKS)]
    (project / "test_own.py").write_text(OWN_TEST)
    for mode in ("prepend", "importlib"):
        pytest_mode = ["-m", "pytest", "-q", f"--import-mode={mode}", "test_own.py"]
        run(python, *pytest_mode, cwd=project, PYTHONPATH=".")


def test_pypi_takes_the_files(built):
    try:
        python = with_baselines(str, "twine")()
    except CannotRun as error:
        pytest.skip(f"there is no twine: {error}")
    files = (built["wheel"], built["sdist"])
    done = run(python, "-m", "twine", "check", "--strict", *files, cwd=ROOT)
    assert done.stdout.count("PASSED") == 2


def test_a_wheel_works_alone(built, project, tmp_path):
    """Only with the packages that it names, in the versions of requirements.lock."""
    wheel, venv = built["wheel"], tmp_path / "venv"
    uv("venv", "--python", sys.executable, venv)
    python, textmill = venv / "bin" / "python", venv / "bin" / "textmill"
    install = ["pip", "install", "--constraint", ROOT / "requirements.lock", "--python", python]
    uv(*install, wheel)
    assert run(textmill, "--help", cwd=project).stdout.startswith("usage: textmill COMMAND")
    run(python, "-c", "import textmill; textmill.ShardSet", cwd=project)
    missing = run(textmill, "build-corpus", "--help", cwd=project, check=False)
    assert (missing.returncode, missing.stderr) == (
        1,
        "error: textmill build-corpus needs the package tyro, which is not installed here: "
        "pip install '/path/to/textmill[pipelines]'\n",
    )
    uv(*install, f"{wheel}[pipelines]")
    for name, *flags in COMMANDS[:4]:
        flags = [flag for flag in flags if not flag.startswith(("--direct", "--filter"))]
        run(textmill, name, *flags, cwd=project)
    run(textmill, "describe", "corpus", "--to=papers", cwd=project)
    run(textmill, "publish", "--help", cwd=project)
    found, rows = json.loads(run(python, "-c", READ, cwd=project).stdout)
    assert Path(found).is_relative_to(venv) and rows > 0
