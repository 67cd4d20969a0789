"""The learning rate over the steps of a run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from textmill.schemas.errors import flag
from textmill.trainers.flags.run_flags import OptimizationFlags


class Schedule:
    """Share of the highest learning rate at each step.

    It rises in a line, stays at 1, and falls to `min_lr_ratio`, which the last step has. If that is
    0, the step after the last one would have it, so that no step is lost. With 4 steps of warm-up
    among 8, and 0:

      linear  1/4, 2/4, 3/4, 1, 4/5, 3/5, 2/5, 1/5
      cosine  1/4, 2/4, 3/4, 1, .905, .655, .345, .095   (Loshchilov and Hutter, arXiv:1608.03983)
      wsd     1/4, 2/4, 3/4, 1, 1, 1, 2/3, 1/3           with 2 --decay_steps

    Warmup-stable-decay is by Hu et al. (MiniCPM, arXiv:2404.06395). Its stable steps do not depend
    on the number of steps: a run that was stopped there may be resumed with more --steps.
    """

    def __init__(self, steps: int, flags: OptimizationFlags):
        """Takes the steps of the run. Warm-up, and the decay of wsd, are a tenth by default."""

        def tenth(given: int | None) -> int:
            return steps // 10 if given is None else given

        self.steps, self._flags = steps, flags
        self.warmup, rest = max(1, tenth(flags.warmup_steps)), steps
        if flags.schedule == "wsd":
            rest = tenth(flags.decay_steps)
        self.decay = max(0, min(rest, steps - self.warmup))
        self._end = steps if flags.min_lr_ratio == 0 else steps - 1  # the step of `min_lr_ratio`

    def notes(self) -> list[str]:
        """A note if the run ends before the highest learning rate."""
        if self.warmup <= self.steps:
            return []
        return [
            f"the warm-up of {self.warmup:,} steps is longer than the run of {self.steps:,}, so "
            f"the learning rate ends at {self(self.steps - 1):.1%} of the highest: give more "
            f"{flag('steps')} or fewer {flag('warmup_steps')}"
        ]

    def __call__(self, done: int) -> float:
        """The share for the step after `done`."""
        return float(self.share(done, np))

    def share(self, done: Any, numpy: Any) -> Any:
        """Like `__call__`, of numbers or arrays of `numpy`: numpy itself or jax.numpy."""
        fall = max(1, self.decay + self._end + 1 - self.steps)
        left = numpy.clip((self._end - done) / float(fall), 0.0, 1.0)
        if self._flags.schedule == "cosine":
            left = numpy.sin(left * (math.pi / 2)) ** 2  # (1 - cos(pi x)) / 2, precise near 0
        end = self._flags.min_lr_ratio
        rise, rest = (done + 1.0) / self.warmup, end + (1.0 - end) * left
        return numpy.where(done < self.warmup, rise, rest)
