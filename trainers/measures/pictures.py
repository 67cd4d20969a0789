"""Pictures as PNGs, each there whole or not at all: the loss curve, a classifier's, SQuAD's scores.

Python 3.8 syntax.
"""

import os
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from trainers.measures.class_scores import Calibration


def new_figure(size: Tuple[float, float]) -> Tuple[Any, Any]:
    """A figure of so many inches, and its axes; it needs no display."""
    # matplotlib: a second that a run without pictures does not pay.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def save_figure(figure: Any, path: str) -> None:
    """Replaces the picture at `path`, whole."""
    partial = path + ".partial"
    figure.savefig(partial, format="png", dpi=120)
    os.replace(partial, path)


def draw_curve(metrics: List[Dict[str, Any]], path: str, title: str, *, unit: str) -> None:
    """Draws loss over steps, training and evaluation, from the lines of a metrics file."""
    figure, axes = new_figure((8, 4.5))
    styles = {"train": {"linewidth": 1.0}, "evaluation": {"marker": "o", "linewidth": 1.5}}
    for kind, style in styles.items():
        lines = [line for line in metrics if line["kind"] == kind]
        if lines:
            steps, losses = [line["step"] for line in lines], [line["loss"] for line in lines]
            axes.plot(steps, losses, label=kind, **style)
    axes.set(xlabel="step", ylabel=f"loss ({unit})", title=title.replace("$", r"\$"))
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    save_figure(figure, path)


def draw_confusion(
    confusion_CxC: np.ndarray, classes: Sequence[str], path: str, title: str
) -> None:
    """Draws counts of rows, true class by chosen class; colours are shares of the true class.

    Of up to 30 classes, names and counts are written on it.
    """
    number = len(classes)
    side = min(12.0, 3.5 + 0.5 * number)
    figure, axes = new_figure((side + 1.0, side))
    share = confusion_CxC / np.maximum(confusion_CxC.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0)
    figure.colorbar(image, ax=axes, label="share of the true class", shrink=0.8)
    if number <= 30:
        for row, column in np.ndindex(number, number):
            color = "white" if share[row, column] > 0.5 else "black"
            count = f"{confusion_CxC[row, column]:,}"
            axes.text(column, row, count, ha="center", va="center", color=color)
        labels = [name.replace("$", r"\$") for name in classes]  # no mathematics
        axes.set_xticks(range(number), labels, rotation=45 if number > 4 else 0)
        axes.set_yticks(range(number), labels)
    axes.set(xlabel="chosen class", ylabel="true class", title=title)
    save_figure(figure, path)


def draw_reliability(found: Calibration, path: str, title: str) -> None:
    """Draws accuracy over confidence, with the rows of each bin, and the calibration error."""
    figure, axes = new_figure((6.0, 5.0))
    bins = len(found.rows)
    some = found.rows > 0
    left = np.arange(bins) / bins
    axes.bar(left[some], found.accuracy[some], 1 / bins, align="edge", alpha=0.7, edgecolor="white")
    axes.plot([0, 1], [0, 1], "--", color="gray", linewidth=1, label="perfect calibration")
    axes.plot(found.confidence[some], found.accuracy[some], "o-", color="C1", label="measured")
    share = axes.twinx()
    shares = np.append(found.rows, found.rows[-1]) / max(1, found.rows.sum())
    share.step(np.append(left, 1.0), shares, where="post", color="C2", linewidth=1)
    share.set(ylabel="share of the rows (line)", ylim=(0, 1))
    axes.set(xlabel="probability of the chosen class", ylabel="share that is right")
    title = f"{title}\nexpected calibration error {found.error:.4f}"
    axes.set(xlim=(0, 1), ylim=(0, 1), title=title)
    axes.legend(loc="upper left")
    save_figure(figure, path)


_NAMES = {
    "loss": "loss",
    "exact": "exact match",
    "f1": "F1",
    "HasAns_exact": "exact, answered",
    "HasAns_f1": "F1, answered",
    "NoAns_exact": "exact, no answer",
}


def score_table(found: Sequence[Mapping[str, float]]) -> str:
    """Scores by checkpoint in aligned columns: "step", "loss" and what `squad_scores` gives."""
    columns = [name for name in _NAMES if name in found[0]]
    lines = [["step", *(_NAMES[name] for name in columns)]]
    for scores in found:
        numbers = [f"{scores[n]:.4f}" if n == "loss" else f"{scores[n]:.2f}" for n in columns]
        lines.append([str(scores["step"]), *numbers])
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines
    )


def draw_scores(found: Sequence[Mapping[str, float]], path: str, title: str) -> None:
    """Draws exact match and F1 over steps, of the scores that `score_table` takes."""
    figure, axes = new_figure((8, 4.5))
    steps = [scores["step"] for scores in found]
    for name, label in _NAMES.items():
        if name in found[0] and name != "loss":
            style = "-o" if name in ("exact", "f1") else "--"
            axes.plot(steps, [scores[name] for scores in found], style, label=label)
    axes.set(xlabel="step", ylabel="percent", ylim=(-2, 102), title=title.replace("$", r"\$"))
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, path)
