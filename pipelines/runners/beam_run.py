"""Checks Beam's flags, and runs a pipeline with a progress display and readable failures.

This module imports Beam; commands import it through `launch.with_beam`.
"""

import argparse
import contextlib
import importlib
import inspect
import os
import re
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

import apache_beam as beam
import grpc
import psutil
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions, StandardOptions
from apache_beam.portability import python_urns
from apache_beam.runners.direct import direct_runner
from apache_beam.runners.portability import portable_runner
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.runner import PipelineRunner
from apache_beam.runners.worker import sdk_worker
from apache_beam.transforms.environments import Environment
from apache_beam.utils import interactive_utils

from textmill.pipelines.runners.console import Console, Display
from textmill.pipelines.runners.job_server import reach_job_server
from textmill.pipelines.runners.runner_flags import LAUNCHER, runner_flags
from textmill.pipelines.runners.worker_package import package_code
from textmill.schemas.commands.entry import shortage_of, want_addresses
from textmill.schemas.commands.flag_file import kinds_of
from textmill.schemas.commands.help import describe_unknown
from textmill.schemas.commands.terminal import in_time, visible
from textmill.schemas.errors import (
    DataError,
    LeftRunning,
    TextmillError,
    UsageError,
    as_flags,
    one_line,
)

MOST_WORKERS = 1024  # threads of one process, or processes of one machine
_OTHERS = (
    "omit --runner to run on this machine, or choose DirectRunner, PrismRunner, PortableRunner, "
    "FlinkRunner, SparkRunner, DataflowRunner, or the dotted name of another Beam runner"
)
# A run whose worker process has ended may be stopping its workers. If its last step has run, it is,
# which takes a while on a busy machine.
_LAST_WORDS_SECONDS, _ENDING_SECONDS = 10, 120
_CANCEL_SECONDS = 5
_WHILE = re.compile(r" \[while running '[^']*'\]")  # what Beam adds to a worker's message
# Beam's threads that wait for messages of a job, or for requests of workers in this process.
_LISTENERS = ("wait_until_finish_read", "run_worker_", "read_grpc_client_inputs")
_WAITS_FOR_PROCESS = "run_worker"
_WORKER_DIED = (
    "a worker process died (killed, or out of memory): nothing was published; run the same command "
    "again, with fewer workers if memory is short"
)
_WORKER_DIED_LATE = (
    "a worker process died after the last step, and the others do not end: the output is published "
    "and complete; the same command will find it"
)


class _PatientHandle(portable_runner.JobServiceHandle):
    """Waits for a job without a time limit.

    On Prism, Beam applies `--job_server_timeout`, the limit of a request, to the whole job, and
    gives up after 300 seconds (apache/beam#35867).
    """

    def __init__(self, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self.timeout = None


def patch_beam() -> None:
    """Patches parts of Beam that lose data or jobs, or print tracebacks; tests report Beam's fixes.

    The flush interval of the local runner is set to 0, which means when a buffer is full or closed.
    """
    portable_runner.JobServiceHandle = _PatientHandle
    # Workers in threads of this process print the failure of a bundle, and report it, too. After a
    # run that ended early, because the runner was lost for example, that would be a traceback.
    setattr(sdk_worker, "print", lambda *_, **__: None)  # noqa: B010
    # The local runner flushes its buffers once a second from another thread, and loses data that is
    # written meanwhile: docs/beam_local_runner.md.
    worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0


@contextmanager
def _as_in_a_script() -> Iterator[None]:
    """Hides a notebook, in which Beam would import its interactive runner, and with it pandas.

    Outside a notebook, it keeps Beam from importing IPython to look for one.
    """
    found = interactive_utils.is_in_ipython
    # `beam.pipeline` is a module that pyright does not see.
    places = (interactive_utils, sys.modules[beam.Pipeline.__module__], direct_runner)
    for place in places:
        setattr(place, "is_in_ipython", lambda: False)  # noqa: B010
    try:
        yield
    finally:
        for place in places:
            setattr(place, "is_in_ipython", found)  # noqa: B010


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def check_flags(beam_arguments: list[str], ours: tuple[type, ...]) -> None:
    """Rejects flags that neither Textmill nor Beam knows: see `launch.check_arguments`."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    for options_class in PipelineOptions.__subclasses__():
        with contextlib.suppress(argparse.ArgumentError):  # two classes have the same flag
            options_class._add_argparse_args(parser)  # pyright: ignore[reportArgumentType]
    _, unknown = parser.parse_known_args(beam_arguments)
    if unknown and (address := runner_flags(beam_arguments).job_server):
        for flag in reach_job_server(address):
            with contextlib.suppress(argparse.ArgumentError):
                parser.add_argument(flag, nargs="?")
        _, unknown = parser.parse_known_args(beam_arguments)
    if unknown:
        known = [o for action in parser._actions for o in action.option_strings]
        known += [f"--{name}" for name in kinds_of(*ours)]
        neither = "neither Textmill nor Beam has it"
        raise UsageError(describe_unknown(unknown[0], known, neither))


def refuse_bad_runner(beam_arguments: list[str]) -> None:
    """Raises UsageError for a runner that cannot run, or a wrong number of workers."""
    flags = runner_flags(beam_arguments)
    if not 1 <= flags.number <= MOST_WORKERS:
        raise UsageError(f"--direct_num_workers={flags.number}: must be from 1 to {MOST_WORKERS}")
    if flags.runner is None:
        return
    _refuse_unknown_runner(flags.runner, flags.runner_class)
    if flags.lacks_job_server:
        needs, command = "a job server", "start it"
        if flags.is_prism:
            needs = "a running Prism"
            command += " with `prism --job_port=8073`, which `make prism` builds"
        raise UsageError(
            f"--runner={flags.runner} needs {needs}: {command}, and set --job_endpoint=HOST:PORT"
        )


def _refuse_unknown_runner(name: str, runner_class: str) -> None:
    """Imports the runner's class; does not call it, since the name may be that of any function."""
    known = {path.rpartition(".")[2]: path for path in StandardOptions.ALL_KNOWN_RUNNERS}
    path = name if "." in name else known.get(runner_class, name)
    module, _, attribute = path.rpartition(".")
    reason = ""
    try:
        value = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing a module may raise anything
        value, reason = None, f" ({type(error).__name__}: {error})"
    is_runner = inspect.isclass(value) and issubclass(value, PipelineRunner)
    if not is_runner or value is PipelineRunner:
        raise UsageError(f"--runner={name}: there is no such runner{reason}; {_OTHERS}")


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
      beam_arguments: flags of Beam with a runner, from `choose_runner`.
      local: the local directory with the journal of progress.
      total_bytes: stored bytes of the inputs.
      label: the name of the command.
      filter_name: the value of --filter, whose code is sent to workers.
      count_finished: counts finished shards, for workers whose journal is not visible here.
      is_published: whether the last step has run; called when a worker process has died.

    Raises:
      DataError: a worker rejected the data, or the run failed.
      KeyboardInterrupt: the user pressed Ctrl-C, or SIGTERM came; workers may still be busy.
    """
    flags = runner_flags(beam_arguments)
    if flags.in_parallel:
        want_addresses(3.2, "a run in threads or processes")
    if flags.job_server:
        reach_job_server(flags.job_server)
    patch_beam()
    os.environ[LAUNCHER] = str(os.getpid())  # for worker processes on this machine
    outcome: list[BaseException | None] = []
    jobs: list[Any] = []
    died = threading.Event()

    def run() -> None:
        # Worker processes inherit this, so that only this process reacts to Ctrl-C.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with (
                _overhear(died),
                package_code(beam_arguments, filter_name) as arguments,
            ):
                try:
                    options = PipelineOptions([*arguments, "--no_save_main_session"])
                    pipeline = make_pipeline(options=options)
                    if flags.environment_type:
                        Environment.from_options(options.view_as(PortableOptions))
                except ValueError as error:
                    raise UsageError(f"the runner cannot be used: {one_line(error)}") from error
                with _as_in_a_script():
                    build(pipeline)
                    jobs.append(pipeline.run())
                if name := _job_name(jobs[0]):
                    display.say(f"{label}: the runner's name of this job is {name}")
                state = jobs[0].wait_until_finish()
            if state not in (None, "DONE"):
                raise DataError(f"the runner ended the job in state {state}: see the runner's log")
            outcome.append(None)
        except BaseException as error:  # handed to the main thread
            outcome.append(error)

    worker = threading.Thread(target=run, name="beam", daemon=True)
    with _stderr_in(os.path.join(local, "workers.log")) as terminal:
        console = Console(file=terminal)
        has_workers = flags.in_processes or not flags.is_local
        display = Display(local, total_bytes, label, console, count_finished, has_workers)
        try:
            _watch(worker, display, died, is_published)
        except KeyboardInterrupt:
            for job in jobs:  # else a cluster would continue it
                with contextlib.suppress(Exception):  # the user cannot act on a failure
                    in_time(_CANCEL_SECONDS, job.cancel)
            raise
    if outcome[0] is not None:
        raise explain_failure(outcome[0], flags.job_server) from outcome[0]


def make_pipeline(**arguments: Any) -> beam.Pipeline:
    """A pipeline, without the temporary folder that Beam makes for it.

    Only transforms of other languages use the folder, and an interrupted run would leave it.
    """
    pipeline = beam.Pipeline(**arguments)
    shutil.rmtree(pipeline.local_tempdir, ignore_errors=True)
    return pipeline


_WORKER = "textmill.pipelines.runners.worker"  # a user's own pipelines/ may hide the short name
_ITS_WORKER: Any = worker_handlers.SubprocessSdkWorkerHandler


@worker_handlers.WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
class LocalWorker(_ITS_WORKER):
    """A worker process of DirectRunner, with the imports of `pipelines.runners.worker`."""

    def __init__(self, command: bytes, *others: Any):
        """Takes Beam's command of a worker, but starts another, as a child of this process."""
        command = f"exec {shlex.quote(sys.executable)} -m {_WORKER}".encode()
        super().__init__(command, *others)


def _job_name(job: Any) -> str:
    """The name of a job on the pages of its runner; "" if it has none."""
    name = getattr(job, "job_id", getattr(job, "_job_id", ""))
    try:
        return str(name() if callable(name) else name)
    except AttributeError:  # Dataflow raises it for a template, which starts no job
        return ""


@contextmanager
def _stderr_in(path: str) -> Iterator[TextIO]:
    """Redirects the stderr of this process and its workers to a file; yields the real stderr.

    Beam's worker processes write their start, their end and failures of bundles there at any log
    level. A pipe before the file accepts output even if the disk is full: a worker that cannot
    write its failure would not report it, and the run would wait forever.
    """
    sys.stderr.flush()
    terminal = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
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
        keeper.join(1)  # a remaining worker may still have the pipe open
        terminal.close()


def _keep_log(reader: int, log: int) -> None:
    """Copies a pipe to a file, with control characters made visible; closes both."""
    with os.fdopen(reader, encoding="utf-8", errors="backslashreplace") as lines:
        for line in lines:
            with contextlib.suppress(OSError):  # those who write the data report a full disk
                os.write(log, visible(as_flags(line), keep="\n\t").encode())
    os.close(log)


def _watch(
    worker: threading.Thread,
    display: Display,
    died: threading.Event,
    is_published: Callable[[], bool],
) -> None:
    """Starts the thread that runs the pipeline, and shows its progress until it ends.

    Raises:
      LeftRunning: a worker process died, but the thread still waits for it.
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
        threading.excepthook = lambda _: None  # Beam's threads raise when their workers are killed
        for process in psutil.Process().children(recursive=True):
            process.kill()
        raise
    finally:
        display.close()


@contextmanager
def _overhear(died: threading.Event) -> Iterator[None]:
    """Sets `died` when a worker process dies, and hides lost connections of Beam's threads.

    The error that ends the run reports a lost connection; each thread that listens to a runner
    would print it again. FnApiRunner ignores the early end of worker processes: the run would wait
    for them forever.
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


def explain_failure(error: BaseException, job_server: str = "") -> BaseException:
    """Turns a failure of a pipeline into a readable error, the worker's own if it raised one.

    Beam wraps the text of a worker's exception in another exception, without its type.

    Args:
      error: the exception that ended the run.
      job_server: the address of the user's job server; "" for none.
    """
    if isinstance(error, TextmillError):
        return type(error)(*(_WHILE.sub("", a) if type(a) is str else a for a in error.args))
    text = str(error)
    if job_server and isinstance(error, grpc.RpcError | grpc.FutureTimeoutError):
        return DataError(
            f"the job server at {job_server} ended during the job, or the connection to it was "
            "lost: nothing was published, even if the cluster continues the job for a while; start "
            "the job server and run the same command again"
        )
    if short := shortage_of(error):
        return short
    messages = re.findall(r"(?:DataError|UsageError|FieldError): (.*)", text)
    if messages:
        return DataError(_WHILE.sub("", messages[-1]).strip())
    if re.search(r"Channel closed|SDK worker disconnected|connection.*(closed|reset)", text, re.I):
        return DataError(_WORKER_DIED)
    failure = re.search(r"failed in state \w+: (.*)", text)
    if failure and "Traceback" not in text:
        return DataError(f"the runner gave up the job: {failure[1]}")
    return error
