"""The learning rate of every trainer: a linear warm-up, then a linear decay."""

from typing import Any, Optional


class Schedule:
    """Share of the highest rate after so many steps; no step of the run has a rate of 0.

    With 4 steps of warm-up among 8: 1/4, 2/4, 3/4, 1, 4/5, 3/5, 2/5, 1/5.
    """

    def __init__(self, steps: int, warmup_steps: Optional[int]):
        """Takes the steps of the run and of the warm-up; None is a tenth of the run."""
        self.steps = steps
        self.warmup = max(1, steps // 10 if warmup_steps is None else warmup_steps)

    def rise(self, done: Any) -> Any:
        """The share while warming up; numbers and arrays of any framework alike."""
        return (done + 1.0) / self.warmup

    def fall(self, done: Any) -> Any:
        """The share afterwards; below 0 where `done` is beyond the run."""
        return (self.steps - done) / max(1, self.steps + 1 - self.warmup)

    def __call__(self, done: int) -> float:
        """The share for the step after `done`."""
        return self.rise(done) if done < self.warmup else max(0.0, self.fall(done))
