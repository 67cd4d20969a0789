"""The plots of a run: each is there whole, whatever its names hold."""

import pytest

from trainers.metrics.plots import draw_curve, draw_scores, new_figure, save_figure, score_table

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("kinds", [[], ["train"], ["train", "evaluation"]])
def test_a_curve_is_a_png(tmp_path, kinds):
    metrics = [{"kind": kind, "step": s, "loss": 9 - s} for kind in kinds for s in range(5)]
    draw_curve(metrics, str(tmp_path / "loss.png"), "a set, $tiny_x$", unit="nats a token")
    assert (tmp_path / "loss.png").read_bytes().startswith(PNG)
    assert [path.name for path in tmp_path.iterdir()] == ["loss.png"]


def test_a_picture_that_cannot_be_drawn_leaves_the_one_before(tmp_path):
    path = tmp_path / "loss.png"
    path.write_bytes(b"before")
    figure, axes = new_figure((2, 2))
    axes.set(title=r"$\nosuchsign$")
    with pytest.raises(ValueError):
        save_figure(figure, str(path))
    assert path.read_bytes() == b"before"


def test_scores_by_checkpoint(tmp_path):
    found = [
        {"step": 5, "loss": 2.5, "exact": 0.0, "f1": 12.345, "total": 4},
        {"step": 10, "loss": 1.25, "exact": 50.0, "f1": 100.0, "total": 4},
    ]
    assert score_table(found).split("\n") == [
        "step    loss  exact match      F1",
        "   5  2.5000         0.00   12.35",
        "  10  1.2500        50.00  100.00",
    ]
    draw_scores(found, str(tmp_path / "scores.png"), "a $run")
    assert (tmp_path / "scores.png").read_bytes().startswith(PNG)
