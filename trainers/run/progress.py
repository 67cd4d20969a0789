"""How far a run is: its steps, and the best evaluation so far."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, Iterable, Mapping


@dataclass
class Progress:
    """The part of a checkpoint that is neither weights nor optimizer."""

    step: int = 0  # steps done
    best: float | None = None  # best value of --best_metric
    best_step: int | None = None  # its step
    without_better: int = 0  # evaluations since then that brought no improvement
    best_loss: float | None = None  # the loss of that evaluation; older runs have none
    evaluated: int = 0  # the step of the last evaluation

    def __post_init__(self) -> None:
        """Refuses impossible values with a ValueError."""
        for name in ("step", "best_step", "without_better", "evaluated"):
            count = getattr(self, name)
            if (type(count) is not int or count < 0) and (name, count) != ("best_step", None):
                raise ValueError(f"{name} is {count!r:.50}, and must be a number from 0")
        for name in ("best", "best_loss"):
            value = getattr(self, name)
            if value is not None and type(value) not in (int, float):
                raise ValueError(f"{name} is {value!r:.50}, and must be a number or null")

    def update(self, metrics: Iterable[Mapping[str, Any]], best_metric: str | None) -> None:
        """Counts the evaluations in metrics.jsonl since that of the checkpoint.

        A signal during an evaluation leaves a checkpoint without it. The resumed run repeats the
        evaluation and records it only in metrics.jsonl.
        """
        for line in metrics:
            is_new = self.evaluated < line["step"] <= self.step
            if line["kind"] == "evaluation" and is_new:
                self.count(line["step"], line, best_metric)

    def count(self, step: int, metrics: Mapping[str, Any], best_metric: str | None) -> bool:
        """Counts an evaluation; returns whether it is the best so far.

        The lowest loss is best, and the highest value of other metrics. If values are equal, the
        lower loss is better. If losses are equal, too, the later step is kept, which is not an
        improvement for --patience. NaN and a metric that the split does not define (AUC with one
        class) are never better. Without a metric none is best.
        """
        self.evaluated = step
        if best_metric is None:
            return False
        value, sign = metrics.get(best_metric, math.nan), -1 if best_metric == "loss" else 1
        loss = metrics.get("loss", math.nan)
        found = _rank(sign, value, loss)
        before = None if self.best is None else _rank(sign, self.best, self.best_loss)
        is_better = math.isfinite(value) and (before is None or found > before)
        self.without_better = 0 if is_better else self.without_better + 1
        if not is_better and found != before:
            return False
        self.best, self.best_step = value, step
        self.best_loss = loss if math.isfinite(loss) else None
        return True

    def forget_best(self) -> None:
        """Makes the next evaluation the best."""
        self.best = self.best_step = self.best_loss = None


def _rank(sign: int, value: float, loss: float | None) -> tuple[float, float]:
    """Sorts evaluations by a metric, then by falling loss; an unknown loss is the highest."""
    return sign * value, -loss if loss is not None and math.isfinite(loss) else -sys.float_info.max
