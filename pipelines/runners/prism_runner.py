"""Prism, Beam's runner written in Go, on this machine: starts its program for a run.

Beam by itself would start it in a main thread only, where ours waits for Ctrl-C.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import grpc
import psutil
from apache_beam.options.pipeline_options import (
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    PrismRunnerOptions,
)
from apache_beam.runners.portability import prism_runner
from apache_beam.runners.portability.portable_runner import JobServiceHandle

from pipelines.runners.beam_flags import runner_flags
from pipelines.runners.failures import WORKER_DIED
from schemas.errors import DataError, UsageError

_RUNNER = "--runner=pipelines.runners.prism_runner.PrismRunner"
_START_SECONDS = 30
# It ends by itself so long after its last job: none is left over where we were killed.
_IDLE_SECONDS = 60
_ENDING_SECONDS = 5
_TAIL_BYTES = 1 << 16  # of its log, for its last words
# What it logs where it overlooks that a worker of a pool died (worker.go: of two things that it
# waits for, only one fails the job, and Go takes either). It would wait for that worker for ever.
LOST_WORKER = b"Control done"
_LOST_SECONDS = 30  # a job that is done says so before


class PrismRunner(prism_runner.PrismRunner):
    """Waits for a job until it ends.

    Beam takes `--job_server_timeout`, the limit of a request, for that of the whole job, and gives
    up after 300 seconds (apache/beam#35867).
    """

    def create_job_service_handle(self, job_service, options) -> JobServiceHandle:
        """As Beam's, without a limit of time."""
        handle = super().create_job_service_handle(job_service, options)
        handle.timeout = None
        return handle


@contextmanager
def start_prism(beam_arguments: list[str]) -> Iterator[list[str]]:
    """Starts Prism, if it is asked for; yields arguments that name where it listens.

    Args:
      beam_arguments: as `choose_runner` gives them.

    Raises:
      UsageError: its port is taken.
      DataError: it does not start, or it, or a worker of a pool, ended while the pipeline ran.
    """
    if not runner_flags(beam_arguments).is_prism:
        yield beam_arguments
        return
    options = PipelineOptions(beam_arguments)
    if options.view_as(PortableOptions).job_endpoint:  # the user has started one himself
        yield [*beam_arguments, _RUNNER]
        return
    asked = options.view_as(PrismRunnerOptions)
    port = options.view_as(JobServerOptions).job_port
    kind = "json" if asked.prism_log_kind == "console" else asked.prism_log_kind
    level = "warn" if asked.prism_log_level == "error" else asked.prism_log_level  # LOST_WORKER
    command = [
        asked.prism_location,
        f"--job_port={port}",
        f"--log_level={level}",
        f"--log_kind={kind}",
        "--serve_http=false",
        f"--idle_shutdown_timeout={_IDLE_SECONDS}s",
    ]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            listens = _wait_for_port(process)
            if listens is None:
                raise _no_start(asked.prism_location, port, log.fileno(), process.poll())
            done, lost = threading.Event(), threading.Event()
            listener = threading.Thread(
                target=_end_with_lost_worker, args=(process, log.fileno(), done, lost), daemon=True
            )
            listener.start()
            try:
                yield [
                    *beam_arguments,
                    f"--job_endpoint=localhost:{listens}",
                    f"--job_server_timeout={_START_SECONDS}",  # it listens: this is of a moment
                    _RUNNER,
                ]
            except Exception as error:
                if lost.is_set():
                    raise DataError(WORKER_DIED) from error
                # What Beam says then is that a connection was lost.
                if _has_ended(process, error):
                    raise DataError(
                        "Prism, the runner, ended in the middle of the run "
                        f"({_code(process.returncode)}{_last_words(log.fileno())}): nothing was "
                        "published; run the same command again"
                    ) from error
                raise
            finally:
                done.set()
                listener.join()
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _end_with_lost_worker(
    process: subprocess.Popen, log: int, done: threading.Event, lost: threading.Event
) -> None:
    """Ends Prism when its log tells of a lost worker, and the run is not done in good time.

    Args:
      process: Prism.
      log: the file descriptor of its log.
      done: set when the run has ended.
      lost: is set when a worker is lost.
    """
    start = 0
    while not done.wait(1):
        while len(said := os.pread(log, _TAIL_BYTES, start)) >= len(LOST_WORKER):
            if LOST_WORKER in said:
                if not done.wait(_LOST_SECONDS):
                    lost.set()
                    process.kill()
                return
            start += len(said) - len(LOST_WORKER) + 1


def _has_ended(process: subprocess.Popen, error: Exception) -> bool:
    """Whether a process has ended; its connections do a little before it does."""
    if isinstance(error, grpc.RpcError) or isinstance(error.__cause__, grpc.RpcError):
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING_SECONDS)
    return process.poll() is not None


def _wait_for_port(process: subprocess.Popen) -> int | None:
    """The port at which a process listens, once it does; None if it ends, or takes too long."""
    ends = time.monotonic() + _START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        try:
            for socket in psutil.Process(process.pid).net_connections("tcp"):
                if socket.status == psutil.CONN_LISTEN:
                    return socket.laddr.port
        except psutil.Error:
            pass  # it is just ending
        time.sleep(0.02)
    return None


def _no_start(program: str, port: int, log: int, code: int | None) -> DataError | UsageError:
    said = os.pread(log, _TAIL_BYTES, 0).decode(errors="replace")
    if "address already in use" in said:
        return UsageError(
            f"--job_port={port}: another program listens there; give another, or none"
        )
    first = next(filter(None, map(_message, said.splitlines())), "it said nothing")
    ended = f"did not listen within {_START_SECONDS} s" if code is None else _code(code)
    return DataError(f"{program} does not start as Prism ({ended}): {first}")


def _last_words(log: int) -> str:
    """What a Go program says when it gives up: `; unable to start sdk worker ...`."""
    size = os.fstat(log).st_size
    said = os.pread(log, _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace")
    panics = re.findall(r"^panic: (.*)$", said, re.M)
    return f"; {panics[0]}" if panics else ""


def _message(line: str) -> str:
    try:
        return str(json.loads(line)["msg"])
    except (ValueError, KeyError, TypeError):
        return line.strip()


def _code(code: int) -> str:
    """-9 -> `SIGKILL: killed, or out of memory`."""
    if code == -signal.SIGKILL:
        return "SIGKILL: killed, or out of memory"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
