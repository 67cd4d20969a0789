"""Runs work in a forked process with limits on time and memory, and classifies how it ended.

The process that forks must open no dataset: libraries of file formats start threads, and a process
that is forked beside those dies.
"""

import contextlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textmill.schemas.errors import TextmillError

FAILED = ("traceback", "hang", "died", "memory")


@dataclass(frozen=True)
class Limits:
    """Limits of a child.

    Attributes:
      cpu_seconds: of work.
      seconds: in all, on a machine with other work on it.
      more_bytes: of resident memory, beyond the parent's.
      data_bytes: of memory that it may request, beyond the parent's.
    """

    cpu_seconds: int = 10
    seconds: float = 120
    more_bytes: int = 100_000_000
    data_bytes: int = 2_000_000_000


@dataclass
class Outcome:
    """How work ended.

    Attributes:
      kind: "accepted", "refused" (an error that Textmill words) or one of FAILED.
      said: the error.
      value: what accepted work returned, as JSON has it.
      more_bytes: the growth of resident memory.
    """

    kind: str
    said: str = ""
    value: Any = ""
    more_bytes: int = 0


def run_apart(work: Callable[[], Any], folder: Path, limits: Limits) -> Outcome:
    """Forks and works in the child; what it prints is in the file `printed` of the folder."""
    printed, result = folder / "printed", folder / "result"
    result.write_bytes(b"")
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            _be_the_child(work, printed, result, limits)
        os._exit(99)
    status = _wait(child, limits.seconds)
    if status is None or os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return Outcome("hang")
    if not result.stat().st_size:
        no_memory = b"memory allocation" in printed.read_bytes()  # as Rust prints before it aborts
        return Outcome("memory" if no_memory else "died", f"status {status}")
    outcome = Outcome(**json.loads(result.read_bytes()))
    if outcome.more_bytes > limits.more_bytes and outcome.kind != "traceback":
        return Outcome("memory", f"{outcome.more_bytes:,} bytes more: {outcome}")
    return outcome


def _be_the_child(work: Callable[[], Any], printed: Path, result: Path, limits: Limits) -> None:
    out = os.open(printed, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    with open("/proc/self/statm") as file:
        data = int(file.read().split()[5]) * resource.getpagesize() + limits.data_bytes
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (data, data))
    before = _most_bytes()
    outcome = Outcome("accepted")
    try:
        outcome.value = work()
    except TextmillError as error:
        outcome = Outcome("refused", str(error))
    except SystemExit as error:
        outcome = Outcome("refused" if error.code else "accepted", f"exit code {error.code}")
    except MemoryError:
        outcome = Outcome("memory", "MemoryError")
    except BaseException:
        outcome = Outcome("traceback", traceback.format_exc()[-4000:])
    outcome.more_bytes = _most_bytes() - before
    sys.stdout.flush()
    sys.stderr.flush()
    result.write_text(json.dumps(vars(outcome)))
    os._exit(0)


def _most_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _wait(child: int, seconds: float) -> int | None:
    """The status of a process; None if it had to be killed."""
    deadline, pause = time.monotonic() + seconds, 0.001
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
