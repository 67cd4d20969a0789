"""Runs work on untrusted data in a child process with limited processor time and memory.

Regular expressions, templates and parsers may run forever, and threads cannot be killed. A child
process does such work; it stays for the next request, and the kernel ends it if a request takes too
much. The limits of a request depend on the request alone: they count processor time, and a request
that ends a child is tried again as the first of a new child. Python 3.8 syntax.
"""

from __future__ import annotations

import atexit
import os
import signal
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Iterator, Sequence

from textmill.schemas.errors import DataError

SECONDS = 10  # of processor time of an answer
BYTES = 4 << 30  # of address space
_LENGTH = struct.Struct("<q")
# Variables of the child: where programs and their libraries are, and the encoding of names.
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE")
# A program defines `answer`, which may not read stdin. The first answer, an empty one, shows that
# the program has started. A batch of requests is read as a whole before the first answer, so that
# both sides never write at once. The kernel ends the child when its parent's thread ends.
_FRAME = """
import ctypes, os, resource, signal, struct, sys
seconds, size, more_seconds, more_size = map(float, sys.argv[1:5])
sys.path[:] = sys.argv[5:]
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGPROF, signal.SIG_DFL)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
pipe_in, pipe_out = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
{program}
_, hard = resource.getrlimit(resource.RLIMIT_AS)
def number():
    head = pipe_in.read(8)
    if len(head) < 8:
        os._exit(0)
    return struct.unpack("<q", head)[0]
def send(data):
    pipe_out.write(struct.pack("<q", len(data)) + data)
    pipe_out.flush()
def limit(size, seconds):
    size = hard if hard != resource.RLIM_INFINITY and not 0 <= size <= hard else int(size)
    resource.setrlimit(resource.RLIMIT_AS, (size, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)
send(b"")
while True:
    for data in [pipe_in.read(number()) for _ in range(number())]:
        limit(size + more_size * len(data), seconds + more_seconds * len(data))
        answered = answer(data)
        limit(resource.RLIM_INFINITY, 0)
        send(answered)
"""


class LimitExceeded(Exception):
    """A request took too long, or ended the child; the message states which."""


class LimitedProcess:
    """A child process that answers requests of bytes within limits.

    Threads take turns. After the child has ended, the next request starts another.
    """

    def __init__(
        self,
        program: str,
        *,
        seconds: float = SECONDS,
        size: int = BYTES,
        more_seconds: float = 0,
        more_size: int = 0,
    ):
        """Sets the limits; the first request starts the child.

        Args:
          program: Python code that defines `answer(data: bytes) -> bytes`.
          seconds: limit of the processor time of an answer.
          size: limit of the child's address space in bytes.
          more_seconds: addition to `seconds` for each byte of the request.
          more_size: addition to `size` for each byte of the request.
        """
        self._program, self._seconds, self._size = program, seconds, size
        self._more_seconds, self._more_size = more_seconds, more_size
        # A process that is forked while another thread holds the lock needs its own.
        self._locks: dict[int, threading.Lock] = {}
        self._child: subprocess.Popen | None = None
        self._owner = 0
        self._is_new = True  # whether the child has received no request

    def close(self) -> None:
        """Ends the child; the next request starts another."""
        if self._child is not None and self._owner == os.getpid():
            self._end(self._child)

    def ask(self, data: bytes) -> bytes:
        """The answer to a request.

        Raises:
          LimitExceeded: there is none, and the child was killed.
          DataError: the child cannot start.
        """
        [answer] = self.ask_all([data])
        if isinstance(answer, LimitExceeded):
            raise answer
        return answer

    def ask_all(self, requests: Sequence[bytes]) -> list[bytes | LimitExceeded]:
        """The answers to requests, in order, with LimitExceeded for each that has none.

        Raises:
          DataError: the child cannot start.
        """
        answers: list[bytes | LimitExceeded] = []
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            while len(answers) < len(requests):
                child = self._start()
                was_new, self._is_new = self._is_new, False
                rest = requests[len(answers) :]
                try:
                    for answer in self._exchange(child, rest[:1] if was_new else rest):
                        answers.append(answer)
                except EOFError:
                    self._end(child)
                    if was_new:  # otherwise, an earlier request may have left less memory
                        answers.append(self._limit_exceeded(child, len(rest[0])))
                except BaseException:  # an interrupt; the next request would get this answer
                    self._end(child)
                    raise
        return answers

    def _start(self) -> subprocess.Popen:
        if self._child is not None and self._owner == os.getpid():
            return self._child
        limits = (self._seconds, self._size, self._more_seconds, self._more_size)
        child = subprocess.Popen(
            [sys.executable, "-I", "-c", _FRAME.format(program=self._program), *map(str, limits)]
            + [os.path.abspath(path) for path in sys.path if path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # without credentials (AWS_, HF_TOKEN): the child runs untrusted code
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
        )
        self._child, self._owner, self._is_new = child, os.getpid(), True
        atexit.register(self.close)
        try:
            _read_answer(child)
        except EOFError as error:
            self._end(child)
            raise DataError(
                "the child process that reads untrusted data ends at its start with code "
                f"{child.returncode}: free memory, or raise the limits of ulimit"
            ) from error
        except BaseException:
            self._end(child)
            raise
        return child

    def _exchange(self, child: subprocess.Popen, requests: Sequence[bytes]) -> Iterator[bytes]:
        """Yields the answers; raises EOFError when the child has ended."""
        assert child.stdin is not None
        with suppress(BrokenPipeError):  # reading then detects the end of the child
            child.stdin.write(_LENGTH.pack(len(requests)))
            for data in requests:
                child.stdin.write(_LENGTH.pack(len(data)))
                child.stdin.write(data)
            child.stdin.flush()
        for _ in requests:
            yield _read_answer(child)

    def _limit_exceeded(self, child: subprocess.Popen, length: int) -> LimitExceeded:
        """Why the child has ended at a request of some bytes."""
        if child.returncode == -signal.SIGPROF:
            return LimitExceeded(
                f"takes more than {self._seconds + self._more_seconds * length:g} s"
            )
        size = self._size + self._more_size * length
        return LimitExceeded(f"ends its process, whose memory limit is {size >> 20:,} MiB")

    def _end(self, child: subprocess.Popen) -> None:
        self._child = None
        atexit.unregister(self.close)
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            with suppress(BrokenPipeError):  # some data may be unwritten
                assert pipe is not None
                pipe.close()


def _read_answer(child: subprocess.Popen) -> bytes:
    """The next answer; raises EOFError when the child has ended."""
    assert child.stdout is not None
    head = child.stdout.read(_LENGTH.size)
    size = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 1
    answer = child.stdout.read(size)
    if len(answer) < size:
        child.wait()  # else it might be killed before it has an exit code
        raise EOFError
    return answer
