"""Chooses the runner of a command, and imports Beam only when a command needs it."""

import functools
import gc
import logging
import os
from collections.abc import Iterable

from textmill.pipelines.runners.forked_workers import can_fork
from textmill.pipelines.runners.runner_flags import runner_flags
from textmill.pipelines.runtime.imports import (
    NOT_LOCAL,
    SELDOM_CALLED,
    block_imports,
    postpone_imports,
)
from textmill.schemas.commands.entry import import_later
from textmill.schemas.errors import flag

# Imports Beam: see `with_beam`.
_check_flags = import_later("textmill.pipelines.runners.beam_flags:check_flags")
_refuse_bad_runner = import_later("textmill.pipelines.runners.beam_flags:refuse_bad_runner")
IN_PROCESS = "apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
# Measured with two cores (sources, L = 1,024, CLM, GPT-2), medians of two and three. For 300 MB,
# two threads take 0.84 of the time of one, and two processes 1.4 times as long as two threads.
# For 1.2 GB, two processes that are new interpreters take 1.07 times as long as two threads, and
# 1.3 times the processor time; two forked ones 0.90 and 0.95 times, for 92 MB 1.04 and 1.16 times.
# Each of two threads waits for the GIL for 1 to 4 % of its time. More than four threads were not
# measured; processes have a GIL each.
THREADS_PAY_BYTES = 50_000_000
PROCESSES_PAY_BYTES = 600_000_000
MOST_THREADS = 4


def choose_runner(beam_arguments: list[str], total_bytes: int) -> tuple[list[str], str]:
    """Chooses a runner, unless the user did.

    Returns:
      Beam's arguments, and a description of the choice.
    """
    flags = runner_flags(beam_arguments)
    if flags.runner is not None:
        return beam_arguments, f"on {flags.runner_class}"
    chosen = [f"--runner={IN_PROCESS}"]
    if flags.direct_running_mode or flags.direct_num_workers is not None:
        return chosen + beam_arguments, f"on this machine, as the {flag('direct_')} flags set"
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    mode, how = "", "in this process"
    if total_bytes >= THREADS_PAY_BYTES and cores > 1:
        mode, how = "multi_threading", f"in {cores} threads"
        if total_bytes >= PROCESSES_PAY_BYTES and (cores > MOST_THREADS or can_fork()):
            mode, how = "multi_processing", f"in {cores} worker processes"
    if mode:
        chosen += [f"--direct_running_mode={mode}", f"--direct_num_workers={cores}"]
    return [*chosen, *beam_arguments], f"{how}, the fastest for input of this size"


def check_arguments(beam_arguments: list[str], ours: Iterable[str] = ()) -> None:
    """Rejects flags that neither Textmill nor Beam knows.

    Args:
      beam_arguments: the flags that are not Textmill's.
      ours: the names of Textmill's flags, to suggest the nearest one.

    Raises:
      UsageError: a flag is unknown.
    """
    if beam_arguments:
        _import_beam_of(beam_arguments)
        _check_flags(beam_arguments, ours)


def check_runner(beam_arguments: list[str]) -> None:
    """Rejects a runner that cannot run, before anything is read.

    Raises:
      UsageError: there is no such runner, or it lacks something.
    """
    if beam_arguments:
        _import_beam_of(beam_arguments)
        _refuse_bad_runner(beam_arguments)


def _import_beam_of(beam_arguments: list[str]) -> None:
    on_this_machine = all(argument.startswith("--direct_") for argument in beam_arguments)
    with_beam(clouds=not on_this_machine)


@functools.cache
def with_beam(*, clouds: bool = False):  # a module, whose type is inferred
    """Imports `beam_run`, and with it Beam, without its warnings.

    Args:
      clouds: whether the runner may need Beam's cloud clients.

    Returns:
      The module `beam_run`.
    """
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.CRITICAL)  # Beam's import logs warnings to the root
    gc.disable()  # modules contain no garbage; searching them would take 0.7 s
    not_local = () if clouds else NOT_LOCAL
    try:
        with block_imports(*not_local), postpone_imports(SELDOM_CALLED if not_local else {}):
            # Beam takes up to a second, and help or a finished output do not need it.
            from textmill.pipelines.runners import beam_run
    finally:
        gc.freeze()
        gc.enable()
        root.setLevel(level)
    # Beam's log repeats an error for each layer; Textmill reports it once.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    return beam_run
