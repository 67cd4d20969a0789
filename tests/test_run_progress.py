"""Which evaluations a run has: those of an unbroken one, whatever stopped it and where."""

import math
from dataclasses import asdict

import pytest

from trainers.run.progress import Progress, has_evaluation, is_due

BY_F1 = {"best_by": "f1", "is_highest": True}


def test_a_run_is_measured_every_so_often_and_at_its_end():
    assert [step for step in range(11) if is_due(step, every=4, steps=10)] == [4, 8, 10]


def line(step, **measures):
    return {"kind": "evaluation", "step": step, **measures}


def test_the_best_by_hand():
    progress = Progress()
    found = [0.5, math.nan, 0.5, 0.75, 0.6]
    better = [progress.count(step, line(step, f1=f1), **BY_F1) for step, f1 in enumerate(found, 1)]
    assert better == [True, False, False, True, False]
    assert asdict(progress) == {
        "step": 0,
        "best": 0.75,
        "best_step": 4,
        "without_better": 1,
        "evaluated": 5,
    }
    assert not progress.count(6, {}, **BY_F1), "a measure that the split does not define"
    lowest = Progress()
    by_loss = {"best_by": "loss", "is_highest": False}
    better = [lowest.count(n, line(n, loss=v), **by_loss) for n, v in enumerate([2.0, 3.0, 1.0], 1)]
    assert better == [True, False, True]
    assert (lowest.best, lowest.best_step) == (1.0, 3)


@pytest.mark.parametrize("evaluated", [4, 8])
def test_what_was_made_up_after_a_checkpoint_counts_once(evaluated):
    """That of step 8 was interrupted, and made up by a run that was killed before step 12."""
    stored = Progress(step=8)
    stored.count(4, line(4, f1=0.5), **BY_F1)
    if evaluated == 8:
        stored.count(8, line(8, f1=0.25), **BY_F1)
    metrics = [line(4, f1=0.5), line(8, f1=0.25), line(12, f1=0.9)]
    progress = Progress.of(asdict(stored), metrics, **BY_F1)
    assert asdict(progress) == {
        "step": 8,
        "best": 0.5,
        "best_step": 4,
        "without_better": 1,
        "evaluated": 8,
    }


def test_checkpoints_of_older_versions_had_counted_all():
    stored = {"step": 8, "best_step": 0, "best": 0.0, "without_better": 2}  # PopTorch's, without
    progress = Progress.of(stored, [line(8, f1=0.25)], **BY_F1)
    assert (progress.without_better, progress.evaluated) == (2, 8)
    assert progress.count(12, line(12, f1=-1.0), **BY_F1)


def test_lines_tell_what_was_evaluated():
    metrics = [{"kind": "train", "step": 8}, line(4)]
    assert has_evaluation(metrics, 4) and not has_evaluation(metrics, 8)
