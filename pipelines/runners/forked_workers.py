"""Worker processes that are forked from the launcher, which has imported all that they need.

A new interpreter would import it again: 1.4 s of CPU and 150 MB for each worker. Workers are forked
before the run starts threads, and wait on a socket until Beam wants a worker:

    launcher                            worker
    fork -----------------------------> waits
    stderr, environment of Beam's ----> becomes Beam's worker in this environment
    the run ends, or the launcher ----> the socket is closed: ends
"""

import atexit
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from textmill.schemas.commands.entry import is_command, leave_at_once


class ForkedWorker(NamedTuple):
    """A process that waits to become a worker: its id, and the launcher's end of the socket."""

    process: int
    connection: socket.socket

    def work(self, environment: Mapping[str, str]) -> None:
        """Makes it Beam's worker in an environment, with our stderr, and waits for its end.

        Raises:
          RuntimeError: it failed or was killed.
        """
        with suppress(OSError):  # it was killed; `end` returns how
            socket.send_fds(self.connection, [b"2"], [2])
            self.connection.sendall(json.dumps(dict(environment)).encode())
        code = self.end()
        if code:
            raise RuntimeError(f"worker process {self.process} ended with code {code}")

    def end(self) -> int:
        """Waits for its end, which comes at once if it has no work; returns its exit code."""
        self.connection.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


_waiting: list[ForkedWorker] = []


def can_fork() -> bool:
    """Whether workers can be forked: in a command's own process, on Linux, without other threads.

    A forked process lacks the threads of Python, and a lock that one of them held stays locked. The
    threads of OpenBLAS, Arrow and jemalloc do not count: these start them again.
    """
    return sys.platform == "linux" and is_command() and threading.active_count() == 1


@contextmanager
def forked_workers(number: int) -> Iterator[None]:
    """Forks processes that wait to become workers, if this is safe; at the end none waits."""
    if number and can_fork():
        # Imported here: once for all of them.
        from apache_beam.runners.worker import sdk_worker_main  # noqa: F401

        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # else each process would write what is buffered
        with suppress(OSError):  # no more processes or memory: the others are new interpreters
            for _ in range(number):
                _waiting.append(_fork())
    try:
        yield
    finally:
        while _waiting:
            _waiting.pop().end()


def take_worker() -> ForkedWorker | None:
    """A process that waits to become a worker; None if there is none."""
    return _waiting.pop() if _waiting else None


def _fork() -> ForkedWorker:
    ours, its = socket.socketpair()
    launcher = os.getpid()
    # A worker ignores Ctrl-C, to which the launcher reacts; SIGTERM ends it.
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, see `can_fork`
            process = os.fork()
        if not process:
            _run_and_leave(its, launcher)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)
    its.close()
    return ForkedWorker(process, ours)


def _run_and_leave(connection: socket.socket, launcher: int) -> None:
    """The life of a forked process, which never returns to the frames of the launcher."""
    code = 1
    try:
        gc.freeze()  # objects of the launcher must not close files that get the same numbers here
        atexit._clear()  # these are the launcher's
        for file in map(int, os.listdir("/proc/self/fd")):
            if file > 2 and file != connection.fileno():
                with suppress(OSError):  # of the list itself
                    os.close(file)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        _wait_and_work(connection, launcher)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        leave_at_once(code)


def _wait_and_work(connection: socket.socket, launcher: int) -> None:
    _, files, _, _ = socket.recv_fds(connection, 1, 1)
    if not files:
        return
    with connection, connection.makefile() as lines:
        environment = json.load(lines)
    os.dup2(files[0], 2)
    os.close(files[0])
    os.environ.update(environment)
    end_with(launcher)
    logging.getLogger("apache_beam").setLevel(logging.NOTSET)  # the launcher hides its log
    # Imported here, since choosing a runner needs no Beam.
    from apache_beam.runners.worker import sdk_worker_main

    from textmill.pipelines.runners.beam_sampler import sample_often

    sample_often()
    sdk_worker_main.main([])


def end_with(launcher: int) -> None:
    """Ends this process a second after its parent, the command that launched it.

    Beam's workers alone would wait for the lost runner for 90 seconds or more, and those that are
    starting would not notice at all.
    """

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, name="launcher", daemon=True).start()
