"""Metrics and plots of a classifier: accuracy, AUC, F1, calibration, confusion.

Python 3.8 syntax.

Legend: B rows, C classes, M bins.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

import numpy as np

from textmill.trainers.metrics.plots import new_figure, save_figure


class Calibration(NamedTuple):
    """Rows by the probability of the predicted class, in bins of equal width."""

    rows: np.ndarray  # int64 [M], rows in each bin
    confidence: np.ndarray  # float64 [M], their mean probability; 0 in an empty bin
    accuracy: np.ndarray  # float64 [M], their accuracy; 0 in an empty bin

    @property
    def error(self) -> float:
        """The expected calibration error: the mean over rows of |accuracy - confidence|."""
        gap = np.abs(self.accuracy - self.confidence)
        return float((gap * self.rows).sum() / max(1, self.rows.sum()))


def probabilities(logits_BxC: np.ndarray) -> np.ndarray:
    """Softmax in float64: [B, C] -> [B, C]."""
    logits_BxC = np.asarray(logits_BxC, np.float64)
    shifted = np.exp(logits_BxC - logits_BxC.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def class_metrics(logits_BxC: np.ndarray, label_B: np.ndarray) -> dict[str, float]:
    """Metrics of a classifier on rows, by logits that need not be finite.

    loss: mean cross-entropy, nats. accuracy. auc: for two classes the area under the ROC curve of
    the second, for more the mean of each class against the rest. f1: for two classes that of the
    second, for more the mean over classes with rows or predictions, as in scikit-learn. ece: see
    `Calibration`. rows: B. The result has no auc if all rows are of one class.
    """
    label_B = np.asarray(label_B, np.int64)
    rows, classes = logits_BxC.shape
    if not rows:
        return {"rows": 0.0}
    logits_BxC = np.asarray(logits_BxC, np.float64)
    if not np.isfinite(logits_BxC).all():
        return {"loss": float("nan"), "rows": float(rows)}
    probability_BxC = probabilities(logits_BxC)
    top_B = logits_BxC.max(axis=1)
    log_sum_B = top_B + np.log(np.exp(logits_BxC - top_B[:, None]).sum(axis=1))
    metrics = {
        "loss": float((log_sum_B - logits_BxC[np.arange(rows), label_B]).mean()),
        "accuracy": float((logits_BxC.argmax(axis=1) == label_B).mean()),
    }
    positive = [1] if classes == 2 else range(classes)
    areas = [
        area_under_curve(probability_BxC[:, number], label_B == number)
        for number in positive
        if 0 < (label_B == number).sum() < rows
    ]
    if areas:
        metrics["auc"] = float(np.mean(areas))
    confusion = confusion_matrix(logits_BxC.argmax(axis=1), label_B, classes)
    f1_C, is_there_C = f1_scores(confusion), (confusion.sum(axis=0) + confusion.sum(axis=1)) > 0
    metrics["f1"] = float(f1_C[1] if classes == 2 else f1_C[is_there_C].mean())
    metrics["ece"] = calibration(probability_BxC, label_B).error
    metrics["rows"] = float(rows)
    return metrics


def area_under_curve(score_B: np.ndarray, is_positive_B: np.ndarray) -> float:
    """The probability that a positive has a higher score than a negative; ties count half.

    [0.1, 0.4, 0.35, 0.8] with positives [0, 0, 1, 1] -> 0.75.
    """
    values, place_B, count = np.unique(score_B, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2.0  # mean rank of equal scores, from 1
    is_positive_B = np.asarray(is_positive_B, bool)
    positives = int(is_positive_B.sum())
    negatives = len(is_positive_B) - positives
    above = rank[place_B][is_positive_B].sum() - positives * (positives + 1) / 2.0
    return float(above / (positives * negatives))


def confusion_matrix(chosen_B: np.ndarray, label_B: np.ndarray, classes: int) -> np.ndarray:
    """Counts int64 [C, C]: the row is the true class, the column the predicted one."""
    flat = np.asarray(label_B, np.int64) * classes + np.asarray(chosen_B, np.int64)
    return np.bincount(flat, minlength=classes * classes).reshape(classes, classes)


def f1_scores(confusion_CxC: np.ndarray) -> np.ndarray:
    """F1 of each class, float64 [C]; 0 for a class without rows and predictions."""
    right_C = np.diag(confusion_CxC).astype(np.float64)
    total_C = confusion_CxC.sum(axis=0) + confusion_CxC.sum(axis=1)
    return 2 * right_C / np.maximum(total_C, 1)


def calibration(probability_BxC: np.ndarray, label_B: np.ndarray, bins: int = 15) -> Calibration:
    """Confidence and accuracy in bins, as in Guo et al., 2017 (arXiv:1706.04599)."""
    confidence_B = probability_BxC.max(axis=1)
    right_B = probability_BxC.argmax(axis=1) == label_B
    # A bin includes its upper end, as in the paper: 1.0 is in the last.
    bin_B = np.ceil(confidence_B * bins).astype(np.int64) - 1
    rows = np.bincount(bin_B, minlength=bins)
    some = np.maximum(rows, 1)
    return Calibration(
        rows=rows,
        confidence=np.bincount(bin_B, confidence_B, bins) / some,
        accuracy=np.bincount(bin_B, right_B.astype(np.float64), bins) / some,
    )


def class_weights(text: str, counts: Sequence[float]) -> list[float]:
    """The weights of --class_weights for these training rows of each class.

    Rows [30, 10]: "balanced" -> [0.667, 2.0], B / (C * rows of the class) as in scikit-learn;
    "none" -> [1.0, 1.0]; "1,2.5" -> [1.0, 2.5].

    Raises:
      ValueError: the text is none of these.
    """
    if text == "none":
        return [1.0] * len(counts)
    if text == "balanced":
        total, present = sum(counts), [count for count in counts if count]
        return [total / (len(present) * count) if count else 0.0 for count in counts]
    try:
        weights = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError("give balanced, none, or numbers such as 1,2.5") from None
    if len(weights) != len(counts):
        raise ValueError(f"{len(weights)} weights for {len(counts)} classes: give one for each")
    if not all(0 <= weight < float("inf") for weight in weights) or not any(weights):
        raise ValueError("weights must be at least 0, and one of them above 0")
    return weights


def draw_confusion(
    confusion_CxC: np.ndarray, classes: Sequence[str], path: str, title: str
) -> None:
    """Draws counts of rows, true class by predicted class; colours are shares of the true class.

    With at most 30 classes the plot has their names and the counts.
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
        labels = [name.replace("$", r"\$") for name in classes]  # else matplotlib parses math
        axes.set_xticks(range(number), labels, rotation=45 if number > 4 else 0)
        axes.set_yticks(range(number), labels)
    axes.set(xlabel="predicted class", ylabel="true class", title=title)
    save_figure(figure, path)


def draw_reliability(bars: Calibration, path: str) -> None:
    """Draws accuracy over confidence, the share of rows in each bin, and the calibration error."""
    figure, axes = new_figure((6.0, 5.0))
    bins = len(bars.rows)
    some = bars.rows > 0
    left = np.arange(bins) / bins
    axes.bar(left[some], bars.accuracy[some], 1 / bins, align="edge", alpha=0.7, edgecolor="white")
    axes.plot([0, 1], [0, 1], "--", color="gray", label="perfect calibration")
    axes.plot(bars.confidence[some], bars.accuracy[some], "o-", color="C1", label="measured")
    share = axes.twinx()
    shares = np.append(bars.rows, bars.rows[-1]) / bars.rows.sum()
    share.step(np.append(left, 1.0), shares, where="post", color="C2")
    share.set(ylabel="share of the rows (line)", ylim=(0, 1))
    axes.set(xlabel="probability of the predicted class", ylabel="accuracy")
    title = f"Reliability\nexpected calibration error {bars.error:.4f}"
    axes.set(xlim=(0, 1), ylim=(0, 1), title=title)
    axes.legend(loc="upper left")
    save_figure(figure, path)
