"""The plots of a run: each is there whole, whatever its names hold."""

import pytest

from textmill.trainers.metrics.plots import draw_curve, new_figure, save_figure


@pytest.mark.parametrize("kinds", [[], ["train"], ["train", "evaluation"]])
def test_a_curve_is_a_png(tmp_path, kinds):
    metrics = [{"kind": kind, "step": s, "loss": 9 - s} for kind in kinds for s in range(5)]
    draw_curve(metrics, str(tmp_path / "loss.png"), "a set, $tiny_x$", unit="nats a token")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert [path.name for path in tmp_path.iterdir()] == ["loss.png"]


def test_a_picture_that_cannot_be_drawn_leaves_the_one_before(tmp_path):
    path = tmp_path / "loss.png"
    path.write_bytes(b"before")
    figure, axes = new_figure((2, 2))
    axes.set(title=r"$\nosuchsign$")
    with pytest.raises(ValueError):
        save_figure(figure, str(path))
    assert path.read_bytes() == b"before"
