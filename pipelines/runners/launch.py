"""Runs a Beam pipeline for a person: picks the runner, shows progress, says errors in words.

Beam itself is imported when a pipeline is run, not before: help, refusals and reuse stay quick.
"""

import argparse
import contextlib
import difflib
import functools
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from pipelines.host.console import Console
from pipelines.runners import job_server, prism
from pipelines.runners.failures import WORKER_DIED, WORKER_DIED_LATE, in_words, overheard
from pipelines.runners.progress import Display
from schemas.errors import DataError, LeftRunning, UsageError
from schemas.flag_file import kinds_of
from schemas.memory import want_addresses
from schemas.terminal import visible

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

# For a run of which a worker died: it may just be ending its workers; if its last step has run, it
# is, and on a crowded machine that takes a while.
_LAST_WORDS_SECONDS, _ENDING_SECONDS = 10, 120
IN_PROCESS = "apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
# Measured with two cores (L = 128, MLM): two threads take 0.94 of the time of one for 50 MB, 0.88
# for 110 MB, 0.75 for 400 MB. Two processes take half as long again for 1 GB as two threads, and
# 1.4 times the memory. But a thread needs the interpreter for a seventh (blocks) to a quarter
# (shards) of its time: of more than four, some would wait.
THREADS_PAY_BYTES = 50_000_000
PROCESSES_PAY_BYTES = 600_000_000
MOST_THREADS = 4
_LOCAL_RUNNERS = ("DirectRunner", "FnApiRunner", "BundleBasedDirectRunner", "PrismRunner")


def choose_runner(beam_arguments: list[str], total_bytes: int) -> tuple[list[str], str]:
    """Fills in the runner if the user named none.

    Returns:
      Beam's arguments, and the choice in words.

    Raises:
      UsageError: the runner's program is not there.
    """
    named = [a for a in beam_arguments if a == "--runner" or a.startswith("--runner=")]
    if named:
        return prism.with_program(beam_arguments), "as asked"
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


def is_local(beam_arguments: list[str]) -> bool:
    """Whether the pipeline's workers share this machine's disk."""
    for argument in beam_arguments:
        if argument.startswith("--runner="):
            runner = argument.partition("=")[2].rpartition(".")[2]
            return runner in _LOCAL_RUNNERS
    return "--runner" not in beam_arguments


def check_arguments(beam_arguments: list[str], *ours: type) -> None:
    """Refuses a flag that neither Textmill nor Beam knows.

    Args:
      beam_arguments: what our own parser left over.
      ours: the dataclasses of our flags, for the hint at the nearest one.

    Raises:
      UsageError: names the flag and the nearest known one.
    """
    if not beam_arguments:
        return  # no need to import Beam
    import_beam()
    from apache_beam.options.pipeline_options import PipelineOptions

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(message)

    parser = Parser(add_help=False, allow_abbrev=False)
    for options_class in PipelineOptions.__subclasses__():
        with contextlib.suppress(argparse.ArgumentError):  # two classes offer the same flag
            options_class._add_argparse_args(parser)  # pyright: ignore[reportArgumentType]
    _, unknown = parser.parse_known_args(beam_arguments)
    if unknown:
        for flag in job_server.offered_flags(beam_arguments):
            with contextlib.suppress(argparse.ArgumentError):
                parser.add_argument(flag, nargs="?")
        _, unknown = parser.parse_known_args(beam_arguments)
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = [o for action in parser._actions for o in action.option_strings]
        known += [f"--{name}" for name in kinds_of(*ours)]
        near = difflib.get_close_matches(flag, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"unknown flag {unknown[0]}: neither Textmill nor Beam has it{hint}")


@functools.cache
def import_beam() -> None:
    """Imports Beam quietly, the first time: its log repeats an error for each layer; ours once."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.CRITICAL)  # what it warns of while it is imported comes from the root
    gc.disable()  # what modules make is no garbage: looking for it in them takes a run 0.7 s
    try:
        from apache_beam.runners.portability.fn_api_runner import worker_handlers
        from apache_beam.runners.worker import sdk_worker
    finally:
        gc.freeze()
        gc.enable()
        root.setLevel(level)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    # Workers that are threads of this process print what a bundle fails with, and hand it on too;
    # after the end of a run, such as by a lost runner, that would be a traceback on the terminal.
    setattr(sdk_worker, "print", lambda *_, **__: None)  # noqa: B010
    # The local runner flushes what is sent once a second, from a thread of its own, and so loses
    # what is written meanwhile: docs/beam_local_runner.md. 0: when a buffer is full, or closed.
    worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0


def run_pipeline(
    build: Callable[["beam.Pipeline"], Any],
    beam_arguments: list[str],
    *,
    local: str,
    total_bytes: int,
    label: str,
    filter_name: str = "",
    count_finished: Callable[[], int] | None = None,
    is_published: Callable[[], bool] = lambda: False,
) -> None:
    """Runs a pipeline to its end, with a progress display.

    Args:
      build: adds the transforms to a pipeline.
      beam_arguments: with a runner, as `choose_runner` gives them.
      local: the folder of this machine whose journal is shown.
      total_bytes: of the inputs.
      label: what is being done.
      filter_name: of --filter, for workers that have to be sent it.
      count_finished: how many shards are finished, where workers keep no journal that is seen here.
      is_published: whether the last step has run; asked when a worker process has died.

    Raises:
      DataError: a worker refused the data, or the run failed; in words.
      KeyboardInterrupt: at once, though workers may still be busy.
    """
    if "running_mode=multi_" in " ".join(beam_arguments).replace(" ", "="):
        want_addresses(3.2, "a run in threads or processes")
    import_beam()
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from pipelines.runners.worker_package import packaged

    outcome: list[BaseException | None] = []
    jobs: list[Any] = []
    died = threading.Event()

    def run() -> None:
        # Worker processes inherit this: Ctrl-C is for us to act on, not for each of them to report.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with (
                overheard(died),
                prism.started(beam_arguments) as started,
                job_server.reached(started) as started,
                packaged(started, filter_name) as arguments,
            ):
                try:
                    options = PipelineOptions([*arguments, "--no_save_main_session"])
                    _check_environment(options)
                    pipeline = beam.Pipeline(options=options)
                except ValueError as error:
                    raise UsageError(f"the runner cannot be used: {error}") from error
                build(pipeline)
                jobs.append(pipeline.run())
                if name := _job_name(jobs[0]):
                    display.say(f"{label}: the runner calls this job {name}")
                state = jobs[0].wait_until_finish()
            if state not in (None, "DONE"):
                raise DataError(f"the runner ended the job in state {state}: see its own log")
            outcome.append(None)
        except BaseException as error:  # handed to the main thread
            outcome.append(error)

    worker = threading.Thread(target=run, name="beam", daemon=True)
    with _stderr_in(os.path.join(local, "workers.log")) as terminal:
        display = Display(local, total_bytes, label, Console(file=terminal), count_finished)
        try:
            _watch(worker, display, died, is_published)
        except KeyboardInterrupt:
            for job in jobs:  # else a cluster would go on with it
                job_server.cancel(job)
            raise
    if outcome[0] is not None:
        raise in_words(outcome[0]) from outcome[0]


def is_worker_process() -> bool:
    """Whether this process is a worker of Beam's, and nobody's notebook."""
    started = sys.modules["__main__"].__spec__
    return started is not None and started.name.startswith("apache_beam.runners.worker")


def _job_name(job: Any) -> str:
    """What an engine calls a job, by which its pages know it; "" if it has no name."""
    found = getattr(job, "job_id", getattr(job, "_job_id", ""))
    try:
        return str(found() if callable(found) else found)
    except AttributeError:  # of Dataflow's, for a template: no job was started
        return ""


def _check_environment(options: "PipelineOptions") -> None:
    """Raises ValueError where flags do not say where workers run."""
    from apache_beam.options.pipeline_options import PortableOptions
    from apache_beam.transforms.environments import Environment

    portable = options.view_as(PortableOptions)
    kind = portable.environment_type
    if not kind:
        return
    told = portable.environment_config or portable.environment_options
    if kind.upper() in ("EXTERNAL", "PROCESS") and not told:
        raise ValueError(
            f"--environment_type={kind} wants --environment_config too: localhost:50000, or where "
            "else a worker pool listens, or the command of a process"
        )
    Environment.from_options(portable)


@contextmanager
def _stderr_in(path: str) -> Iterator[TextIO]:
    """Sends what this process and its workers say on stderr to a file; yields the real stderr.

    Worker processes of Beam narrate their start and end there, whatever log level is asked for, and
    what a bundle fails with. It goes through a pipe, which takes it when the disk is full: a worker
    that cannot say what it failed with tells nobody, and would be waited for for ever.
    """
    sys.stderr.flush()
    terminal = os.fdopen(os.dup(2), "w", buffering=1)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)
    keeper = threading.Thread(target=_keep_log, args=(reader, log), name="log", daemon=True)
    keeper.start()
    try:
        yield terminal
    finally:
        sys.stderr.flush()
        os.dup2(terminal.fileno(), 2)
        keeper.join(1)  # a worker that is left may still hold the pipe
        terminal.close()


def _keep_log(reader: int, log: int) -> None:
    """Writes what comes out of a pipe to a file, control characters visibly; closes both."""
    with os.fdopen(reader, encoding="utf-8", errors="backslashreplace") as lines:
        for line in lines:
            with contextlib.suppress(OSError):  # the disk is full: that is said by who needs it
                os.write(log, visible(line, keep="\n\t").encode())
    os.close(log)


def _watch(
    worker: threading.Thread,
    display: Display,
    died: threading.Event,
    is_published: Callable[[], bool],
) -> None:
    """Starts the thread that runs the pipeline, and shows its progress until it ends.

    Raises:
      LeftRunning: a worker process died, and the thread waits for it.
    """
    worker.start()
    try:
        while worker.is_alive():
            worker.join(0.2)
            display.update()
            if died.is_set():
                worker.join(_LAST_WORDS_SECONDS)
                if worker.is_alive() and not is_published():
                    raise LeftRunning(WORKER_DIED)
                worker.join(_ENDING_SECONDS)
                if worker.is_alive():
                    raise LeftRunning(WORKER_DIED_LATE)
    except (KeyboardInterrupt, LeftRunning):
        threading.excepthook = lambda _: None  # Beam's threads complain of what comes next
        import psutil

        for process in psutil.Process().children(recursive=True):
            process.kill()
        raise
    finally:
        display.close()
