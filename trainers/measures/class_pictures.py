"""A classifier's confusion matrix and reliability diagram as PNGs. Python 3.8 syntax."""

from typing import Sequence

import numpy as np

from trainers.measures.class_scores import Calibration
from trainers.measures.pictures import new_figure, save_figure

_NUMBERED = 30  # classes, up to which each cell shows its count


def draw_confusion(
    confusion_CxC: np.ndarray, classes: Sequence[str], path: str, title: str
) -> None:
    """Draws counts of rows, true class by chosen class; colours are shares of the true class.

    Args:
      confusion_CxC: as `confusion_matrix` gives it.
      classes: names.
      path: of the picture; replaced whole.
      title: over the picture.
    """
    number = len(classes)
    side = min(12.0, 3.5 + 0.5 * number)
    figure, axes = new_figure((side + 1.0, side))
    share = confusion_CxC / np.maximum(confusion_CxC.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0)
    figure.colorbar(image, ax=axes, label="share of the true class", shrink=0.8)
    if number <= _NUMBERED:
        for row, column in np.ndindex(number, number):
            axes.text(
                column,
                row,
                f"{confusion_CxC[row, column]:,}",
                ha="center",
                va="center",
                color="white" if share[row, column] > 0.5 else "black",
            )
        labels = [name.replace("$", r"\$") for name in classes]  # no mathematics
        axes.set_xticks(range(number), labels, rotation=45 if number > 4 else 0)
        axes.set_yticks(range(number), labels)
    axes.set(xlabel="chosen class", ylabel="true class", title=title)
    save_figure(figure, path)


def draw_reliability(found: Calibration, path: str, title: str) -> None:
    """Draws accuracy over confidence, with the rows of each bin, and the calibration error.

    Args:
      found: as `calibration` gives it.
      path: of the picture; replaced whole.
      title: over the picture.
    """
    figure, axes = new_figure((6.0, 5.0))
    bins = len(found.rows)
    some = found.rows > 0
    left = np.arange(bins) / bins
    axes.bar(left[some], found.accuracy[some], 1 / bins, align="edge", alpha=0.7, edgecolor="white")
    axes.plot([0, 1], [0, 1], "--", color="gray", linewidth=1, label="perfect calibration")
    axes.plot(found.confidence[some], found.accuracy[some], "o-", color="C1", label="measured")
    share = axes.twinx()
    share.step(
        np.append(left, 1.0),
        np.append(found.rows, found.rows[-1]) / max(1, found.rows.sum()),
        where="post",
        color="C2",
        linewidth=1,
    )
    share.set(ylabel="share of the rows (line)", ylim=(0, 1))
    axes.set(
        xlabel="probability of the chosen class",
        ylabel="share that is right",
        xlim=(0, 1),
        ylim=(0, 1),
        title=f"{title}\nexpected calibration error {found.error:.4f}",
    )
    axes.legend(loc="upper left")
    save_figure(figure, path)
