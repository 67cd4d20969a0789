"""The learning rate: up in a line, down in a line, and never 0 in a step that is made."""

import numpy as np
import pytest

from trainers.run.program import Schedule


def shares(steps, warmup):
    schedule = Schedule(steps, warmup)
    return [schedule(done) for done in range(steps)]


def test_by_hand():
    assert shares(8, 4) == [1 / 4, 2 / 4, 3 / 4, 1, 4 / 5, 3 / 5, 2 / 5, 1 / 5]
    assert shares(4, 0) == [1, 3 / 4, 2 / 4, 1 / 4]
    assert shares(1, None) == [1]
    assert shares(3, 3) == [1 / 3, 2 / 3, 1]
    assert shares(3, 9) == [1 / 9, 2 / 9, 3 / 9], "a run that ends while it warms up"
    assert Schedule(40, None).warmup == 4


@pytest.mark.parametrize("steps", [1, 2, 7, 100])
@pytest.mark.parametrize("warmup", [None, 0, 1, 5, 100])
def test_every_step_has_a_rate_and_one_line_leads_up_and_down(steps, warmup):
    found, top = np.array(shares(steps, warmup)), Schedule(steps, warmup).warmup - 1
    assert (found > 0).all() and (found <= 1).all()
    assert np.allclose(np.diff(found, 2)[: max(0, top - 1)], 0)
    assert np.allclose(np.diff(found[top:], 2), 0)
    assert top >= steps or found[top] == 1
    assert Schedule(steps, warmup)(steps) == 0 or top >= steps, "after the end there is none left"


def test_arrays_of_frameworks_are_taken():
    schedule, done = Schedule(8, 4), np.arange(8)
    found = np.where(done < schedule.warmup, schedule.rise(done), schedule.fall(done))
    assert found.tolist() == shares(8, 4)
