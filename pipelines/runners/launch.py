"""Which runner a command takes, and the way to Beam, which help, refusals and reuse do without."""

import functools
import gc
import logging
import os
import shutil
import sys

from pipelines.host.unused import NOT_LOCAL, leave_out
from pipelines.runners.beam_flags import runner_flags
from schemas.errors import UsageError

IN_PROCESS = "apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
# Measured with two cores (L = 128, MLM): two threads take 0.94 of the time of one for 50 MB, 0.88
# for 110 MB, 0.75 for 400 MB. Two processes take half as long again for 1 GB as two threads, and
# 1.4 times the memory. But a thread needs the interpreter for a seventh (blocks) to a quarter
# (shards) of its time: of more than four, some would wait.
THREADS_PAY_BYTES = 50_000_000
PROCESSES_PAY_BYTES = 600_000_000
MOST_THREADS = 4
LAUNCHER = "TEXTMILL_LAUNCHER"  # of the environment: the process that launched this worker


def choose_runner(beam_arguments: list[str], total_bytes: int) -> tuple[list[str], str]:
    """Fills in the runner if the user named none.

    Returns:
      Beam's arguments, and the choice in words.

    Raises:
      UsageError: the program of Prism is not there.
    """
    flags = runner_flags(beam_arguments)
    if flags.runner is not None:
        if flags.is_prism and not flags.job_endpoint:  # Beam would download a program
            program = find_program(flags.prism_location)
            return [*beam_arguments, f"--prism_location={program}"], "as asked"
        return beam_arguments, "as asked"
    chosen = [f"--runner={IN_PROCESS}"]
    if flags.direct_running_mode or flags.direct_num_workers is not None:
        return chosen + beam_arguments, "local, as asked"
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    mode, how = "", "in this process"
    if total_bytes >= THREADS_PAY_BYTES and cores > 1:
        mode, how = "multi_threading", f"in {cores} threads"
        if total_bytes >= PROCESSES_PAY_BYTES and cores > MOST_THREADS:
            mode, how = "multi_processing", f"in {cores} worker processes"
    if mode:
        chosen += [f"--direct_running_mode={mode}", f"--direct_num_workers={cores}"]
    return [*chosen, *beam_arguments], f"{how}, the fastest for input of this size"


def find_program(location: str = "") -> str:
    """The path of Prism's program: --prism_location, beside the Python interpreter, on the PATH.

    Raises:
      UsageError: there is none.
    """
    beside = os.path.join(os.path.dirname(sys.executable), "prism")  # of the virtual environment
    if location:
        found = shutil.which(os.path.abspath(location))
        problem = f"--prism_location={location}: there is no program"
    else:
        found = shutil.which(beside) or shutil.which("prism")
        problem = f"--runner=PrismRunner: its program is neither {beside} nor on the PATH"
    if not found:
        raise UsageError(
            f"{problem}; build it with `make prism` (this takes Go), or give its path "
            "as --prism_location=PATH (nothing is downloaded)"
        )
    return location or found


def check_arguments(beam_arguments: list[str], *ours: type, runner: bool = False) -> None:
    """Refuses a flag that neither Textmill nor Beam knows.

    Args:
      beam_arguments: the flags that our own parser left over.
      ours: the dataclasses of our flags, for the hint at the nearest one.
      runner: whether to refuse a runner that cannot work, too.

    Raises:
      UsageError: names the flag and the nearest known one.
    """
    if beam_arguments:
        on_this_machine = all(argument.startswith("--direct_") for argument in beam_arguments)
        beam_run = with_beam(clouds=not on_this_machine)
        beam_run.check_flags(beam_arguments, ours)
        if runner:
            beam_run.refuse_bad_runner(beam_arguments)


@functools.cache
def with_beam(*, clouds: bool = False):  # a module, whose type is inferred
    """Imports Beam and what runs its pipelines, quietly, the first time.

    Args:
      clouds: whether a runner may need Beam's clients of clouds.

    Returns:
      The module `beam_run`.
    """
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.CRITICAL)  # its import logs warnings to the root
    gc.disable()  # modules hold no garbage: looking for it in them takes a run 0.7 s
    try:
        with leave_out(*() if clouds else NOT_LOCAL):
            # Beam takes up to a second: what shows help, or finds a set, does without.
            from pipelines.runners import beam_run
    finally:
        gc.freeze()
        gc.enable()
        root.setLevel(level)
    # Its log repeats an error for each layer; ours reports it once.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    return beam_run
