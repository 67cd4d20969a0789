"""How far a run has come, and the evaluations it owes: those of an unbroken run and no others.

Python 3.8 syntax.
"""

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional


def is_due(step: int, *, every: int, steps: int) -> bool:
    """Whether an unbroken run of so many steps is measured after this one; --stop_after is no end.

    With every=4 and steps=10 these are 4, 8 and 10.
    """
    return step > 0 and (step % every == 0 or step == steps)


def has_evaluation(metrics: List[Dict[str, Any]], step: int) -> bool:
    """Whether lines of metrics.jsonl tell of an evaluation after this step."""
    return any(line["kind"] == "evaluation" and line["step"] == step for line in metrics)


@dataclass
class Progress:
    """What a loop that keeps the best weights remembers besides them; lies in its checkpoints.

    Attributes:
      step: steps done.
      best: the best value of the measure that checkpoints are chosen by.
      best_step: after which it was measured.
      without_better: evaluations since then.
      evaluated: the step of the last evaluation that is counted here.
    """

    step: int = 0
    best: Optional[float] = None
    best_step: Optional[int] = None
    without_better: int = 0
    evaluated: int = 0

    @classmethod
    def of(cls, stored: Mapping[str, Any], metrics: List[Dict[str, Any]], **how: Any) -> "Progress":
        """What a checkpoint holds, and what was evaluated after it was written.

        A signal in an evaluation leaves a checkpoint without it; the resumed run makes it up, and
        only its metrics.jsonl tells that it did.

        Args:
          stored: as `dataclasses.asdict` gave it; older versions did not store `evaluated`.
          metrics: lines of metrics.jsonl.
          how: as `count_line` takes it.
        """
        progress = cls(**{"evaluated": stored["step"], **stored})
        for line in metrics:
            is_new = progress.evaluated < line["step"] <= progress.step
            if line["kind"] == "evaluation" and is_new:
                progress.count(line["step"], line, **how)
        return progress

    def count(
        self, step: int, measures: Mapping[str, Any], *, best_by: str, is_highest: bool
    ) -> bool:
        """Counts an evaluation; whether it is the best so far.

        A measure that is no number, or that a split does not define (an AUC where there is one
        class only), is never better.
        """
        self.evaluated, value = step, measures.get(best_by, math.nan)
        sign = 1 if is_highest else -1
        best = self.best if self.best_step else None  # 0.0 of step 0 in older checkpoints
        if math.isfinite(value) and (best is None or sign * value > sign * best):
            self.best, self.best_step, self.without_better = value, step, 0
            return True
        self.without_better += 1
        return False
