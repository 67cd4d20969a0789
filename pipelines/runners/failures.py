"""What a runner or a worker says when a pipeline fails -> a paragraph for its user."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from schemas.commands.memory import shortage_of
from schemas.errors import DataError, TextmillError

_WHILE = re.compile(r" \[while running '.*")  # what Beam adds to a worker's message
# Beam's threads that wait for a job's messages, and for what its workers in this process are to do.
_LISTENERS = ("wait_until_finish_read", "run_worker_", "read_grpc_client_inputs")
_WAITS_FOR_PROCESS = "run_worker"
WORKER_DIED = (
    "a worker process died (killed, or out of memory): nothing was published; run the same command "
    "again, with fewer workers if memory is short"
)
WORKER_DIED_LATE = (
    "a worker process died after the last step, and the others do not end: all was published and "
    "is whole; the same command finds it"
)


@contextmanager
def overheard(died: threading.Event) -> Iterator[None]:
    """Hears what Beam's threads end with.

    A lost connection is told once, by the error that ends the run; threads that listen to a runner
    would each show it as an exception of its own. Of worker processes that end before their time
    FnApiRunner takes no notice: the run would wait for them for ever.

    Args:
      died: set when a worker process has.
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


def in_words(error: BaseException) -> BaseException:
    """A failure of a pipeline as the paragraph that its worker said, if it said one.

    Beam hands on the text of a worker's exception, wrapped in its own: the type is lost on the way.
    """
    text = str(error)
    if isinstance(error, TextmillError):
        return type(error)(_WHILE.sub("", text))
    if short := shortage_of(error):
        return short
    said = re.findall(r"(?:DataError|UsageError): (.*)", text)
    if said:
        return DataError(_WHILE.sub("", said[-1]).strip())
    if re.search(r"Channel closed|SDK worker disconnected|connection.*(closed|reset)", text, re.I):
        return DataError(WORKER_DIED)
    if "DEADLINE_EXCEEDED" in text:  # Beam takes a request's limit for the whole job's
        return DataError(
            "the job took longer than --job_server_timeout (300 seconds unless it is given), and "
            "may still be running: nothing waits for it; give a longer time and run again"
        )
    if "Service failed to start up" in text:
        return DataError(
            "the job server ended as soon as it was started: give the jar of a job server of this "
            "very release of Beam, and see what `java -jar JAR` says"
        )
    refused = re.search(r"failed in state \w+: (.*)", text)
    if refused and "Traceback" not in text:
        return DataError(f"the runner gave the job up: {refused[1]}")
    return error
