"""The reports of a training run: metrics.jsonl, rates, a progress line."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections import deque
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence, TextIO

from textmill.schemas.commands.terminal import say, visible

METRICS = "metrics.jsonl"
PRINT_SECONDS = 0.2  # between updates of a line on a terminal
LOG_SECONDS = 10.0  # between lines in a log file
_FEW_BYTES = 1 << 16  # of a metrics file, many lines
WINDOW_SECONDS = 10.0  # that rates are over
WINDOW_STEPS = 8  # or over these, if they take longer


class MetricSink(NamedTuple):
    """Takes metrics besides metrics.jsonl."""

    write: Callable[[Mapping[str, Any]], None]  # of one line, as in metrics.jsonl
    close: Callable[[], None]  # flushes


class MetricsFile:
    """Metrics as JSON Lines: `{"kind": "train", "step": 1, "loss": 10.8, ...}`.

    The sinks in `also` get every line, too, and are closed with the file.
    """

    def __init__(self, path: str, *, also: Sequence[MetricSink] = ()):
        self.path, self._also = path, also
        self._file = open(path, "a", encoding="utf-8")

    def write(self, metrics: dict[str, Any]) -> None:
        """Appends one line and flushes it."""
        self._file.write(json_text(metrics))
        self._file.flush()
        for sink in self._also:
            sink.write(metrics)

    def close(self) -> None:
        """Closes the file and the other sinks."""
        self._file.close()
        for sink in self._also:
            sink.close()


def cut_metrics(path: str, start_step: int) -> str | None:
    """Truncates a metrics file at the first line after `start_step`, since a run repeats its steps.

    Also at the first broken line, such as a power cut leaves, about which it returns a note.
    """
    if not os.path.exists(path):
        return None
    whole = 0
    with open(path, "rb+") as file:
        for number, line in enumerate(file, 1):
            step = _step_of(line) if line.endswith(b"\n") else None
            if step is None or step > start_step:
                file.truncate(whole)
                note = f"{path}: line {number:,} is broken; removed it and all later lines"
                return note if step is None else None
            whole += len(line)
    return None


def _step_of(line: bytes) -> int | None:
    """The step of an object with a `kind`, a step, a loss and other numbers; None for others."""
    try:
        values = json.loads(line)
        kind, step = values.pop("kind"), values["step"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    is_whole = (
        isinstance(kind, str)
        and type(step) is int
        and 0 <= step < 1 << 53
        and "loss" in values
        and all(type(value) in (int, float, type(None)) for value in values.values())
    )
    return step if is_whole else None


def json_text(metrics: Mapping[str, Any], indent: int | None = None) -> str:
    """Metrics as JSON and a line end; NaN and infinity become null, since JSON has neither."""
    values = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in metrics.items()
    }
    return json.dumps(values, indent=indent) + "\n"


def each_metrics(path: str) -> Iterator[dict[str, Any]]:
    """The lines of a metrics file, one at a time since there may be millions.

    There are none without a file. A last line without its end is skipped; null is read as NaN.
    """
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                values = json.loads(line)
                yield {name: math.nan if v is None else v for name, v in values.items()}


def train_lines(path: str, first: int, last: int) -> Iterator[dict[str, Any]]:
    """The lines of the training steps from `first` to `last`, found by bisection.

    Steps ascend in a metrics file. There are no lines without a file.
    """
    if not os.path.exists(path):
        return
    with open(path, "rb") as file:
        start, stop = 0, file.seek(0, os.SEEK_END)
        while stop - start > _FEW_BYTES:  # all lines before `start` are of earlier steps
            middle = (start + stop) // 2
            file.seek(middle)
            file.readline()
            begin, step = file.tell(), _step_of(file.readline())
            if step is None or step >= first:
                stop = middle
            else:
                start = begin
        file.seek(start)
        for line in file:
            step = _step_of(line) if line.endswith(b"\n") else None
            if step is None or step > last:
                return
            values = json.loads(line)
            if step >= first and values["kind"] == "train":
                yield {name: math.nan if v is None else v for name, v in values.items()}


def last_step(path: str) -> int:
    """The step of the last whole line of a metrics file; 0 without one."""
    if not os.path.exists(path):
        return 0
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _FEW_BYTES))
        steps = [_step_of(line) for line in file.read().split(b"\n")[:-1]]
    return max((step for step in steps if step is not None), default=0)


class Rate(NamedTuple):
    """Steps and tokens a second, and the share of time spent waiting for data."""

    steps: float
    tokens: float
    waiting: float


class Rates:
    """The rate of the last seconds, and that of the whole run."""

    def __init__(self) -> None:
        self._steps, self._tokens, self._waited = 0, 0.0, 0.0
        self._began = time.perf_counter()
        self._history: deque[tuple[float, int, float, float]] = deque([(self._began, 0, 0.0, 0.0)])

    def count_wait(self, seconds: float) -> None:
        """Counts the time that the loop waited for a batch."""
        self._waited += seconds

    def skip(self, seconds: float) -> None:
        """Excludes time when no step ran, such as during an evaluation."""
        self._began += seconds
        self._history = deque((at + seconds, *counts) for at, *counts in self._history)  # type: ignore

    def count_step(self, tokens: float) -> Rate:
        """Counts a step; the rate of the last seconds."""
        self._steps += 1
        self._tokens += tokens
        history, now = self._history, time.perf_counter()
        history.append((now, self._steps, self._tokens, self._waited))
        while now - history[0][0] > WINDOW_SECONDS and len(history) > WINDOW_STEPS:
            history.popleft()
        return self._since(*history[0])

    def mean(self) -> Rate:
        """The rate from the first step to the last."""
        return self._since(self._began, 0, 0.0, 0.0)

    def _since(self, then: float, steps: int, tokens: float, waited: float) -> Rate:
        seconds = max(self._history[-1][0] - then, 1e-9)
        steps_per_second = (self._steps - steps) / seconds
        return Rate(
            steps_per_second, (self._tokens - tokens) / seconds, (self._waited - waited) / seconds
        )


class ProgressLine:
    """One line that is overwritten on a terminal, or a line every 10 s in a log."""

    def __init__(self, stream: TextIO | None = None):
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._last, self._is_open = 0.0, False

    @classmethod
    def quiet(cls) -> ProgressLine:
        """A line that shows nothing."""
        return cls(open(os.devnull, "w"))

    def update(self, text: str) -> None:
        """Shows `text`, unless the last update was just before."""
        now = time.monotonic()
        if now - self._last < (PRINT_SECONDS if self._live else LOG_SECONDS):
            return
        self._last = now
        if self._live:
            self._stream.write("\r\x1b[K" + visible(text))
            self._is_open = True
        else:
            say(text, self._stream)
        self._stream.flush()

    def say(self, text: str) -> None:
        """Writes a line that stays."""
        if self._is_open:
            self._stream.write("\r\x1b[K")
            self._is_open = False
        say(text, self._stream)
        self._stream.flush()


def duration(seconds: float) -> str:
    """59 -> "59 s", 61 -> "1 min 01 s", 3661 -> "1 h 01 min"."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
