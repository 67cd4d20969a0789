"""Which runner a command takes, and the way to Beam, which help, refusals and reuse do without."""

import functools
import gc
import logging
import os
import shutil
import sys
import threading
import time

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
      UsageError: the runner's program is not there.
    """
    if runner_flags(beam_arguments).is_named:
        return _with_program(beam_arguments), "as asked"
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    chosen = [f"--runner={IN_PROCESS}"]
    asked = [a for a in beam_arguments if a.startswith("--direct_")]
    if asked:
        return chosen + beam_arguments, " ".join(["local,", *asked])
    workers = [f"--direct_num_workers={cores}"]
    if total_bytes < THREADS_PAY_BYTES or cores < 2:
        workers, how = [], "in this process"
    elif total_bytes < PROCESSES_PAY_BYTES or cores <= MOST_THREADS:
        workers, how = ["--direct_running_mode=multi_threading", *workers], f"in {cores} threads"
    else:
        how = f"in {cores} worker processes"
        workers = ["--direct_running_mode=multi_processing", *workers]
    return [*chosen, *workers, *beam_arguments], f"{how}, the fastest for input of this size"


def _with_program(beam_arguments: list[str]) -> list[str]:
    """Arguments that name the program of Prism, if that is the runner; Beam would download one.

    Raises:
      UsageError: there is none, said before anything is planned.
    """
    flags = runner_flags(beam_arguments)
    if flags.job_endpoint or flags.is_embedded or not flags.is_prism:
        return beam_arguments
    return [*beam_arguments, f"--prism_location={find_program(flags.prism_location)}"]


def find_program(location: str | None) -> str:
    """Where Prism's program is: as the user says, beside the Python interpreter, or on the PATH.

    Args:
      location: `--prism_location`.

    Raises:
      UsageError: it is nowhere, or no program.
    """
    if location:
        if not (os.path.isfile(location) and os.access(location, os.X_OK)):
            raise UsageError(
                f"--prism_location={location}: there is no program; give the path of a file that "
                "can be executed, such as `make prism` builds (nothing is downloaded)"
            )
        return location
    beside = os.path.join(os.path.dirname(sys.executable), "prism")  # of the virtual environment
    found = shutil.which(beside) or shutil.which("prism")
    if not found:
        raise UsageError(
            f"--runner=PrismRunner: its program is neither {beside} nor on the PATH; build it with "
            "`make prism` (this takes Go), or say where one is: --prism_location=PATH"
        )
    return found


def check_arguments(beam_arguments: list[str], *ours: type, runner: bool = False) -> list[str]:
    """Refuses a flag that neither Textmill nor Beam knows.

    Args:
      beam_arguments: what our own parser left over.
      ours: the dataclasses of our flags, for the hint at the nearest one.
      runner: whether to refuse a runner that cannot work, too.

    Returns:
      The arguments, in which a runner of Beam's has the name of its class: flink -> FlinkRunner.

    Raises:
      UsageError: names the flag and the nearest known one.
    """
    if not beam_arguments:
        return []
    return with_beam().check_flags(beam_arguments, ours, runner=runner)


@functools.cache
def with_beam():  # a module, whose type is inferred
    """Imports Beam and what runs its pipelines, quietly, the first time.

    Returns:
      The module `beam_run`.
    """
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.CRITICAL)  # what it warns of while it is imported comes from the root
    gc.disable()  # what modules make is no garbage: looking for it in them takes a run 0.7 s
    try:
        # Beam takes more than a second: what shows help, or finds a set, does without.
        from pipelines.runners import beam_run
    finally:
        gc.freeze()
        gc.enable()
        root.setLevel(level)
    # Its log repeats an error for each layer; ours says it once.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    return beam_run


@functools.cache
def end_with_launcher() -> None:
    """Has this worker process end soon after the command that launched it has, killed or not.

    Beam's own workers wait for a runner that is gone, a minute and a half and more.
    """
    launcher = int(os.environ.get(LAUNCHER, "0"))

    def watch() -> None:
        while True:
            time.sleep(1)
            try:
                os.kill(launcher, 0)
            except OSError:  # gone, or its number another's by now
                os._exit(1)

    if launcher and is_worker_process():
        threading.Thread(target=watch, name="launcher", daemon=True).start()


def is_worker_process() -> bool:
    """Whether this process is a worker of Beam's, and nobody's notebook."""
    started = sys.modules["__main__"].__spec__
    return started is not None and started.name.startswith("apache_beam.runners.worker")
