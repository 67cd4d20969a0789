"""Failures of a pipeline as readable errors."""

import re

import grpc

from textmill.schemas.commands.entry import out_of_memory_error
from textmill.schemas.errors import DataError, TextmillError

_WHILE = re.compile(r" \[while running '[^']*'\]")  # what Beam adds to a worker's message
WORKER_DIED = (
    "a worker process died (killed, or out of memory): nothing was published; run the same command "
    "again, with fewer workers if memory is short"
)


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
    if short := out_of_memory_error(error):
        return short
    messages = re.findall(r"(?:DataError|UsageError|FieldError): (.*)", text)
    if messages:
        return DataError(_WHILE.sub("", messages[-1]).strip())
    if re.search(r"Channel closed|SDK worker disconnected|connection.*(closed|reset)", text, re.I):
        return DataError(WORKER_DIED)
    failure = re.search(r"failed in state \w+: (.*)", text)
    if failure and "Traceback" not in text:
        return DataError(f"the runner gave up the job: {failure[1]}")
    return error
