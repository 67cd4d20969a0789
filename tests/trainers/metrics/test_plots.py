"""The plots of a run: each is there whole, whatever its names hold."""

import pytest

from textmill.trainers.metrics import plots
from textmill.trainers.metrics.plots import draw_curve, new_figure, save_figure


@pytest.mark.parametrize("kinds", [[], ["train"], ["train", "evaluation"]])
def test_a_curve_is_a_png(tmp_path, kinds):
    metrics = [{"kind": kind, "step": s, "loss": 9 - s} for kind in kinds for s in range(5)]
    draw_curve(metrics, str(tmp_path / "loss.png"), "a set, $tiny_x$", unit="nats a token")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert [path.name for path in tmp_path.iterdir()] == ["loss.png"]


def test_a_curve_of_stages_and_datasets(tmp_path, monkeypatch):
    """A line for each dataset, and one upright between the steps where a stage begins."""
    kept = []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: kept.append(figure))
    metrics = [{"kind": "train", "step": step, "loss": 9.0 - step} for step in range(1, 6)]
    metrics += [
        {"kind": "evaluation", "step": step, "loss": 5.0, "loss/web": 4.0 + step, "loss/math": 6.0}
        for step in (2, 5)
    ]
    draw_curve(metrics, str(tmp_path / "loss.png"), "a set", unit="nats", starts=[2])
    [axes] = kept[0].axes
    drawn = {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines
    }
    assert drawn["web"] == ([2, 5], [6.0, 9.0]) and drawn["math"] == ([2, 5], [6.0, 6.0])
    assert drawn["evaluation"] == ([2, 5], [5.0, 5.0]) and len(drawn["train"][0]) == 5
    assert [2.5, 2.5] in [xs for xs, _ in drawn.values()] and len(axes.lines) == 5


def test_a_picture_that_cannot_be_drawn_leaves_the_one_before(tmp_path):
    path = tmp_path / "loss.png"
    path.write_bytes(b"before")
    figure, axes = new_figure((2, 2))
    axes.set(title=r"$\nosuchsign$")
    with pytest.raises(ValueError):
        save_figure(figure, str(path))
    assert path.read_bytes() == b"before"
