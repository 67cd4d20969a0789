"""The terminal of commands: texts without control characters, tables, progress, durations.

Workers report their progress as short lines that they append to a journal in the staging directory.
That works for threads and for processes. Workers that cannot see the directory (a cluster without a
shared disk) report nothing; the runner's own pages show their progress.

A journal's lines: `BYTES ROWS` read and written; `begin TOTAL PHASE` and `end TOTAL PHASE` of one
of the TOTAL parts of a phase; `note TEXT` for the user.
"""

import contextlib
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import rich.console
from rich import box
from rich.console import ConsoleOptions, JustifyMethod, RenderableType
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from textmill.schemas.commands.terminal import say, visible
from textmill.schemas.errors import DataError, flag, spell

_BAR = 40  # characters of the longest bar
_LINE_SECONDS = 10.0
_RATE_SECONDS = 10.0  # of which the rate is
_PLAIN_SECONDS, _WAIT_SECONDS, _ASK_SECONDS = 5.0, 10.0, 30.0
# A cluster whose workers cannot start may wait forever, and report it only in its own log.
_PATIENT_SECONDS = 120.0
_SHORT_SECONDS = 1.0  # a phase has no rate before
_WRITES = {"build_corpus": "documents"}  # by command; others write rows
_WORKERS = (16, 64, 256, 1024)  # of an estimate


class Console(rich.console.Console):
    """Spells flags, and shows control characters instead of sending them; [x] is not markup.

    Control sequences of rich itself (colours, progress bars) are sent.
    """

    def __init__(self, **how: Any):
        """Creates rich's console without its markup, emoji names and colours for numbers."""
        super().__init__(markup=False, emoji=False, highlight=False, **how)

    def on_broken_pipe(self) -> None:
        """Says no more after the reader has ended (`| head -1`); rich would end the run."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Shows that work is in progress: a spinner on a terminal, else a line every 10 s."""
        if self.is_terminal:
            with self.status(what):
                yield
            return
        self.print(what)
        began, ended = time.monotonic(), threading.Event()

        def repeat() -> None:
            while not ended.wait(_LINE_SECONDS):
                self.print(f"{what}: {time.monotonic() - began:.0f} s")

        thread = threading.Thread(target=repeat, name="working", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def render_str(self, text: str, **how: Any) -> Text:
        """Converts a string; the width is that of the visible text."""
        return super().render_str(_make_visible(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Renders as rich does, with control characters of texts made visible."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=_make_visible(segment.text))


def _make_visible(text: str) -> str:
    return visible(spell(text), keep="\n")


# ---- tables ----


def columns_table(*columns: str, justify: JustifyMethod = "left") -> Table:
    """Makes an empty table without borders; it has a header if columns are named.

    Args:
      columns: names of columns; the first is left-justified.
      justify: justification of the others.
    """
    table = Table(box=None, show_header=bool(columns))
    for number, name in enumerate(columns):
        table.add_column(name, justify=justify if number else "left", overflow="fold")
    return table


def facts_table(facts: Mapping[str, str], *, title: str | None = None, boxed: bool = True) -> Table:
    """A table of names and values; long values are wrapped, so that paths can be copied whole."""
    lines = box.HEAVY_HEAD if boxed else None
    table = Table(box=lines, show_header=False, title=title, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(visible(name)), Text(visible(spell(value))))
    return table


def bars_table(rows: Iterable[tuple[str, int, str]]) -> Table:
    """A table of names, counts, bars in proportion to the highest count, and notes."""
    rows, table = list(rows), columns_table()
    table.add_column(justify="right", overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="crop")  # a bar may be cut, a name or number may not
    table.add_column(justify="right", no_wrap=True)
    highest = max((count for _, count, _ in rows), default=0) or 1
    for name, count, note in rows:
        bar = "█" * round(_BAR * count / highest)
        table.add_row(Text(visible(name)), f"{count:,}", bar, note)
    return table


# ---- the progress of a run ----


class Journal:
    """Appends lines to the journal; O_APPEND separates the lines of many processes."""

    def __init__(self, staging: str):
        self._path = os.path.join(staging, "progress")

    def add(self, *, bytes_read: int = 0, rows: int = 0) -> None:
        """Adds bytes read from the inputs, or rows or documents written."""
        self._write(f"{bytes_read} {rows}")

    @contextmanager
    def phase(self, name: str, parts: int = 1) -> Iterator[None]:
        """Reports the begin and end of one of the parts of a phase after reading."""
        self._write(f"begin {parts} {name}")
        yield
        self._write(f"end {parts} {name}")

    def note(self, text: str) -> None:
        """Prints a line on the terminal of the command, or here if its display has ended."""
        if not self._write(f"note {visible(text)}"):
            say(text, file=sys.stderr)

    def _write(self, line: str) -> bool:
        try:
            with open(self._path, "ab", buffering=0) as journal:
                journal.write(f"{line}\n".encode())
        except OSError:  # those who write the data report a full disk
            return False
        return True


class Display:
    """Shows a journal: a bar on a terminal, a line every few seconds elsewhere."""

    def __init__(
        self,
        staging: str,
        total_bytes: int,
        label: str,
        console: Console | None = None,
        count_finished: Callable[[], int] | None = None,
        has_workers: bool = True,
    ):
        """Shows nothing before the first `update`.

        Args:
          staging: the directory with the journal.
          total_bytes: stored bytes of the inputs.
          label: the name of the command.
          console: the console to write to; stderr if None.
          count_finished: counts finished shards; called from time to time without a journal.
          has_workers: whether other processes do the work.
        """
        self._path = os.path.join(staging, "progress")
        self._total, self._label, self._count_finished = total_bytes, label, count_finished
        self._read_to = self._bytes = self._rows = self._finished = 0
        self._warned, self._has_workers = False, has_workers
        self._phase: tuple[str, int] | None = None  # the last that began, and its parts
        self._phases: dict[str, float] = {}  # when each began
        self._ended: Counter[str] = Counter()  # parts of phases
        self._began = self._printed = self._counted = time.monotonic()
        self._reports = deque([(self._began, 0)])  # when workers reported, and bytes read by then
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
        """Reads new lines of the journal and shows the progress."""
        try:
            self._read_journal()
        except FileNotFoundError:
            if not self._read_to:  # else the output is published, and the journal removed
                self._count()
                self._warn_if_silent()
            return
        self._show(self.state(), _PLAIN_SECONDS)

    def _show(self, state: str, seconds: float) -> None:
        """Updates the bar; without a terminal, prints a line if the last one is old enough."""
        done, total = self._done, self._total
        if self._phase:
            done, total = self._ended[self._phase[0]], self._phase[1]
        self._bar.update(self._task, completed=done, total=total, state=state)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._printed >= seconds:
            self._printed = now
            self.say(f"{self._label}: {state}")

    def say(self, line: str) -> None:
        """Prints a line above the display."""
        self._console.print(line, soft_wrap=True)

    def close(self) -> None:
        """Ends the display and restores the terminal."""
        if self._console.is_terminal:
            self._bar.stop()

    @property
    def _done(self) -> int:
        return min(self._bytes, self._total)  # a retried block reports again

    def _read_journal(self) -> None:
        with open(self._path, "rb") as journal:
            journal.seek(self._read_to)
            for line in journal:
                if not line.endswith(b"\n"):
                    break
                self._read_to += len(line)
                # Lines may be torn by a full disk, or by several machines that append to one file.
                with contextlib.suppress(ValueError):
                    self._take(line.decode().rstrip("\n"))
        if self._done > self._reports[-1][1]:
            self._reports.append((time.monotonic(), self._done))

    def _take(self, line: str) -> None:
        """Takes a line; raises ValueError if it is torn."""
        kind, _, rest = line.partition(" ")
        if kind == "note":
            self.say(f"{self._label}: {rest}")
        elif kind in ("begin", "end"):
            parts, _, name = rest.partition(" ")
            if kind == "begin":
                self._phase = name, int(parts)
                self._phases.setdefault(name, time.monotonic())
            else:
                self._ended[name] += 1
        else:
            bytes_read, rows = map(int, line.split())
            self._bytes += bytes_read
            self._rows += rows

    def _rate(self) -> float:
        """Bytes a second of the last 10 s; the mean when all is read.

        Without a report in these, since the last but one: the rate of silent workers falls.
        """
        if self._done == self._total:
            return self._done / max(self._reports[-1][0] - self._began, 1e-9)
        now = time.monotonic()
        while self._reports[1][0] <= now - _RATE_SECONDS and self._reports[1][1] < self._done:
            self._reports.popleft()
        then, before = self._reports[0]
        return (self._done - before) / max(now - then, 1e-9)

    def _count(self) -> None:
        now = time.monotonic()
        if self._count_finished is not None and now - self._counted >= _ASK_SECONDS:
            self._counted = now
            # The object store may not answer, or the directory may be removed after publishing.
            with contextlib.suppress(DataError, OSError):
                self._finished = self._count_finished()
        finished = f"{self._finished:,} shards finished"
        starting = "workers are starting, no report yet" if self._has_workers else "starting"
        state = finished if self._finished else starting
        self._show(f"{state}, {now - self._began:.0f} s", _WAIT_SECONDS)

    def _warn_if_silent(self) -> None:
        seconds = time.monotonic() - self._began
        silent = self._has_workers and not self._finished
        if silent and not self._warned and seconds >= _PATIENT_SECONDS:
            self._warned = True
            self.say(
                f"{self._label}: no worker has reported for {seconds:.0f} s (none does if "
                f"{flag('output')} is in an object store): see the runner's pages for its state, "
                "and its workers' logs if they do not start"
            )

    def state(self) -> str:
        """`reading: 12 MB of 34 MB, 5.6 MB/s, 99 rows written, 4 s left`; then the phase.

        `near-duplicates, step 2 of 9 (candidates): 3 of 64, 5.6 MB/s, 12 s left`. The time left is
        that of the phase; where it is unknown or over, the time since the start is shown.
        """
        seconds = time.monotonic() - self._began
        if self._phase:
            words, left = self._state_of_phase(*self._phase)
        elif self._done:
            words, left = self._state_of_reading()
        else:
            return (
                f"reading: 0 of {decimal(self._total)} in {seconds:.0f} s: loading libraries, and "
                "compiling loops that are not cached"
            )
        if self._rows:
            words.append(f"{self._rows:,} {_WRITES.get(self._label, 'rows')} written")
        return ", ".join([*words, f"{duration(left)} left" if left else f"{seconds:.0f} s"])

    def _state_of_reading(self) -> tuple[list[str], float]:
        """Words, and seconds left; the rate is of the last 10 s, and when all is read the mean."""
        rate, left = self._rate(), self._total - self._done
        mean = " on average" * (not left)
        share = f"reading: {decimal(self._done)} of {decimal(self._total)}"
        return [share, f"{decimal(int(rate))}/s{mean}"], left / rate

    def _state_of_phase(self, name: str, parts: int) -> tuple[list[str], float]:
        """Words, and seconds left or 0; a part stands for the same share of the inputs."""
        ended, seconds = min(self._ended[name], parts), time.monotonic() - self._phases[name]
        words = [name + f": {ended:,} of {parts:,}" * (parts > 1)]
        if not ended or seconds < _SHORT_SECONDS:
            return words, 0
        rate = self._total * ended / parts / seconds
        return [*words, f"{decimal(int(rate))}/s"], seconds * (parts - ended) / ended


def duration(seconds: float) -> str:
    """8.4 -> `8 s`, 100 -> `1.7 min`."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.{0 if seconds >= 10 * size else 1}f} {unit}"
    return f"{max(1, round(seconds))} s"


def cpu_hours(seconds: float, most: int) -> str:
    """7200 -> `about 2.0 CPU hours: 7.5 min on 16, ... workers of one core`.

    `most` is how many workers can have something to do at once.
    """
    numbers = [number for number in _WORKERS if number <= most] or [1]
    each = ", ".join(f"{duration(seconds / number)} on {number:,}" for number in numbers)
    return f"about {seconds / 3600:,.1f} CPU hours: {each} workers of one core, without their start"
