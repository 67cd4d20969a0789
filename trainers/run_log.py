"""What a training run tells: metrics.jsonl, a live progress line, the loss curve as a picture.

Free of any framework; numbers come in as plain floats. Python 3.8 syntax; matplotlib is imported
when a curve is drawn. `trainers.metric_sinks` is where else measurements can go.
"""

import json
import os
import sys
import time
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Sequence, TextIO, Tuple

from schemas.terminal import say, visible
from trainers.metric_sinks import MetricSink

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

        Args:
          path: of the file.
          start_step: steps done before this run.
          also: who gets every line besides; closed with the file.
        """
        self.path, self._also = path, also
        kept = [line for line in read_metrics(path) if line["step"] <= start_step]
        partial = path + ".partial"
        with open(partial, "w", encoding="utf-8") as file:
            file.writelines(_line(metrics) for metrics in kept if start_step)
        os.replace(partial, path)
        self._file = open(path, "a", encoding="utf-8")

    def write(self, metrics: Dict[str, Any]) -> None:
        """Appends one line, whole: a run that is killed leaves no half line."""
        self._file.write(_line(metrics))
        self._file.flush()
        for sink in self._also:
            sink.write(metrics)

    def close(self) -> None:
        """Closes the file, and the other sinks with it."""
        self._file.close()
        for sink in self._also:
            sink.close()


def _line(metrics: Dict[str, Any]) -> str:
    return json.dumps(metrics) + "\n"


def read_metrics(path: str) -> List[Dict[str, Any]]:
    """The lines of a metrics file; [] where there is none. A last line that was cut is left out."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")[:-1]
    return [json.loads(line) for line in lines]


class Rates:
    """Tokens a second and the share of time spent waiting for data, over the last seconds."""

    def __init__(self) -> None:
        """Starts the clock."""
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
        self._last = 0.0
        self._shown = False

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


def draw_curve(
    metrics: List[Dict[str, Any]], path: str, title: str, *, unit: str = "nats a masked token"
) -> None:
    """Draws loss over steps, training and evaluation, as a PNG.

    Args:
      metrics: lines of a metrics file, with `kind`, `step` and `loss`.
      path: of the picture; replaced whole.
      title: over the picture.
      unit: of the loss.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # needs no display
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    styles = {"train": {"linewidth": 1.0}, "evaluation": {"marker": "o", "linewidth": 1.5}}
    for kind, style in styles.items():
        lines = [line for line in metrics if line["kind"] == kind]
        if lines:
            steps, losses = [line["step"] for line in lines], [line["loss"] for line in lines]
            axes.plot(steps, losses, label=kind, **style)  # type: ignore[arg-type]
    axes.set(xlabel="step", ylabel=f"loss ({unit})", title=title)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    partial = path + ".partial"
    figure.savefig(partial, format="png", dpi=120)
    os.replace(partial, path)
