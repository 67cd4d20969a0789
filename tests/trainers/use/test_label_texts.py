"""The lines of predictions."""

import pytest

from textmill.schemas.errors import DataError, UsageError
from textmill.trainers.run.training_task import Prediction
from textmill.trainers.use.label_texts import write_predictions

LABELS = [Prediction("a\tb", 0.75), Prediction("a\tb", 0.5), Prediction("c\nd", 0.9)]


def test_predictions_are_a_line_each(tmp_path, capsys):
    """A name that holds what separates is written so that a line stays one."""
    write_predictions(iter(LABELS), None)
    due = ["a\\tb\t0.750000", "a\\tb\t0.500000", "c↵d\t0.900000"]
    assert capsys.readouterr().out.split("\n")[:3] == due
    path = tmp_path / "predictions.tsv"
    write_predictions(iter(LABELS), str(path))
    assert path.read_text().splitlines() == due

    def failing():
        yield LABELS[0]
        raise UsageError("no such line")

    with pytest.raises(UsageError):
        write_predictions(failing(), str(path))
    assert path.read_text().splitlines() == due, "the ones before stay"
    assert [*tmp_path.iterdir()] == [path]
    (tmp_path / "out").mkdir()  # where the disk would refuse after some lines
    with pytest.raises(DataError, match="out cannot be written: "):
        write_predictions(iter(LABELS), str(tmp_path / "out"))
    assert not list(tmp_path.glob("out*.*"))
