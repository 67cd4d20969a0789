"""The learning rate: a line up, then a line, a cosine or a plateau; above 0 in every step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from textmill.schemas.errors import UsageError, as_flags
from textmill.trainers.flags.run_flags import OptimizationFlags
from textmill.trainers.on_flax.optimizers import learning_rate
from textmill.trainers.run.schedule import Schedule

SCHEDULES = ("linear", "cosine", "wsd")


def shares(steps, warmup=None, **flags):
    schedule = Schedule(steps, OptimizationFlags(warmup_steps=warmup, **flags))
    return [schedule(done) for done in range(steps)]


def test_a_linear_schedule_by_hand():
    assert shares(8, 4) == [1 / 4, 2 / 4, 3 / 4, 1, 4 / 5, 3 / 5, 2 / 5, 1 / 5]
    assert shares(4, 0) == [1, 3 / 4, 2 / 4, 1 / 4]
    assert shares(8, 4, min_lr_ratio=0.2) == pytest.approx(
        [1 / 4, 2 / 4, 3 / 4, 1, 0.8, 0.6, 0.4, 0.2]
    )
    assert shares(1) == shares(1, min_lr_ratio=0.5) == [1]
    assert shares(3, 3) == [1 / 3, 2 / 3, 1]
    assert shares(3, 9) == [1 / 9, 2 / 9, 3 / 9], "a run that ends while it warms up"
    assert Schedule(40, OptimizationFlags()).warmup == 4


def test_wsd_by_hand():
    wsd = {"schedule": "wsd", "decay_steps": 2}
    assert shares(8, 4, **wsd) == [1 / 4, 2 / 4, 3 / 4, 1, 1, 1, 2 / 3, 1 / 3]
    assert shares(6, 1, **wsd, min_lr_ratio=0.25) == [1, 1, 1, 1, 0.625, 0.25]
    assert shares(4, 1, schedule="wsd", decay_steps=0) == [1, 1, 1, 1]
    assert shares(4, 2, schedule="wsd", decay_steps=9) == [1 / 2, 1, 2 / 3, 1 / 3]
    assert Schedule(40, OptimizationFlags(schedule="wsd")).decay == 4


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_last_step_has_the_final_rate(schedule):
    for steps in (2, 7, 100):
        found = shares(steps, 1, schedule=schedule, min_lr_ratio=0.1)
        assert found[-1] == pytest.approx(0.1) and min(found[:-1]) > 0.1


def test_a_warm_up_longer_than_the_run_is_noted():
    assert Schedule(10, OptimizationFlags(warmup_steps=10)).notes() == []
    [note] = Schedule(10, OptimizationFlags(warmup_steps=10_000)).notes()
    due = "the warm-up of 10,000 steps is longer than the run of 10, so the learning rate ends at "
    assert note.startswith(f"{due}0.1% of") and "fewer --warmup_steps" in as_flags(note)


def reference(steps, warmup, schedule, final, decay):
    """The rates of the papers in float64; `x` is the share of the fall that is done."""
    done = np.arange(steps, dtype=np.float64)
    warmup = max(1, warmup)
    fall = max(0, steps - warmup) if schedule != "wsd" else max(0, min(decay, steps - warmup))
    late = final == 0  # the step after the last one has it
    x = np.clip((done - (steps - fall - 1)) / max(1, fall + late), 0, 1)
    left = (1 + np.cos(np.pi * x)) / 2 if schedule == "cosine" else 1 - x
    return np.where(done < warmup, (done + 1) / warmup, final + (1 - final) * left)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("final", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(
    "steps, warmup, decay", [(1, 0, 0), (7, 2, 3), (50, 60, 5), (1000, 100, 9)]
)
def test_schedules_are_those_of_their_papers(schedule, final, steps, warmup, decay):
    flags = {"schedule": schedule, "min_lr_ratio": final}
    if schedule == "wsd":
        flags["decay_steps"] = decay
    due = reference(steps, warmup, schedule, final, decay)
    found = np.array(shares(steps, warmup, **flags))
    np.testing.assert_allclose(found, due, rtol=1e-9, atol=1e-15)
    assert (found > 0).all() and (found <= 1).all()
    end = Schedule(steps, OptimizationFlags(warmup_steps=warmup, **flags))
    after = max(steps, warmup)
    assert end(after) == end(after + 5) == final, "what comes after the end is lowest"
    rate = jax.jit(learning_rate(OptimizationFlags(warmup_steps=warmup, **flags), steps))
    on_device = np.array([rate(jnp.uint32(done)) for done in range(steps)])
    assert on_device.dtype == np.float32
    np.testing.assert_allclose(on_device, 5e-5 * due, rtol=1e-6)


def test_a_cosine_is_precise_at_the_end_of_a_million_steps():
    flags, steps = OptimizationFlags(warmup_steps=1, schedule="cosine"), 10**6
    due = 5e-5 * float(np.sin(np.pi / 2 / steps) ** 2)
    assert float(learning_rate(flags, steps)(steps - 1)) == pytest.approx(due, rel=1e-6)


@pytest.mark.parametrize(
    "flags, message",
    [
        ({"min_lr_ratio": 1.5}, "--min_lr_ratio=1.5: must be a share, from 0 to 1"),
        ({"min_lr_ratio": float("nan")}, "--min_lr_ratio=nan"),
        ({"decay_steps": 5}, "--decay_steps=5 needs --schedule=wsd"),
        ({"schedule": "wsd", "decay_steps": -1}, "--decay_steps=-1: must be at least 0"),
    ],
)
def test_schedule_flags_that_are_refused(flags, message):
    with pytest.raises(UsageError, match=message):
        OptimizationFlags(**flags)
