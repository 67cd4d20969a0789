"""What a task adds to the loop: its measures, their words, and files. Python 3.8 syntax."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Tuple

from trainers.data.batches import Batch
from trainers.run.program import Arrays

Measures = Dict[str, float]


class Task(ABC):
    """What is learned, told of a split once a program has run over it.

    Attributes:
      unit: of the loss, on the picture: "nats a masked token".
      counts: what metrics.jsonl calls the weight that a step's loss is the mean over: "masked".
      best_by: the measure that the best weights are chosen by; None keeps none.
    """

    unit: str
    counts: str
    best_by: Optional[str] = None

    @property
    def best_is_highest(self) -> bool:
        """Whether more of it is better: of a loss less is."""
        return self.best_by != "loss"

    @abstractmethod
    def measure(self, found: Iterator[Tuple[Batch, Arrays]]) -> Optional[Measures]:
        """Measures a whole split, `loss` among them; None where nothing in it counts.

        Args:
          found: each batch as the reader gave it, with what `Program.evaluate` said of it.
        """

    @abstractmethod
    def describe(self, measures: Mapping[str, float]) -> str:
        """The measures in a few words: "loss 2.1234, accuracy 51.20%"."""

    def notes(self) -> List[str]:
        """What a user should know before the first step."""
        return []

    def write_files(self, folder: Path) -> None:
        """Writes what people look at of the split measured last; each replaces the one before."""

    def report(self, folder: Path, rows: List[Measures], title: str) -> List[str]:
        """Writes what compares several checkpoints, with their "step"; lines to print."""
        return []
