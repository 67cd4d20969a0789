"""Plots as PNGs, written atomically: the loss curve, and SQuAD's scores.

Python 3.8 syntax.
"""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence


def new_figure(size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure of this size in inches, and its axes; it needs no display."""
    # The import takes a second, which a run without plots need not wait.
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.add_subplot()


def save_figure(figure: Any, path: str) -> None:
    """Replaces the plot at `path` atomically."""
    partial = path + ".partial"
    figure.savefig(partial, format="png", dpi=120)
    os.replace(partial, path)


def draw_curve(
    metrics: list[dict[str, Any]], path: str, title: str, *, unit: str, starts: Sequence[int] = ()
) -> None:
    """Draws training and evaluation loss over steps, from the lines of a metrics file.

    Each dataset of a mixture has a line of its own. A vertical line is at each of `starts`, the
    steps before stages.
    """
    figure, axes = new_figure((8, 4.5))
    styles = {"train": {"linewidth": 1.0}, "evaluation": {"marker": "o", "linewidth": 1.5}}
    for kind, style in styles.items():
        lines = [line for line in metrics if line["kind"] == kind]
        if lines:
            steps, losses = [line["step"] for line in lines], [line["loss"] for line in lines]
            axes.plot(steps, losses, label=kind, **style)
    names = dict.fromkeys(name for line in metrics for name in line if name.startswith("loss/"))
    for name in names:
        lines = [line for line in metrics if name in line]
        steps, losses = [line["step"] for line in lines], [line[name] for line in lines]
        axes.plot(steps, losses, "--", marker=".", linewidth=1.0, label=name[len("loss/") :])
    for start in starts:
        axes.axvline(start + 0.5, color="gray", linewidth=0.8)
    axes.set(xlabel="step", ylabel=f"loss ({unit})", title=title.replace("$", r"\$"))
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    save_figure(figure, path)


_NAMES = {
    "loss": "loss",
    "exact": "exact match",
    "f1": "F1",
    "HasAns_exact": "exact, answered",
    "HasAns_f1": "F1, answered",
    "NoAns_exact": "exact, no answer",
}


def score_table(checkpoints: Sequence[Mapping[str, float]]) -> str:
    """Scores by checkpoint in aligned columns: "step", "loss" and those of `squad_scores`."""
    columns = [name for name in _NAMES if name in checkpoints[0]]
    lines = [["step", *(_NAMES[name] for name in columns)]]
    for scores in checkpoints:
        numbers = [f"{scores[n]:.4f}" if n == "loss" else f"{scores[n]:.2f}" for n in columns]
        lines.append([str(scores["step"]), *numbers])
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines
    )


def draw_scores(checkpoints: Sequence[Mapping[str, float]], path: str, title: str) -> None:
    """Draws exact match and F1 over steps, from the argument of `score_table`."""
    figure, axes = new_figure((8, 4.5))
    steps = [scores["step"] for scores in checkpoints]
    for name, label in _NAMES.items():
        if name in checkpoints[0] and name != "loss":
            style = "-o" if name in ("exact", "f1") else "--"
            axes.plot(steps, [scores[name] for scores in checkpoints], style, label=label)
    axes.set(xlabel="step", ylabel="percent", ylim=(-2, 102), title=title.replace("$", r"\$"))
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, path)
