"""What a task adds to the loop: its measures, their words, and files. Python 3.8 syntax."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Tuple

from schemas.sidecar import Schema
from trainers.data.batches import Batch
from trainers.run.program import Arrays, Program

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

    def check_same_rows(self, place: str, schema: Schema, trained: Schema) -> None:
        """Refuses rows that mean something else than those a model was trained on.

        Args:
          place: of the rows.
          schema: their contract.
          trained: of the set that the model was trained on.

        Raises:
          UsageError: names what differs.
        """
        return

    @property
    def is_asked(self) -> bool:
        """Whether the flags ask for something that `answer` does."""
        return False

    def answer(self, program: Program, schema: Schema, tokenizer_json: bytes) -> None:
        """Does with a trained model what the flags ask for, such as --predict."""
        return

    def write_files(self, folder: Path) -> None:
        """Writes what people look at of the split measured last; each replaces the one before."""
        return

    def report(self, folder: Path, rows: List[Measures], title: str) -> List[str]:
        """Writes what compares checkpoints, whose measures have their "step"; lines to print."""
        return []
