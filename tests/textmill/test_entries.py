"""The short names of commands, and what a user's own folders do to them."""

import json
import sys

import pytest

from tests.tools.own_modules import loaded_twice
from tests.tools.python_process import run_python
from textmill.entries import is_hidden
from textmill.schemas.commands.terminal import command_name

IMPORTS = """
import json, sys
import pipelines.verify, textmill.pipelines.verify, textmill.trainers.reader, trainers.reader
import pipelines, schemas.format.metadata, trainers.data.shard_set
from tests.tools.own_modules import loaded_from, loaded_twice
assert len(loaded_from()) > 20
same = [(name, sys.modules[f"textmill.{name}"] is sys.modules[name])
        for name in ("pipelines", "pipelines.verify", "schemas", "trainers", "trainers.reader")]
print(json.dumps([loaded_twice(), dict(same)]))
"""


def test_both_names_are_one_module():
    names = ("pipelines", "pipelines.verify", "schemas", "trainers", "trainers.reader")
    found = json.loads(run_python("-c", IMPORTS, check=True).stdout)
    assert found == [[], dict.fromkeys(names, True)]


def test_pytest_has_loaded_no_file_twice():
    import trainers.reader

    assert trainers.reader is sys.modules["textmill.trainers.reader"]
    assert loaded_twice() == []


@pytest.mark.parametrize(
    ("own", "hides"),
    [
        ("trainers/__init__.py", True),
        ("trainers.py", True),
        ("trainers/reader.py", False),  # a namespace package
        ("train/__init__.py", False),
    ],
)
def test_hints_are_commands_that_work_beside_the_users_own_folders(
    tmp_path, monkeypatch, own, hides
):
    path = tmp_path / own
    path.parent.mkdir(exist_ok=True)
    path.write_text("raise RuntimeError('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["program.py"])
    assert (is_hidden("trainers"), is_hidden("pipelines")) == (hides, False)
    hint = "textmill flax-clm" if hides else "python -m trainers.flax_clm"
    assert command_name("trainers.flax_clm") == hint
    assert command_name("pipelines.verify") == "python -m pipelines.verify"


def test_hints_do_not_need_a_directory_that_exists(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert not is_hidden("trainers")


def test_the_package_runs_as_the_command(tmp_path):
    """`python -m textmill` is for a Python whose scripts are not on the PATH."""
    (tmp_path / "trainers.py").touch()
    found = run_python("-m", "textmill", "flax-clm", "--help", cwd=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("usage: textmill flax-clm ")
