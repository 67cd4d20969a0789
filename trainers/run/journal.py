"""What a training run tells: metrics.jsonl, and a live progress line."""

import json
import math
import os
import sys
import time
from collections import deque
from typing import Any, Deque, Dict, Iterator, List, Mapping, Optional, Sequence, TextIO, Tuple

from schemas.commands.terminal import say, visible
from trainers.run.metric_sinks import MetricSink

METRICS = "metrics.jsonl"
PRINT_SECONDS = 0.2  # between updates of a line on a terminal
LOG_SECONDS = 10.0  # between lines in a log file
WINDOW_SECONDS = 10.0  # rates are of the last so many seconds
WINDOW_STEPS = 8  # or of so many steps, where those take longer


class MetricsFile:
    """Measurements as JSON Lines: `{"kind": "train", "step": 1, "loss": 10.8, ...}`.

    The file belongs to one run: made anew at step 0, and cut back to the checkpoint on resume.
    """

    def __init__(self, path: str, *, start_step: int, also: Sequence[MetricSink] = ()):
        """Opens the file and drops what was measured after `start_step`: it will be again.

        The sinks in `also` get every line, too, and are closed with the file.
        """
        self.path, self._also = path, also
        kept = (line for line in each_metrics(path) if start_step and line["step"] <= start_step)
        partial = path + ".partial"
        with open(partial, "w", encoding="utf-8") as file:
            file.writelines(map(json_text, kept))
        os.replace(partial, path)
        self._file = open(path, "a", encoding="utf-8")

    def write(self, metrics: Dict[str, Any]) -> None:
        """Appends one line, whole: a run that is killed leaves no half line."""
        self._file.write(json_text(metrics))
        self._file.flush()
        for sink in self._also:
            sink.write(metrics)

    def close(self) -> None:
        """Closes the file, and the other sinks with it."""
        self._file.close()
        for sink in self._also:
            sink.close()


def mend_metrics(path: str) -> List[str]:
    """Makes a metrics file readable again after a power cut, a full disk or an editor.

    A last line that was cut, and the NUL bytes that a power cut leaves, are cut off; other lines
    that say nothing sensible move to PATH.damaged. It is written anew whole or not at all.
    Gives a line for people on each of these that was found; [] for a sound file or none.
    """
    if not os.path.exists(path):
        return []
    with open(path, "rb") as file:
        content = file.read()
    *lines, torn = content.rstrip(b"\0").split(b"\n")
    wrong = [number for number, line in enumerate(lines, 1) if not _is_measurement(line)]
    notes = []
    if wrong:
        named = ", ".join(map(str, wrong[:10])) + (", ..." if len(wrong) > 10 else "")
        notes.append(f"{path}: cannot be read in line {named}; moved to {path}.damaged")
        with open(path + ".damaged", "ab") as file:
            file.writelines(lines[number - 1] + b"\n" for number in wrong)
    if torn:
        notes.append(f"{path}: its last line was cut in the middle, and is left out")
    elif content.endswith(b"\0"):
        notes.append(f"{path}: NUL bytes at its end, as a power cut leaves them, are cut off")
    if notes:
        with open(path + ".partial", "wb") as file:
            file.writelines(line + b"\n" for line in lines if _is_measurement(line))
        os.replace(path + ".partial", path)
    return notes


def _is_measurement(line: bytes) -> bool:
    """Whether it is an object of numbers with a step and a loss, but for its `kind`."""
    try:
        found = json.loads(line)
        kind, step = found.pop("kind"), found["step"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    return (
        isinstance(kind, str)
        and type(step) is int
        and 0 <= step < 1 << 53
        and "loss" in found
        and all(type(value) in (int, float, type(None)) for value in found.values())
    )


def json_text(metrics: Mapping[str, Any], indent: Optional[int] = None) -> str:
    """Measurements as JSON and a line end; what is no finite number is null: JSON has no NaN."""
    values = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in metrics.items()
    }
    return json.dumps(values, indent=indent) + "\n"


def each_metrics(path: str) -> Iterator[Dict[str, Any]]:
    """The lines of a metrics file, one at a time: a run of a million steps has as many.

    None where there is no file. A last line that was cut is left out; null is read as NaN.
    """
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                found = json.loads(line)
                yield {name: math.nan if v is None else v for name, v in found.items()}


def read_metrics(path: str) -> List[Dict[str, Any]]:
    """All lines of a metrics file at once, see `each_metrics`."""
    return list(each_metrics(path))


class Rates:
    """Tokens a second and the share of time spent waiting for data, over the last seconds."""

    def __init__(self) -> None:
        self._marks: Deque[Tuple[float, float, float]] = deque([(time.perf_counter(), 0.0, 0.0)])
        self._tokens = self._waited = 0.0

    def waited(self, seconds: float) -> None:
        """Counts time in which the loop stood still for lack of a batch."""
        self._waited += seconds

    def paused(self, seconds: float) -> None:
        """Takes time out of the account that no step was due in, such as an evaluation."""
        self._marks = deque((at + seconds, *counts) for at, *counts in self._marks)  # type: ignore

    def step_done(self, tokens: float) -> Tuple[float, float]:
        """Counts a step; returns (tokens a second, share of time spent waiting)."""
        self._tokens += tokens
        now = time.perf_counter()
        self._marks.append((now, self._tokens, self._waited))
        while now - self._marks[0][0] > WINDOW_SECONDS and len(self._marks) > WINDOW_STEPS:
            self._marks.popleft()
        then, tokens_then, waited_then = self._marks[0]
        seconds = max(now - then, 1e-9)
        return (self._tokens - tokens_then) / seconds, (self._waited - waited_then) / seconds


class ProgressLine:
    """One line that is written over on a terminal, and now and then a line in a log."""

    def __init__(self, stream: Optional[TextIO] = None):
        """Writes to `stream`, or to standard error."""
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._last, self._shown = 0.0, False

    def update(self, text: str) -> None:
        """Shows `text`, unless the last was shown just before."""
        now = time.monotonic()
        if now - self._last < (PRINT_SECONDS if self._live else LOG_SECONDS):
            return
        self._last = now
        if self._live:
            self._stream.write("\r\x1b[K" + visible(text))
            self._shown = True
        else:
            say(text, self._stream)
        self._stream.flush()

    def say(self, text: str) -> None:
        """Writes a line that stays."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._shown = False
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
