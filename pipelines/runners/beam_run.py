"""Checks Beam's flags, and runs a pipeline for a person: progress, and failures in words.

Imports Beam; `launch.with_beam` imports it where a command needs it.
"""

import argparse
import contextlib
import difflib
import importlib
import inspect
import os
import re
import shutil
import signal
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

import apache_beam as beam
import grpc
import psutil
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions, StandardOptions
from apache_beam.runners.portability import portable_runner
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.runner import PipelineRunner
from apache_beam.runners.worker import sdk_worker
from apache_beam.transforms.environments import Environment

from pipelines.runners.beam_flags import RunnerFlags, runner_flags
from pipelines.runners.console import Console
from pipelines.runners.job_servers import LostWorker, reach_job_server, start_prism
from pipelines.runners.launch import LAUNCHER
from pipelines.runners.progress import Display
from pipelines.runners.worker_package import package_code
from schemas.commands.entry import shortage_of, want_addresses
from schemas.commands.flag_file import kinds_of
from schemas.commands.terminal import in_time, visible
from schemas.errors import DataError, LeftRunning, TextmillError, UsageError, one_line

MOST_WORKERS = 1024  # threads of one process, or processes of one machine
_OTHERS = (
    "leave it out to run on this machine, or give DirectRunner, PrismRunner, PortableRunner, "
    "FlinkRunner, SparkRunner, DataflowRunner, or the dotted name of another of Beam's"
)
# A run that lost a worker process may just be ending its workers; if its last step has run, it is,
# and on a crowded machine that takes a while.
_LAST_WORDS_SECONDS, _ENDING_SECONDS = 10, 120
_CANCEL_SECONDS = 5
_WHILE = re.compile(r" \[while running '.*")  # what Beam adds to a worker's message
# Beam's threads that wait for a job's messages, and for the work of workers in this process.
_LISTENERS = ("wait_until_finish_read", "run_worker_", "read_grpc_client_inputs")
_WAITS_FOR_PROCESS = "run_worker"
_WORKER_DIED = (
    "a worker process died (killed, or out of memory): nothing was published; run the same command "
    "again, with fewer workers if memory is short"
)
_WORKER_DIED_LATE = (
    "a worker process died after the last step, and the others do not end: all was published and "
    "is whole; the same command finds it"
)


class _PatientHandle(portable_runner.JobServiceHandle):
    """Waits for a job until it ends.

    Beam takes `--job_server_timeout`, the limit of a request, for that of a whole job on Prism, and
    gives up after 300 seconds (apache/beam#35867).
    """

    def __init__(self, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self.timeout = None


def mend_beam() -> None:
    """Changes what of Beam loses data or jobs, or fills the terminal (tests show when Beam has)."""
    portable_runner.JobServiceHandle = _PatientHandle
    # Workers that are threads of this process print what a bundle fails with, and hand it on too;
    # after the end of a run, such as by a lost runner, that would be a traceback on the terminal.
    setattr(sdk_worker, "print", lambda *_, **__: None)  # noqa: B010
    # The local runner flushes what is sent once a second, from a thread of its own, and so loses
    # what is written meanwhile: docs/beam_local_runner.md. 0: when a buffer is full, or closed.
    worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def check_flags(beam_arguments: list[str], ours: tuple[type, ...]) -> None:
    """Refuses what neither Textmill nor Beam knows: see `launch.check_arguments`."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    for options_class in PipelineOptions.__subclasses__():
        with contextlib.suppress(argparse.ArgumentError):  # two classes offer the same flag
            options_class._add_argparse_args(parser)  # pyright: ignore[reportArgumentType]
    _, unknown = parser.parse_known_args(beam_arguments)
    if unknown and (address := runner_flags(beam_arguments).job_server):
        for flag in reach_job_server(address):
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


def refuse_bad_runner(beam_arguments: list[str]) -> None:
    """Raises UsageError for a runner that cannot run here, and for workers of no number."""
    flags = runner_flags(beam_arguments)
    if not 1 <= flags.number <= MOST_WORKERS:
        raise UsageError(f"--direct_num_workers={flags.number}: from 1 to {MOST_WORKERS}")
    if flags.runner is None:
        return
    _refuse_unknown_runner(flags.runner, flags.runner_class)
    if flags.runner_class == "PortableRunner" and not flags.job_endpoint:
        raise UsageError(f"--runner={flags.runner} takes a job server: --job_endpoint=HOST:PORT")
    if flags.jar_flag:
        _check_jar(flags)


def _refuse_unknown_runner(name: str, runner_class: str) -> None:
    """Imports the runner's class, but creates no runner: the name may be that of any function."""
    known = {path.rpartition(".")[2]: path for path in StandardOptions.ALL_KNOWN_RUNNERS}
    path = name if "." in name else known.get(runner_class, name)
    module, _, attribute = path.rpartition(".")
    why = ""
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a module raises that is imported
        found, why = None, f" ({type(error).__name__}: {error})"
    is_runner = inspect.isclass(found) and issubclass(found, PipelineRunner)
    if not is_runner or found is PipelineRunner:
        raise UsageError(f"--runner={name}: there is no such runner{why}; {_OTHERS}")


def _check_jar(flags: RunnerFlags) -> None:
    """Beam by itself would download a jar of 100 MB or more, or try to for minutes."""
    flag, jar = flags.jar_flag, getattr(flags, flags.jar_flag)
    instead = f"give --job_endpoint=HOST:PORT of one that runs, or --{flag}=PATH"
    if not jar:
        raise UsageError(
            f"--runner={flags.runner} takes a job server, and nothing is downloaded: {instead}"
        )
    if "://" not in jar and not zipfile.is_zipfile(jar):
        raise UsageError(f"--{flag}={jar} is not the path of a jar; {instead}")
    if not shutil.which("java"):
        raise UsageError(f"--{flag} takes Java, and there is no `java` on the PATH: {instead}")


def run_pipeline(
    build: Callable[[beam.Pipeline], Any],
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
    flags = runner_flags(beam_arguments)
    if flags.in_parallel:
        want_addresses(3.2, "a run in threads or processes")
    if flags.job_server:
        reach_job_server(flags.job_server)
    mend_beam()
    os.environ[LAUNCHER] = str(os.getpid())  # for worker processes on this machine
    outcome: list[BaseException | None] = []
    jobs: list[Any] = []
    died = threading.Event()

    def run() -> None:
        # Worker processes inherit this: Ctrl-C is for us to act on, not for each of them to report.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with (
                _overhear(died),
                start_prism(beam_arguments) as started,
                package_code(started, filter_name) as arguments,
            ):
                try:
                    options = PipelineOptions([*arguments, "--no_save_main_session"])
                    pipeline = beam.Pipeline(options=options)
                    if flags.environment_type:
                        Environment.from_options(options.view_as(PortableOptions))
                except ValueError as error:
                    raise UsageError(f"the runner cannot be used: {one_line(error)}") from error
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
                with contextlib.suppress(Exception):  # nobody could act on its failure
                    in_time(_CANCEL_SECONDS, job.cancel)
            raise
    if outcome[0] is not None:
        raise in_words(outcome[0], flags.job_server) from outcome[0]


def _job_name(job: Any) -> str:
    """The name of a job on the pages of its runner; "" if it has none."""
    found = getattr(job, "job_id", getattr(job, "_job_id", ""))
    try:
        return str(found() if callable(found) else found)
    except AttributeError:  # of Dataflow's, for a template: no job was started
        return ""


@contextmanager
def _stderr_in(path: str) -> Iterator[TextIO]:
    """Sends the stderr of this process and its workers to a file; yields the real stderr.

    Worker processes of Beam narrate their start and end there, whatever the log level, and what a
    bundle fails with. It goes through a pipe, which takes it when the disk is full: a worker that
    cannot write what it failed with reports to nobody, and the run would wait for it for ever.
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
            with contextlib.suppress(OSError):  # a full disk: the data's own writers report it
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
                    raise LeftRunning(_WORKER_DIED)
                worker.join(_ENDING_SECONDS)
                if worker.is_alive():
                    raise LeftRunning(_WORKER_DIED_LATE)
    except (KeyboardInterrupt, LeftRunning):
        threading.excepthook = lambda _: None  # Beam's threads complain of what comes next
        for process in psutil.Process().children(recursive=True):
            process.kill()
        raise
    finally:
        display.close()


@contextmanager
def _overhear(died: threading.Event) -> Iterator[None]:
    """Sets `died` when a worker process has, and prints no connection that Beam's threads lose.

    The error that ends the run reports a lost connection once; each thread that listens to a runner
    would show it as an exception of its own. FnApiRunner takes no notice of worker processes that
    end before their time: the run would wait for them for ever.
    """
    usual = threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        if arguments.thread and arguments.thread.name == _WAITS_FOR_PROCESS:
            died.set()
        if not isinstance(arguments.exc_value, grpc.RpcError):
            usual(arguments)

    threading.excepthook = hook
    try:
        yield
    finally:
        for thread in threading.enumerate():
            if thread.name.startswith(_LISTENERS):
                thread.join(1)
        if threading.excepthook is hook:
            threading.excepthook = usual


def in_words(error: BaseException, job_server: str = "") -> BaseException:
    """A failure of a pipeline as the paragraph of the worker that raised it, if there is one.

    Beam wraps the text of a worker's exception in its own, whose type is lost on the way.

    Args:
      error: that ended the run.
      job_server: the address of the one that ran the job; "" for none of the user's.
    """
    text = str(error)
    if isinstance(error, TextmillError):
        return type(error)(_WHILE.sub("", text))
    if isinstance(error, LostWorker):
        return DataError(_WORKER_DIED)
    if job_server and isinstance(error, grpc.RpcError | grpc.FutureTimeoutError):
        return DataError(
            f"the job server at {job_server} ended while the job ran, or the network to it was "
            "cut: nothing was published. The cluster may go on with the job for a while; of that "
            "nothing is published either: start the job server, run the same command again"
        )
    if short := shortage_of(error):
        return short
    said = re.findall(r"(?:DataError|UsageError): (.*)", text)
    if said:
        return DataError(_WHILE.sub("", said[-1]).strip())
    if re.search(r"Channel closed|SDK worker disconnected|connection.*(closed|reset)", text, re.I):
        return DataError(_WORKER_DIED)
    if "Service failed to start up" in text:
        return DataError(
            "the job server ended as soon as it was started: give the jar of a job server of this "
            "very release of Beam, and see what `java -jar JAR` prints"
        )
    refused = re.search(r"failed in state \w+: (.*)", text)
    if refused and "Traceback" not in text:
        return DataError(f"the runner gave the job up: {refused[1]}")
    return error
