"""Pictures as PNGs, each there whole or not at all; and the loss curve of a run.

matplotlib is imported when a picture is drawn. Python 3.8 syntax.
"""

import os
from typing import Any, Dict, List, Tuple


def new_figure(size: Tuple[float, float]) -> Tuple[Any, Any]:
    """A figure of so many inches, and its axes; it needs no display."""
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
    """Draws loss over steps, training and evaluation.

    Args:
      metrics: lines of a metrics file, with `kind`, `step` and `loss`.
      path: of the picture; replaced whole.
      title: over the picture.
      unit: of the loss.
    """
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
