"""The file into which workers on this machine write their errors."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from textmill.schemas.commands.terminal import visible
from textmill.schemas.errors import as_flags


@contextmanager
def stderr_in(path: str) -> Iterator[TextIO]:
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
