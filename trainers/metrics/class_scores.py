"""How good a classifier is, in numbers and plots: accuracy, AUC, F1, calibration, confusion.

Python 3.8 syntax.

Legend: B rows, C classes, M bins.
"""

from typing import Dict, List, NamedTuple, Sequence

import numpy as np

from trainers.metrics.plots import new_figure, save_figure


class Calibration(NamedTuple):
    """Rows by the probability of the class that was chosen, in bins of equal width.

    Attributes:
      rows: int64 [M], rows in each bin.
      confidence: float64 [M], their mean probability; 0 in an empty bin.
      accuracy: float64 [M], the share of them that is right; 0 in an empty bin.
    """

    rows: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

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


def class_metrics(logits_BxC: np.ndarray, label_B: np.ndarray) -> Dict[str, float]:
    """Metrics of a classifier on rows, by logits that need not be finite.

    loss: mean cross-entropy, nats. accuracy. auc: of two classes the area under the curve of the
    second's probability, of more the mean over classes against the rest. f1: of two classes the
    second's, of more the mean over classes. ece: see `Calibration`. rows: B. A measure that the
    rows do not define (an AUC where there is one class only) is left out.
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
    metrics["f1"] = float(np.mean(f1_scores(confusion)[list(positive)]))
    metrics["ece"] = calibration(probability_BxC, label_B).error
    metrics["rows"] = float(rows)
    return metrics


def area_under_curve(score_B: np.ndarray, is_positive_B: np.ndarray) -> float:
    """The chance that a positive has a higher score than a negative; equal scores count half.

    [0.1, 0.4, 0.35, 0.8] with positives [0, 0, 1, 1] -> 0.75.
    """
    values, place_B, count = np.unique(score_B, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2.0  # mean rank of equal scores, from 1
    is_positive_B = np.asarray(is_positive_B, bool)
    positives = int(is_positive_B.sum())
    negatives = len(is_positive_B) - positives
    above = rank[place_B.reshape(-1)][is_positive_B].sum() - positives * (positives + 1) / 2.0
    return float(above / (positives * negatives))


def confusion_matrix(chosen_B: np.ndarray, label_B: np.ndarray, classes: int) -> np.ndarray:
    """Counts int64 [C, C]: row is the true class, column the chosen one."""
    flat = np.asarray(label_B, np.int64) * classes + np.asarray(chosen_B, np.int64)
    return np.bincount(flat, minlength=classes * classes).reshape(classes, classes)


def f1_scores(confusion_CxC: np.ndarray) -> np.ndarray:
    """F1 of each class, float64 [C]; 0 for a class that is neither there nor chosen."""
    right_C = np.diag(confusion_CxC).astype(np.float64)
    total_C = confusion_CxC.sum(axis=0) + confusion_CxC.sum(axis=1)
    return 2 * right_C / np.maximum(total_C, 1)


def calibration(probability_BxC: np.ndarray, label_B: np.ndarray, bins: int = 15) -> Calibration:
    """How probabilities compare with what came true, as Guo et al., 2017 (arXiv:1706.04599)."""
    confidence_B = probability_BxC.max(axis=1)
    right_B = probability_BxC.argmax(axis=1) == label_B
    # A bin holds its upper end, as in the paper: 1.0 is in the last.
    bin_B = np.clip(np.ceil(confidence_B * bins).astype(np.int64) - 1, 0, bins - 1)
    rows = np.bincount(bin_B, minlength=bins)
    some = np.maximum(rows, 1)
    return Calibration(
        rows=rows,
        confidence=np.bincount(bin_B, confidence_B, bins) / some,
        accuracy=np.bincount(bin_B, right_B.astype(np.float64), bins) / some,
    )


def class_weights(text: str, counts: Sequence[int]) -> List[float]:
    """What --class_weights means; "balanced" is B / (C * rows of the class), as in scikit-learn.

    Training rows [30, 10] -> [0.667, 2.0]; "none" -> ones; "1,2.5" -> [1.0, 2.5].

    Raises:
      ValueError: it is none of these; says why.
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
        raise ValueError("weights are numbers from 0 on, and not all of them 0")
    return weights


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


def draw_reliability(bars: Calibration, path: str, title: str) -> None:
    """Draws accuracy over confidence, with the rows of each bin, and the calibration error."""
    figure, axes = new_figure((6.0, 5.0))
    bins = len(bars.rows)
    some = bars.rows > 0
    left = np.arange(bins) / bins
    axes.bar(left[some], bars.accuracy[some], 1 / bins, align="edge", alpha=0.7, edgecolor="white")
    axes.plot([0, 1], [0, 1], "--", color="gray", linewidth=1, label="perfect calibration")
    axes.plot(bars.confidence[some], bars.accuracy[some], "o-", color="C1", label="measured")
    share = axes.twinx()
    shares = np.append(bars.rows, bars.rows[-1]) / max(1, bars.rows.sum())
    share.step(np.append(left, 1.0), shares, where="post", color="C2", linewidth=1)
    share.set(ylabel="share of the rows (line)", ylim=(0, 1))
    axes.set(xlabel="probability of the chosen class", ylabel="share that is right")
    title = f"{title}\nexpected calibration error {bars.error:.4f}"
    axes.set(xlim=(0, 1), ylim=(0, 1), title=title)
    axes.legend(loc="upper left")
    save_figure(figure, path)
