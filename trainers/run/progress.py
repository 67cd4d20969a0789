"""How far a run has come, and the evaluations it owes: those of an unbroken run and no others."""

import math
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Optional

from trainers.run.program import Task


def is_due(step: int, *, every: int, steps: int) -> bool:
    """Whether an unbroken run of so many steps is measured after this one; --stop_after is no end.

    With every=4 and steps=10 these are 4, 8 and 10.
    """
    return step > 0 and (step % every == 0 or step == steps)


@dataclass
class Progress:
    """What a run remembers besides its weights; lies in its checkpoints."""

    step: int = 0  # steps done
    best: Optional[float] = None  # value of the measure that weights are chosen by
    best_step: Optional[int] = None  # after which it was measured
    without_better: int = 0  # evaluations since then
    evaluated: int = 0  # the step of the last evaluation that is counted here

    def __post_init__(self) -> None:
        """Refuses with a ValueError what no run counts to."""
        for name in ("step", "best_step", "without_better", "evaluated"):
            count = getattr(self, name)
            if (type(count) is not int or count < 0) and (name, count) != ("best_step", None):
                raise ValueError(f"{name} is {count!r:.50}, and must be a number from 0")
        if self.best is not None and type(self.best) not in (int, float):
            raise ValueError(f"best is {self.best!r:.50}, and must be a number or null")

    @classmethod
    def resumed(
        cls, stored: Mapping[str, Any], metrics: Iterable[Mapping[str, Any]], task: Task
    ) -> "Progress":
        """What a checkpoint holds, and what was evaluated after it was written.

        A signal in an evaluation leaves a checkpoint without it; the resumed run makes it up, and
        only the lines of its metrics.jsonl tell that it did.
        """
        progress = cls(**stored)
        for line in metrics:
            is_new = progress.evaluated < line["step"] <= progress.step
            if line["kind"] == "evaluation" and is_new:
                progress.count(line["step"], line, task)
        return progress

    def count(self, step: int, measures: Mapping[str, Any], task: Task) -> bool:
        """Counts an evaluation; whether it is the best so far.

        A measure that is no number, or that a split does not define (an AUC where there is one
        class only), is never better.
        """
        self.evaluated = step
        if task.best_by is None:
            return False
        value, sign = measures.get(task.best_by, math.nan), 1 if task.best_is_highest else -1
        if math.isfinite(value) and (self.best is None or sign * value > sign * self.best):
            self.best, self.best_step, self.without_better = value, step, 0
            return True
        self.without_better += 1
        return False
