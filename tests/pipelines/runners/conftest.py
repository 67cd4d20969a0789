"""Prism, a pool of Beam's workers, ports, and small blocks."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import psutil
import pytest

from pipelines.readers import sources
from pipelines.runners.launch import find_program
from schemas.errors import UsageError
from tests.tools.places import ROOT


@pytest.fixture(scope="session")
def prism() -> str:
    """Path of the program; tests of Prism are skipped without it, but not in CI."""
    try:
        return find_program()
    except UsageError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def wait_for_port(wait_for) -> Callable[[int], None]:
    """Waits until something on this machine listens there."""

    def answers(port):
        with socket.socket() as tried:
            return tried.connect_ex(("localhost", port)) == 0

    return lambda port: wait_for(lambda: answers(port))


@pytest.fixture
def free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


@pytest.fixture
def small_blocks(monkeypatch):
    """Cuts inputs into blocks of 100 kB, as if they were large."""
    plan = sources.plan_blocks
    monkeypatch.setattr(
        sources, "plan_blocks", lambda source: plan(replace(source, block_bytes=100_000))
    )


@pytest.fixture(scope="session")
def pool(tmp_path_factory, wait_for_port):
    """A worker pool: Beam's flags for it, and its process."""
    with socket.create_server(("localhost", 0)) as found:
        port = found.getsockname()[1]
    # It starts `python`, whichever comes first.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    command = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"]
    with open(tmp_path_factory.mktemp("pool") / "log", "w") as log:
        process = subprocess.Popen(
            [*command, f"--service_port={port}"],
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    wait_for_port(port)
    flags = ["--environment_type=EXTERNAL", f"--environment_config=localhost:{port}"]
    yield flags, psutil.Process(process.pid)
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
    process.wait()
