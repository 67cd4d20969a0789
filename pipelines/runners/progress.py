"""What a run has done so far, told by its workers and shown to whoever watches.

Workers append short lines to one file in the staging folder: it works for threads and for
processes, and costs nothing that grows. A worker that cannot see the folder (a cluster without a
shared disk) says nothing; its engine has a page of its own.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable

from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pipelines.host.console import Console
from schemas.errors import DataError

_PLAIN_SECONDS = 5.0
_ASK_SECONDS = 30.0
# A cluster whose workers cannot start may wait for them for ever, and say so in its own log only.
_PATIENT_SECONDS = 120.0


class Journal:
    """Appends what was done; O_APPEND keeps lines of many processes apart."""

    def __init__(self, staging: str):
        """Opens the journal in the staging folder, if the folder is there."""
        self._path = os.path.join(staging, "progress")

    def add(self, *, bytes_read: int = 0, rows: int = 0) -> None:
        """One line: bytes read from the inputs, rows written."""
        with contextlib.suppress(OSError):  # a full disk is for the data's own writers to report
            with open(self._path, "ab", buffering=0) as journal:
                journal.write(f"{bytes_read} {rows}\n".encode())


class Display:
    """Shows a journal: a bar on a terminal, a line every few seconds elsewhere."""

    def __init__(
        self,
        staging: str,
        total_bytes: int,
        label: str,
        console: Console | None = None,
        count_finished: Callable[[], int] | None = None,
    ):
        """Nothing is shown before the first `update`.

        Args:
          staging: the folder with the journal.
          total_bytes: of the inputs.
          label: what is being done.
          console: to write to; stderr if None.
          count_finished: asked for finished shards now and then, while there is no journal.
        """
        self._count_finished, self._asked, self._finished = count_finished, time.monotonic(), 0
        self._path = os.path.join(staging, "progress")
        self._read_to = 0
        self._total = total_bytes
        self._label = label
        self._bytes = self._rows = 0
        self._wondered = False
        self._began = self._said = time.monotonic()
        self._console = console or Console(file=sys.stderr)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task(label, total=total_bytes, state="starting")
        if self._console.is_terminal:
            self._bar.start()

    def update(self) -> None:
        """Reads what is new in the journal and shows it."""
        try:
            with open(self._path, "rb") as journal:
                journal.seek(self._read_to)
                for line in journal:
                    if not line.endswith(b"\n"):
                        break
                    self._read_to += len(line)
                    try:  # a full disk tears lines, and so do machines that append to one file
                        bytes_read, rows = map(int, line.split())
                    except ValueError:
                        continue
                    self._bytes += bytes_read
                    self._rows += rows
        except FileNotFoundError:
            if not self._read_to:  # else the set is published, and the journal gone
                self._count()
                self._wonder()
            return
        # A retried block reports again: never more than all.
        done = min(self._bytes, self._total)
        self._bar.update(self._task, completed=done, state=self.state())
        now = time.monotonic()
        if not self._console.is_terminal and now - self._said >= _PLAIN_SECONDS:
            self._said = now
            self._console.print(f"{self._label}: {self.state()}")

    def say(self, line: str) -> None:
        """Prints a line above the display."""
        self._console.print(line, soft_wrap=True)

    def _count(self) -> None:
        now = time.monotonic()
        if self._count_finished is None or now - self._asked < _ASK_SECONDS:
            return
        self._asked = now
        # The store does not answer just now, or all is published and the folder gone.
        with contextlib.suppress(DataError, OSError):
            self._finished = self._count_finished()
        state = f"{self._finished:,} shards finished"
        self._bar.update(self._task, state=state)
        if not self._console.is_terminal and self._finished:
            self.say(f"{self._label}: {state}")

    def _wonder(self) -> None:
        """Says once that nothing has begun for long."""
        seconds = time.monotonic() - self._began
        if not self._wondered and not self._finished and seconds >= _PATIENT_SECONDS:
            self._wondered = True
            self.say(
                f"{self._label}: no word from a worker for {seconds:.0f} s (none is sent where the "
                "output is in a store); the runner's own page tells what it waits for, the log of "
                "its workers why they do not start"
            )

    def state(self) -> str:
        """`12 MB of 34 MB read, 5.6 MB/s, 1,234 rows written, 4 s left`."""
        done = min(self._bytes, self._total)
        elapsed = max(time.monotonic() - self._began, 1e-9)
        if not done:
            return (
                f"nothing of {decimal(self._total)} read yet in {elapsed:.0f} s: workers load what "
                "they need, and compile their loops where none are kept"
            )
        rate = done / elapsed
        left = f", {(self._total - done) / rate:.0f} s of reading left" if rate else ""
        rows = f", {self._rows:,} rows written" if self._rows else ""
        return (
            f"{decimal(done)} of {decimal(self._total)} read, {rate / 1e6:.1f} MB/s"
            f"{rows}{left if done < self._total else ''}"
        )

    def close(self) -> None:
        """Ends the display and frees the terminal."""
        if self._console.is_terminal:
            self._bar.stop()
