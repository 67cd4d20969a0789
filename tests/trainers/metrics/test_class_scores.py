"""Metrics of a classifier: worked by hand, and by counting pairs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textmill.trainers.metrics import class_scores
from textmill.trainers.metrics.class_scores import (
    area_under_curve,
    calibration,
    class_metrics,
    class_weights,
    confusion_matrix,
    draw_confusion,
    draw_reliability,
    f1_scores,
    probabilities,
)


def test_two_classes_by_hand():
    """Probabilities of the second class 1/4, 1/2 (a tie, so the first is chosen), 3/4, 3/4."""
    logits = np.log([[3.0, 1.0], [1.0, 1.0], [1.0, 3.0], [1.0, 3.0]])
    found = class_metrics(logits, np.array([0, 1, 1, 0]))
    assert found.pop("rows") == 4
    # Right: rows 0 and 2. Chosen as second: 2 and 3, of which 2 is; 1 is missed.
    # Pairs (positive, negative): 1/2 > 1/4, 1/2 < 3/4, 3/4 > 1/4, 3/4 = 3/4 counts half.
    # Bins of 1/15: three rows at 3/4 with 2 right, one at 1/2 with 0 right.
    expected = {
        "loss": -np.log([0.75, 0.5, 0.75, 0.25]).mean(),
        "accuracy": 0.5,
        "auc": 2.5 / 4,
        "f1": 2 * 1 / (2 + 2),
        "ece": (3 * abs(2 / 3 - 0.75) + 1 * abs(0 - 0.5)) / 4,
    }
    assert found == pytest.approx(expected)
    assert probabilities(np.array([[1e4, 0.0], [-1e4, -1e4]])).tolist() == [[1, 0], [0.5, 0.5]]


def test_three_classes_are_means_over_classes():
    logits = 9.0 * np.eye(3)[[0, 0, 1, 2, 1, 1]]
    label = np.array([0, 0, 1, 2, 2, 2])
    assert confusion_matrix(logits.argmax(axis=1), label, 3).tolist() == [
        [2, 0, 0],
        [0, 1, 0],
        [0, 2, 1],
    ]
    found = class_metrics(logits, label)
    assert found["f1"] == pytest.approx((1 + 2 / 4 + 2 / 4) / 3)
    # Class 1: its one row at the top, beside two of five others. Class 2: one of three at the top.
    assert found["auc"] == pytest.approx((1 + (3 + 2 * 0.5) / 5 + (3 + 6 * 0.5) / 9) / 3)
    # With two classes, as in scikit-learn, both probabilities of the second round to 1: a tie.
    assert class_metrics(np.array([[0.0, 40.0], [0.0, 50.0]]), np.array([0, 1]))["auc"] == 0.5


def test_what_rows_do_not_define_is_left_out():
    assert class_metrics(np.zeros((0, 2)), np.zeros(0, np.int64)) == {"rows": 0.0}
    one_class = class_metrics(np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([1, 1]))
    assert "auc" not in one_class and one_class["accuracy"] == 1.0
    assert class_metrics(np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([0, 1]))["auc"] == 1.0
    broken = class_metrics(np.array([[0.0, np.nan], [0.0, 2.0]]), np.array([1, 1]))
    assert np.isnan(broken["loss"]) and set(broken) == {"loss", "rows"}


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30))
def test_auc_counts_pairs(rows):
    score, positive = (np.array(column) for column in zip(*rows, strict=True))
    if positive.all() or not positive.any():
        return
    pairs = [np.sign(p - n) / 2 + 0.5 for p in score[positive] for n in score[~positive]]
    assert area_under_curve(score, positive) == pytest.approx(np.mean(pairs))


def test_f1_is_a_mean_over_classes_with_rows_or_predictions():
    """As scikit-learn's macro average: class 3 is neither, class 2 is predicted once."""
    logits = 9.0 * np.eye(4)[[0, 0, 1, 2]]
    found = class_metrics(logits, np.array([0, 0, 1, 1]))
    assert found["f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    two = class_metrics(9.0 * np.eye(2)[[0, 0]], np.array([0, 0]))
    assert two["f1"] == 0, "of the second class, as for a pair of classes"
    assert f1_scores(np.array([[2, 0, 0], [1, 0, 0], [0, 0, 0]])).tolist() == [0.8, 0, 0]


def test_calibration_by_hand():
    found = calibration(np.array([[0.5, 0.5], [0.1, 0.9], [0.0, 1.0]]), np.array([0, 0, 1]), bins=4)
    assert found.rows.tolist() == [0, 1, 0, 2]  # a bin holds its upper end
    assert found.confidence.tolist() == [0, 0.5, 0, 0.95]
    assert found.accuracy.tolist() == [0, 1, 0, 0.5]
    assert found.error == pytest.approx((1 * 0.5 + 2 * 0.45) / 3)
    assert calibration(np.array([[0.75, 0.25]]), np.array([0])).error == 0.25
    assert calibration(np.zeros((0, 2)), np.zeros(0)).error == 0
    uniform = calibration(np.full((1, 4), 0.25), np.array([0]), bins=4)
    assert uniform.rows.tolist() == [1, 0, 0, 0]
    assert len(calibration(np.full((1, 4), 0.25), np.array([0])).rows) == 15


def test_class_weights():
    assert class_weights("none", [3, 1]) == [1, 1]
    assert class_weights("balanced", [30, 10]) == pytest.approx([2 / 3, 2])
    assert class_weights("balanced", [30, 0]) == [1, 0]
    assert class_weights("1,2.5", [0, 0]) == [1, 2.5]
    assert class_weights("0.5,0", [1, 1]) == [0.5, 0]


@pytest.mark.parametrize("text", ["heavy", "1", "1,2,3", "-1,2", "0,0", "inf,1", "nan,1", ""])
def test_class_weights_refuses(text):
    with pytest.raises(ValueError):
        class_weights(text, [1, 1])


def drawn(monkeypatch, draw, *arguments):
    """The figure that a function would save."""
    saved = []
    monkeypatch.setattr(class_scores, "save_figure", lambda figure, path: saved.append(figure))
    draw(*arguments)
    return saved[0]


def test_a_confusion_matrix_shows_counts_and_shares(monkeypatch):
    counts, names = np.array([[3, 1], [1, 1]]), ["$x$", "b"]
    figure = drawn(monkeypatch, draw_confusion, counts, names, "", "title")
    axes, scale = figure.axes
    assert scale.get_ylabel() == "share of the true class"
    assert axes.images[0].get_array().tolist() == [[0.75, 0.25], [0.5, 0.5]]
    assert axes.images[0].get_clim() == (0, 1)
    assert [(t.get_position(), t.get_text(), t.get_color()) for t in axes.texts] == [
        ((0, 0), "3", "white"),
        ((1, 0), "1", "black"),
        ((0, 1), "1", "black"),
        ((1, 1), "1", "black"),
    ]
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [label.get_text() for label in labels] == [r"\$x\$", "b"], "no mathematics"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted class", "true class")
    figure.draw_without_rendering()
    assert scale.get_position().height < axes.get_position().height


@pytest.mark.parametrize(
    ("classes", "counts", "rotation", "inches"),
    [(4, 16, 0, 5.5), (5, 25, 45, 6.0), (30, 900, 45, 12.0), (31, 0, None, 12.0)],
)
def test_a_confusion_matrix_of_many_classes(monkeypatch, classes, counts, rotation, inches):
    """With too many of them, names and counts could not be read; the first has no row."""
    names = [str(number) for number in range(classes)]
    confusion = np.diag([0] + [1] * (classes - 1))
    figure = drawn(monkeypatch, draw_confusion, confusion, names, "", "title")
    axes = figure.axes[0]
    assert (axes.images[0].get_array() == confusion).all()
    assert tuple(figure.get_size_inches()) == (inches + 1, inches)
    assert len(axes.texts) == counts
    assert rotation is None or axes.get_xticklabels()[0].get_rotation() == rotation


def test_a_reliability_diagram(monkeypatch):
    """With the bins of `test_calibration_by_hand`, whose first and third are empty."""
    found = calibration(np.array([[0.5, 0.5], [0.1, 0.9], [0.0, 1.0]]), np.array([0, 0, 1]), bins=4)
    figure = drawn(monkeypatch, draw_reliability, found, "")
    axes, share = figure.axes
    assert tuple(figure.get_size_inches()) == (6, 5)
    bars = [(bar.get_x(), bar.get_width(), bar.get_height()) for bar in axes.patches]
    assert bars == [(0.25, 0.25, 1), (0.75, 0.25, 0.5)]
    diagonal, measured = (line.get_xydata().tolist() for line in axes.lines)
    assert diagonal == [[0, 0], [1, 1]] and measured == [[0.5, 1], [0.95, 0.5]]
    [rows] = (line.get_xydata() for line in share.lines)
    assert rows.tolist() == [[0, 0], [0.25, 1 / 3], [0.5, 0], [0.75, 2 / 3], [1, 2 / 3]]
    assert share.lines[0].get_drawstyle() == "steps-post"
    assert axes.get_xlim() == axes.get_ylim() == share.get_ylim() == (0, 1)
    assert axes.get_title() == f"Reliability\nexpected calibration error {found.error:.4f}"
    assert axes.get_xlabel() == "probability of the predicted class"
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["perfect calibration", "measured"]

    one_row = calibration(np.array([[0.25, 0.75]]), np.array([1]), bins=2)
    [rows] = drawn(monkeypatch, draw_reliability, one_row, "").axes[1].lines
    assert rows.get_xydata().tolist() == [[0, 0], [0.5, 1], [1, 1]]
