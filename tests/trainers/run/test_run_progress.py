"""Which evaluations a run has: those of an unbroken one, whatever stopped it and where."""

import math
from dataclasses import asdict

import pytest

from trainers.run.checkpoints import Progress
from trainers.run.program import Task


class Measured(Task):
    """A task of which only the measure that counts is known."""

    unit, counts = "nats", "weight"

    def __init__(self, best_by):
        self.best_by = best_by

    def measure(self, found):
        return None

    def describe(self, metrics):
        return ""


BY_F1, BY_LOSS, BY_NOTHING = Measured("f1"), Measured("loss"), Measured(None)


def line(step, **metrics):
    return {"kind": "evaluation", "step": step, **metrics}


def test_the_best_by_hand():
    progress = Progress()
    found = [0.5, math.nan, 0.5, 0.75, 0.6]
    better = [progress.count(step, line(step, f1=f1), BY_F1) for step, f1 in enumerate(found, 1)]
    assert better == [True, False, False, True, False]
    assert asdict(progress) == {
        "step": 0,
        "best": 0.75,
        "best_step": 4,
        "without_better": 1,
        "evaluated": 5,
    }
    assert not progress.count(6, {}, BY_F1), "a measure that the split does not define"
    assert not progress.count(7, {"f1": math.inf}, BY_F1)
    lowest = Progress()
    better = [lowest.count(n, line(n, loss=v), BY_LOSS) for n, v in enumerate([2.0, 3.0, 1.0], 1)]
    assert better == [True, False, True]
    assert (lowest.best, lowest.best_step) == (1.0, 3)


def test_without_a_measure_to_choose_by_nothing_is_best():
    progress = Progress()
    assert not progress.count(4, line(4, loss=1.0), BY_NOTHING)
    assert asdict(progress) == asdict(Progress(evaluated=4))


@pytest.mark.parametrize("evaluated", [4, 8])
def test_what_was_made_up_after_a_checkpoint_counts_once(evaluated):
    """That of step 8 was interrupted, and made up by a run that was killed before step 12."""
    progress = Progress(step=8)
    progress.count(4, line(4, f1=0.5), BY_F1)
    if evaluated == 8:
        progress.count(8, line(8, f1=0.25), BY_F1)
    trained = {"kind": "train", "step": 8, "loss": 1.0, "f1": 9.0}
    metrics = [line(4, f1=0.5), trained, line(8, f1=0.25), line(12, f1=0.9)]
    progress.update(metrics, BY_F1)
    assert asdict(progress) == {
        "step": 8,
        "best": 0.5,
        "best_step": 4,
        "without_better": 1,
        "evaluated": 8,
    }
