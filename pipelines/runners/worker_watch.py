"""Watches the thread that runs a pipeline, and notices the end of worker processes."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc

from textmill.pipelines.runners.console import Display
from textmill.pipelines.runners.failures import WORKER_DIED
from textmill.pipelines.runtime.imports import psutil
from textmill.schemas.commands.terminal import in_time
from textmill.schemas.errors import LeftRunningError

# A run whose worker process has ended may be stopping its workers. If its last step has run, it is,
# which takes a while on a busy machine.
_LAST_WORDS_SECONDS, _ENDING_SECONDS = 10, 120
_CANCEL_SECONDS = 5
# Beam's threads that wait for messages of a job, or for requests of workers in this process.
_LISTENERS = ("wait_until_finish_read", "run_worker_", "read_grpc_client_inputs")
WAITS_FOR_PROCESS = "run_worker"  # the name of the thread, which Beam or Textmill starts
_WORKER_DIED_LATE = (
    "a worker process died after the last step, and the others do not end: the output is published "
    "and complete; the same command will find it"
)


def watch(
    worker: threading.Thread,
    display: Display,
    died: threading.Event,
    is_published: Callable[[], bool],
) -> None:
    """Starts the thread that runs the pipeline, and shows its progress until it ends.

    Raises:
      LeftRunningError: a worker process died, but the thread still waits for it.
    """
    worker.start()
    try:
        while worker.is_alive():
            worker.join(0.2)
            display.update()
            if died.is_set():
                worker.join(_LAST_WORDS_SECONDS)
                if worker.is_alive() and not is_published():
                    raise LeftRunningError(WORKER_DIED)
                worker.join(_ENDING_SECONDS)
                if worker.is_alive():
                    raise LeftRunningError(_WORKER_DIED_LATE)
    except (KeyboardInterrupt, LeftRunningError):
        threading.excepthook = lambda _: None  # Beam's threads raise when their workers are killed
        for process in psutil.Process().children(recursive=True):
            process.kill()
        raise
    finally:
        display.close()


def cancel(jobs: Iterable[Any]) -> None:
    """Cancels jobs that are submitted, which a cluster would continue."""
    for job in jobs:
        with suppress(Exception):  # the user cannot act on a failure
            in_time(_CANCEL_SECONDS, job.cancel)


@contextmanager
def overhear(died: threading.Event) -> Iterator[None]:
    """Sets `died` when a worker process dies, and hides lost connections of Beam's threads.

    The error that ends the run reports a lost connection; each thread that listens to a runner
    would print it again. FnApiRunner ignores the early end of worker processes: the run would wait
    for them forever.
    """
    usual = threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        if arguments.thread and arguments.thread.name == WAITS_FOR_PROCESS:
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
