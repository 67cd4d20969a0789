"""The interface of tasks to the training loop: how a split's outputs are scored. No framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Dict, Iterator, Mapping, NamedTuple, Sequence, Union

from textmill.schemas.errors import UsageError
from textmill.schemas.format.metadata import Schema
from textmill.trainers.data.batches import Batch, BatchReader
from textmill.trainers.run.tensors import Arrays

Metrics = Dict[str, float]
# A file of texts, or the texts: one, or the two of a pair.
TextsToLabel = Union[str, Sequence[Union[str, Sequence[str]]]]


class Prediction(NamedTuple):
    """The class of a text, and its probability."""

    label: str
    probability: float


class TrainingTask(ABC):
    """Metrics, reports and checks of a task; imports no framework."""

    unit: str  # of the loss, on the plot: "nats a masked token"
    counts: str  # name in metrics.jsonl of what a step's loss is the mean over: "masked"
    best_metric: str | None = None  # the metric that chooses the best weights
    head_share: float = 1.0  # of positions that the model's head computes

    @abstractmethod
    def measure(self, batches: Iterator[tuple[Batch, Arrays]]) -> Metrics | None:
        """Metrics of a whole split, `loss` among them; None if all its loss weights are 0.

        Takes each batch from the reader with the outputs of `Program.evaluate`.
        """

    @abstractmethod
    def describe(self, metrics: Mapping[str, float]) -> str:
        """The metrics as a line: "loss 2.1234, accuracy 51.20%"."""

    def prepare_training(self, shards: BatchReader) -> list[str]:
        """Reads what only training needs from the dataset; returns notes for the user.

        Raises:
          UsageError: the flags do not fit the dataset.
        """
        return []

    def export_notes(self) -> list[str]:
        """Notes on the parts of a model that its export lacks."""
        return []

    def meaning_of(self, schema: Schema) -> dict[str, object]:
        """Properties in which rows must agree with those that a model was trained on."""
        return {}

    def check_same_rows(self, shards: str, schema: Schema, trained: Schema) -> None:
        """Refuses rows that mean something else than those a model was trained on.

        Raises:
          UsageError: names the dataset and what differs.
        """
        of_rows, of_model = self.meaning_of(schema), self.meaning_of(trained)
        differences = [
            f"its {name} is {of_rows[name]!r}, the model's is {of_model[name]!r}"
            for name in of_rows
            if of_rows[name] != of_model[name]
        ]
        if differences:
            raise UsageError(
                f"{shards} does not fit the model: {'; '.join(differences)}. Build it with the "
                "tokenizer and flags of the dataset that the model was trained on"
            )

    def write_files(self, folder: Path) -> None:
        """Writes plots and predictions of the last split; each file replaces the one before."""
        return

    def report(self, folder: Path, rows: list[Metrics], title: str) -> list[str]:
        """Writes a comparison of checkpoints from their metrics and "step"; lines to print."""
        return []
