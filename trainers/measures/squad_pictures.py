"""SQuAD's scores over a run's checkpoints: a table and a plot. Python 3.8 syntax."""

from typing import Mapping, Sequence

from trainers.measures.pictures import new_figure, save_figure

_NAMES = {
    "loss": "loss",
    "exact": "exact match",
    "f1": "F1",
    "HasAns_exact": "exact, answered",
    "HasAns_f1": "F1, answered",
    "NoAns_exact": "exact, no answer",
}


def score_table(found: Sequence[Mapping[str, float]]) -> str:
    """Scores by checkpoint in aligned columns.

    Args:
      found: "step", "loss" and what `squad_scores` gives, for each checkpoint.
    """
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
    """Draws exact match and F1 over steps as a PNG.

    Args:
      found: as for `score_table`.
      path: of the picture; replaced whole.
      title: over the picture.
    """
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
