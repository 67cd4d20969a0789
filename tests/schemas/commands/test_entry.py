"""How a command ends: its exit code, and what it says where nobody listens."""

import os
import subprocess
import sys

import pytest

from tests.tools.places import ROOT

_BROKEN = """
import os
def main(argv):
    reader, writer = os.pipe()
    os.close(reader)
    os.write(writer, b"x")
"""
_PRINTS = """
def main(argv):
    for number in range(100_000):
        print("line", number)
"""
_REFUSES = """
from schemas.errors import DataError
def main(argv):
    raise DataError("no data")
"""


def start(code, redirection=""):
    code = f"{code}\nfrom schemas.commands.entry import run_entry\nrun_entry(main)"
    return subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$0" -c "$1" {redirection}', sys.executable, code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_pipe_of_the_run_that_breaks_is_a_failure():
    found = start(_BROKEN)
    assert found.returncode == 1
    assert found.stderr.startswith("error: a process that this one wrote to has ended")
    assert "Traceback" not in found.stderr


def test_output_that_is_read_no_further_is_none():
    found = start(_PRINTS, "| head -2")
    assert (found.returncode, found.stdout, found.stderr) == (0, "line 0\nline 1\n", "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "2>&1 >&- | true"])
def test_streams_that_are_closed_change_no_exit_code(closed):
    found = start(_REFUSES, closed)
    assert found.returncode == 1
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        ("pipelines.verify", "tyro", "pipelines"),
        ("pipelines.inspect_shards", "pyarrow", "pipelines"),
        ("pipelines.build_shards", "pyarrow", "pipelines"),
        ("trainers.flax_mlm", "tyro", "flax"),
        ("trainers.tf_qa", "tyro", "tf"),
    ],
)
def test_a_missing_package_is_one_line(command, package, extra, tmp_path):
    """Whether it is missed when the entry is imported, or by what that imports later."""
    (tmp_path / f"{package}.py").write_text(
        f"raise ModuleNotFoundError('No module named {package}', name='{package}')"
    )
    found = subprocess.run(
        [sys.executable, "-m", command, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    name = command.partition(".")[2]
    assert (found.returncode, found.stderr) == (
        1,
        f"error: {name} needs the package {package}, which is not installed here: pip install "
        f"'/path/to/textmill[{extra}]'\n",
    )
