"""Two processes under DDP read and learn what one does, also resumed."""

import subprocess
import sys

import pytest

from tests.tools.places import ROOT


@pytest.mark.slow  # four processes that train, and their workers
def test_two_processes_are_one():
    """In a process of its own, which can fork before threads of other tests run."""
    command = [sys.executable, "-m", "tests.interop.ddp_on_two_processes"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the same rows") == 2
    print(done.stdout)
