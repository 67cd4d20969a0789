"""Runs work on untrusted text in a child process with limited time and memory.

Regular expressions and templates may run forever, and threads cannot be killed. A child process
does such work; it stays for the next request, and is killed if it takes too long. Python 3.8
syntax.
"""

import atexit
import os
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Optional

from schemas.commands.terminal import call_if_slow

SECONDS = 10  # of one answer
BYTES = 4 << 30  # of address space
_STARTING_SECONDS = 60  # for the child's imports on a busy machine
_LENGTH = struct.Struct("<q")
# Variables of the child: where programs and their libraries are, and the encoding of names.
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE")
# A program defines `answer`, which may not read stdin. The first request is empty; its answer shows
# that the program has started.
_FRAME = """
import os, resource, struct, sys
sys.path[:] = sys.argv[2:]
pipe_in, pipe_out = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
{program}
limit = int(sys.argv[1])
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
if hard == resource.RLIM_INFINITY or hard > limit:
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
started = False
while True:
    head = pipe_in.read(8)
    if len(head) < 8:
        os._exit(0)
    data = pipe_in.read(struct.unpack("<q", head)[0])
    answered, started = answer(data) if started else b"", True
    pipe_out.write(struct.pack("<q", len(answered)) + answered)
    pipe_out.flush()
"""


class LimitExceeded(Exception):
    """A request took too long, or ended the child; the message states which."""


class LimitedProcess:
    """A child process that answers requests of bytes within limits.

    Threads take turns. After the child was killed, the next request starts another.
    """

    def __init__(self, program: str, *, seconds: float = SECONDS, size: int = BYTES):
        """Sets the limits; the first request starts the child.

        Args:
          program: Python code that defines `answer(data: bytes) -> bytes`.
          seconds: time limit of an answer.
          size: limit of the child's address space in bytes.
        """
        self._program, self._seconds, self._size = program, seconds, size
        self._lock = threading.Lock()
        self._child: Optional[subprocess.Popen] = None
        self._owner = 0

    def close(self) -> None:
        """Ends the child; the next request starts another."""
        if self._child is not None and self._owner == os.getpid():
            self._end(self._child)

    def ask(self, data: bytes) -> bytes:
        """The answer to a request.

        Raises:
          LimitExceeded: there is none, and the child was killed.
        """
        with self._lock:
            child = self._start()
            try:
                return self._exchange(child, data, self._seconds)
            except BaseException:  # also after an interrupt, when an old answer would be read next
                self._end(child)
                raise

    def _start(self) -> subprocess.Popen:
        if self._child is not None and self._owner == os.getpid():
            return self._child
        child = subprocess.Popen(
            [sys.executable, "-I", "-c", _FRAME.format(program=self._program), str(self._size)]
            + [os.path.abspath(path) for path in sys.path if path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # without credentials (AWS_, HF_TOKEN): the child runs untrusted code
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
        )
        self._child, self._owner = child, os.getpid()
        atexit.register(self.close)
        try:
            self._exchange(child, b"", _STARTING_SECONDS)
        except BaseException:
            self._end(child)
            raise
        return child

    def _exchange(self, child: subprocess.Popen, data: bytes, seconds: float) -> bytes:
        assert child.stdin is not None and child.stdout is not None
        is_late = threading.Event()

        def end_late() -> None:
            is_late.set()
            child.kill()  # ends reading and writing below

        with call_if_slow(seconds, end_late):
            with suppress(BrokenPipeError):  # reading then detects the end of the child
                child.stdin.write(_LENGTH.pack(len(data)) + data)
                child.stdin.flush()
            head = child.stdout.read(_LENGTH.size)
            size = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 1
            answer = child.stdout.read(size)
        if is_late.is_set():
            raise LimitExceeded(f"takes more than {seconds} s")
        if len(answer) < size:
            raise LimitExceeded(f"ends its process, whose memory limit is {self._size >> 20:,} MiB")
        return answer

    def _end(self, child: subprocess.Popen) -> None:
        self._child = None
        atexit.unregister(self.close)
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            with suppress(BrokenPipeError):  # some data may be unwritten
                assert pipe is not None
                pipe.close()
