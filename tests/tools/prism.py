"""Prism, Beam's runner in Go, started for tests as a user starts it."""

import atexit
import contextlib
import functools
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.tools.run_processes import free_port

_STARTING_SECONDS = 30.0


def find_prism() -> str | None:
    """The program: beside the Python interpreter, as `make prism` builds it, or on the PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "prism")
    return shutil.which(beside) or shutil.which("prism")


@contextlib.contextmanager
def prism_running() -> Iterator[tuple[list[str], subprocess.Popen]]:
    """Starts Prism; yields the flags of a command that uses it, and its process."""
    program, port = find_prism(), free_port()
    if program is None:
        raise FileNotFoundError("prism is not installed: make prism")
    command = [program, f"--job_port={port}", "--serve_http=false", "--log_level=error"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            ends = time.monotonic() + _STARTING_SECONDS
            while not _answers(port):
                assert process.poll() is None and time.monotonic() < ends, "it does not start"
                time.sleep(0.02)
            yield ["--runner=PrismRunner", f"--job_endpoint=localhost:{port}"], process
        finally:
            process.kill()


@functools.cache
def started_prism() -> list[str]:
    """Starts Prism on the first call, for a program; it ends with this process."""
    stack, owner = contextlib.ExitStack(), os.getpid()
    flags, _ = stack.enter_context(prism_running())
    atexit.register(lambda: stack.close() if os.getpid() == owner else None)
    return flags


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("localhost", port)) == 0
