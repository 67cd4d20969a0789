"""Job servers, which submit jobs to a cluster: the user's, and Prism, Beam's runner written in Go.

Textmill starts Prism itself: Beam can do so only in the main thread, which waits for Ctrl-C here.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import grpc
import psutil
from apache_beam.options.pipeline_options import JobServerOptions, PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from textmill.pipelines.runners.launch import runner_flags
from textmill.schemas.errors import DataError, UsageError

_ANSWER_SECONDS, _START_SECONDS = 10, 30
# Where the kernel does not end Prism with this process, Prism ends this long after its last job.
_IDLE_SECONDS = 60
_ENDING_SECONDS = 5
# Becomes another program, which the kernel kills as soon as the thread that started it ends.
_END_WITH_THREAD = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
_TAIL_BYTES = 1 << 16  # of its log
# Prism logs this when it misses the death of a worker of a pool, for which it then waits forever.
# (worker.go waits for two events, of which only one fails the job, and Go may choose the other.)
LOST_WORKER = b"Control done"
_LOST_SECONDS = 30  # a job that is done ends earlier


class LostWorker(Exception):
    """A worker of a pool died, and Prism did not notice."""


def reach_job_server(address: str) -> list[str]:
    """Waits at most 10 s for a job server at HOST:PORT; Beam would wait for five minutes.

    Returns:
      Flags that its runner has in addition to Beam's, such as `--max_bundle_size`.

    Raises:
      UsageError: no job server answers.
    """
    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_ANSWER_SECONDS)
        except grpc.FutureTimeoutError as error:
            raise UsageError(
                f"--job_endpoint={address}: no job server answers within {_ANSWER_SECONDS} s; "
                "start it, or correct the address (the usual port is 8099)"
            ) from error
        request = beam_job_api_pb2.DescribePipelineOptionsRequest()
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        with suppress(grpc.RpcError):  # Prism has no list of flags
            answer = stub.DescribePipelineOptions(request, timeout=_ANSWER_SECONDS)
            return [f"--{option.name}" for option in answer.options]
    return []


@contextmanager
def start_prism(beam_arguments: list[str]) -> Iterator[list[str]]:
    """Starts Prism, if it is the runner; yields the arguments with the address of Prism.

    Raises:
      DataError: Prism does not start, or ended while the pipeline ran.
      LostWorker: a worker of a pool died while the pipeline ran.
    """
    flags = runner_flags(beam_arguments)
    if not flags.is_prism or flags.job_endpoint:  # the user has started one
        yield beam_arguments
        return
    port = PipelineOptions(beam_arguments).view_as(JobServerOptions).job_port
    command = [flags.prism_location, f"--job_port={port}", "--serve_http=false"]
    command += ["--log_level=warn", "--log_kind=json", f"--idle_shutdown_timeout={_IDLE_SECONDS}s"]
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", "-c", _END_WITH_THREAD, str(os.getpid()), *command]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            listening_port = _wait_for_port(process)
            if listening_port is None:
                raise DataError(
                    f"{flags.prism_location} --job_port={port} does not start as Prism within "
                    f"{_START_SECONDS} s ({_describe_end(process, log.fileno())}): use the program"
                    " that `make prism` builds, and a free --job_port"
                )
            with _watch_workers(process, log.fileno()) as lost:
                try:
                    # The limit of Beam's wait for a connection, since Prism may have just died.
                    limit = f"--job_server_timeout={_START_SECONDS}"
                    yield [*beam_arguments, f"--job_endpoint=localhost:{listening_port}", limit]
                except Exception as error:
                    if lost.is_set():
                        raise LostWorker from error
                    if _has_ended(process, error):  # Beam reports only a lost connection
                        raise DataError(
                            "Prism, the runner, ended during the run "
                            f"({_describe_end(process, log.fileno())}): nothing was published; run "
                            "the same command again"
                        ) from error
                    raise
        finally:
            process.terminate()
            try:
                process.wait(_ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _watch_workers(process: subprocess.Popen, log: int) -> Iterator[threading.Event]:
    """Kills Prism if its log shows a lost worker and the run does not end within 30 s.

    Yields an event that is set when a worker is lost.
    """
    done, lost = threading.Event(), threading.Event()

    def watch() -> None:
        start = 0
        while not done.wait(1):
            while len(logged := os.pread(log, _TAIL_BYTES, start)) >= len(LOST_WORKER):
                if LOST_WORKER in logged:
                    if not done.wait(_LOST_SECONDS):
                        lost.set()
                        process.kill()
                    return
                start += len(logged) - len(LOST_WORKER) + 1

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lost
    finally:
        done.set()
        watcher.join()


def _has_ended(process: subprocess.Popen, error: Exception) -> bool:
    """Whether a process has ended; its connections end shortly before it."""
    if isinstance(error, grpc.RpcError):
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING_SECONDS)
    return process.poll() is not None


def _wait_for_port(process: subprocess.Popen) -> int | None:
    """The port on which a process listens; None if it ends first, or takes too long."""
    ends = time.monotonic() + _START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        with suppress(psutil.Error):  # the process may just be ending
            for socket in psutil.Process(process.pid).net_connections("tcp"):
                if socket.status == psutil.CONN_LISTEN:
                    return socket.laddr.port
        time.sleep(0.02)
    return None


def _describe_end(process: subprocess.Popen, log: int) -> str:
    """How a process ended: `exit code 2; unable to start sdk worker ...`, `SIGKILL: killed ...`."""
    code = process.poll()
    if code is None:
        state = "still running"
    elif code == -signal.SIGKILL:
        state = "SIGKILL: killed, or out of memory"
    else:
        state = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    start = max(0, os.fstat(log).st_size - _TAIL_BYTES)
    tail = os.pread(log, _TAIL_BYTES, start).decode(errors="replace")
    # A Go program prints why it gives up, such as a wrong flag or a port in use.
    reasons = re.findall(r"^panic: (.*)$", tail, re.M)
    return "; ".join([state, *reasons[:1]])
