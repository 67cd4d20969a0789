"""The compilation of a run's program, which may take minutes."""

from __future__ import annotations

import threading
import time
from typing import Callable

from textmill.trainers.run.program import Program

_QUIET_SECONDS = 3  # of compiling before the run prints a line


def compile_program(program: Program, *, evaluates: bool, say: Callable[[str], None]) -> str:
    """Compiles the steps; after a while, `say` gets a line.

    Returns:
      What took how long, to end a sentence; "" if it took less than a second.
    """
    what = "the training step" + (" and the evaluation" if evaluates else "")
    began = time.perf_counter()
    timer = threading.Timer(_QUIET_SECONDS, say, [f"compiling {what} ..."])
    timer.daemon = True
    timer.start()
    try:
        program.compile(trains=True, evaluates=evaluates)
    finally:
        timer.cancel()
    seconds = time.perf_counter() - began
    return f", {seconds:.1f} s of it to compile {what}" if seconds >= 1 else ""
