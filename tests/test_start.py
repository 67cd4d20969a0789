"""An entry shows its help, or rejects a flag, before it loads any heavy module."""

import json
import subprocess
import sys

import pytest

from tests.tools.help_pages import ENTRIES
from tests.tools.places import ROOT
from tests.tools.python_process import run_python

HEAVY = {
    # (Not google itself: a .pth file of google-cloud-aiplatform's makes an empty one.)
    *("apache_beam", "grpc", "google.protobuf", "awkward", "gigatoken", "tokenizers"),
    *("numba", "llvmlite"),
    *("datasets", "pandas", "matplotlib", "scipy", "tensorflow", "keras", "torch", "transformers"),
    *("jax", "jaxlib", "flax", "optax", "orbax", "grain", "pyarrow.compute", "pyarrow.parquet"),
    *("psutil", "filelock", "yaml"),
}
# Packages of others that may be loaded by then, numpy's and PyArrow's own parts included.
LIGHT = {
    *("cloudpickle", "docstring_parser", "numpy", "pyarrow", "rich", "safetensors", "tyro"),
    *("cython_runtime", "typing_extensions", "xxhash"),
}
LIGHT_OF_TRAINERS = LIGHT - {"pyarrow"}
OURS = {"pipelines", "schemas", "textmill", "trainers"}
# A flag that is not ours may be one of Beam's, which has to be asked.
ASKED = {"pipelines.build_corpus", "pipelines.build_shards", "pipelines.train_tokenizer"}
RUN = """
import importlib, json, sys
main, found = importlib.import_module(sys.argv[1]).main, []
for arguments in json.loads(sys.argv[2]):
    ended = ["", ""]
    try:
        main(arguments)
    except BaseException as error:
        ended = [type(error).__name__, str(error)]
    found.append([ended, sorted(sys.modules)])
print()
print(json.dumps(found))
"""


def loaded_by(entry: str, *calls: list[str]) -> list[tuple[list[str], set[str]]]:
    """How each call of a command failed, if it did, and the modules that were loaded by then."""
    done = run_python("-c", RUN, entry, json.dumps(calls), check=True)
    return [(ended, set(modules)) for ended, modules in json.loads(done.stdout.splitlines()[-1])]


def packages(modules: set[str]) -> set[str]:
    """Packages that are neither of the standard library nor ours; Cython's have a version."""
    names = {module.split(".")[0] for module in modules} - set(sys.stdlib_module_names)
    return {name for name in names if not name.startswith(("_cython_", "__main__"))} - OURS


@pytest.fixture(scope="module")
def bare() -> set[str]:
    """Modules of an interpreter that has run nothing: .pth files may import some."""
    code = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    return set(json.loads(run.stdout))


@pytest.mark.parametrize("entry", ENTRIES)
def test_help_and_a_wrong_flag_load_little(entry, bare):
    wrong = [] if entry in ASKED else [["--no_such_flag=3"]]
    (ended, modules), *others = loaded_by(entry, ["--help"], *wrong)
    assert ended == ["SystemExit", "0"]
    assert not modules & HEAVY
    assert packages(modules - bare) <= (
        LIGHT_OF_TRAINERS if entry.startswith("trainers.") else LIGHT
    )
    for ended, modules in others:
        assert ended[0] in ("SystemExit", "UsageError") and ended[1] != "0"
        assert not modules & HEAVY


@pytest.mark.parametrize("arguments", [["--help"], ["train"], ["genrate"]])
def test_what_no_command_is_run_for_loads_no_package(arguments, bare):
    code = """
import json, sys
from textmill.schemas.commands.textmill import main
sys.argv = ["textmill", *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
print()
print(json.dumps(sorted(sys.modules)))
"""
    done = run_python("-c", code, *arguments, check=True)
    assert packages({*json.loads(done.stdout.splitlines()[-1])} - bare) == set()


def test_loops_load_without_what_else_is_installed_for_numba(tmp_path):
    """Together 0.4 s of each process; fails when numba imports them in a different way."""
    (tmp_path / "text.txt").write_text("a dog, and another dog\n" * 9)
    flags = [f"--input={tmp_path / 'text.txt'}", f"--output={tmp_path / 'made'}"]
    [(ended, modules)] = loaded_by("pipelines.train_tokenizer", [*flags, "--vocab_size=262"])
    assert ended == ["", ""]
    assert "numba" in modules and not modules & {"awkward", "scipy.linalg"}


def test_a_users_loop_still_has_products_of_matrices():
    code = """
import numpy as np
from textmill.pipelines.encoding.splitter import split_by
list(split_by("a").cut(np.frombuffer(b"aba", np.uint8), np.array([0, 3])))
import numba
print(numba.njit(lambda a: a @ a)(np.eye(2) * 3).tolist())
"""
    done = run_python("-c", code)
    assert done.stdout.strip() == "[[9.0, 0.0], [0.0, 9.0]]", done.stderr


@pytest.mark.parametrize("program", ["sys.argv = ['-m']; import pipelines", "import textmill"])
def test_threads_of_numpy_rest_in_commands_alone(program, monkeypatch):
    """What `python -m` imports first, and a user's program, whose threads may have to be quick."""
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    shown = "print(os.environ.get('OPENBLAS_THREAD_TIMEOUT'), 'numpy' in sys.modules)"
    done = run_python("-c", f"import os, sys; {program}; {shown}", check=True)
    assert done.stdout.split() == ["4" if "-m" in program else "None", "False"]
