"""The command `textmill`: the same commands as `python -m`, by other names."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from schemas.commands.textmill import COMMANDS
from schemas.version import VERSION
from tests.tools.help_pages import ENTRIES
from tests.tools.places import ROOT
from tests.tools.python_process import run_python

SCRIPT = "import sys\nfrom schemas.commands.textmill import main\nsys.exit(main())\n"
ENTRY_POINT = 'entry_points={"console_scripts": ["textmill = schemas.commands.textmill:main"]}'


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """As pip installs it: Python's first folder of modules is the script's."""
    path = tmp_path_factory.mktemp("bin") / "textmill"
    path.write_text(SCRIPT)
    return str(path)


@pytest.fixture(scope="module")
def textmill(script):
    def run(*arguments, cwd=ROOT, **environment):
        return run_python(script, *arguments, cwd=cwd, COLUMNS="80", **environment)

    return run


def test_every_entry_has_a_name():
    assert sorted(module for module, _ in COMMANDS.values()) == ENTRIES
    assert ENTRY_POINT in (ROOT / "setup.py").read_text()


def test_help_lists_the_commands_a_line_each(textmill):
    for arguments in ([], ["--help"], ["-h"]):
        found = textmill(*arguments)
        assert (found.returncode, found.stderr) == (0, "")
        listed = re.findall(r"^  (\w\S*(?: \S+)?)  +[A-Z].*\.$", found.stdout, re.M)
        assert listed == [*COMMANDS] and max(map(len, found.stdout.splitlines())) <= 80
    trainers = [name for name in COMMANDS if name.startswith("train ")]
    listed = re.findall(r"^  (train \S+)", textmill("train", "--help").stdout, re.M)
    assert textmill("--version").stdout == f"textmill {VERSION}\n"
    assert listed == trainers == re.findall(r"^  (train \S+)", textmill("train").stdout, re.M)


@pytest.mark.parametrize("name", ["build-shards", "build_shards", "train flax-clm"])
def test_help_of_a_command_names_what_was_typed(textmill, name):
    found = textmill(*name.split(), "--help")
    assert (found.returncode, found.stderr) == (0, "")
    command = f"textmill {name.replace('_', '-')}"
    assert found.stdout.startswith(f"usage: {command} --")
    assert f"\nExample: {command} --" in found.stdout


@pytest.mark.parametrize(
    ("typed", "code", "error"),
    [
        ("bulid-shards", 2, "textmill has no command 'bulid-shards': did you mean build-shards?"),
        ("flax-clm", 2, "textmill has no command 'flax-clm': did you mean train flax-clm?"),
        ("train tf-q", 2, "textmill has no command 'train tf-q': did you mean train tf-qa?"),
        ("xyz", 2, "textmill has no command 'xyz': textmill --help lists them"),
        ("export a --to=b --output=c", 2, "--to=b: choose one of parquet, jsonl, arrow, mds"),
        ("verify /dev/null/none", 1, "/dev/null/none "),
    ],
)
def test_exit_codes_are_those_of_the_commands(textmill, typed, code, error):
    found = textmill(*typed.split())
    assert (found.returncode, found.stdout) == (code, "")
    assert found.stderr.startswith(f"error: {error}") and found.stderr.count("\n") == 1


def test_a_filter_beside_the_command_is_found(textmill, tmp_path):
    """As with python -m, but a folder `pipelines` of the user's hides nothing of ours."""
    (tmp_path / "mine.py").write_text("def drop(document):\n    return 'short'\n")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "__init__.py").write_text("raise ImportError('not ours')")
    (tmp_path / "text.txt").write_text("a b c\n")
    flags = ["--input=text.txt", "--output=corpus", "--filter=mine:drop", "--dry_run"]
    found = textmill("build-corpus", *flags, cwd=tmp_path)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("is_module", [True, False])
def test_ctrl_c_during_imports_is_one_line(is_module, script, tmp_path):
    """Shells report both ends as 130: an exit code of 130, or a process that SIGINT ended."""
    (tmp_path / "tyro.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    command = ["-m", "pipelines.verify"] if is_module else [script, "verify"]
    started = subprocess.Popen(
        [sys.executable, *command, "x"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout and started.stdout.readline() == "here\n"
    time.sleep(0.1)
    started.send_signal(signal.SIGINT)
    _, error = started.communicate(timeout=60)
    assert (started.returncode in (130, -signal.SIGINT), error) == (True, "interrupted\n")
