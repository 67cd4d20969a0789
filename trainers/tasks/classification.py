"""Classification: class weights, metrics, plots, and labels for texts. Python 3.8 syntax."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, Mapping, Sequence

import numpy as np

from textmill.schemas.errors import UsageError, flag
from textmill.schemas.format.metadata import Schema
from textmill.trainers.data.batches import Batch, BatchReader
from textmill.trainers.data.mixture import Mixture
from textmill.trainers.flags.run_flags import RunFlags
from textmill.trainers.flags.task_flags import ClassificationFlags
from textmill.trainers.metrics import class_scores
from textmill.trainers.metrics.class_scores import probabilities
from textmill.trainers.models.set_tokenizer import open_tokenizer, sets_of
from textmill.trainers.run.program import Program
from textmill.trainers.run.tensors import Arrays
from textmill.trainers.run.training_task import Metrics, Prediction, TextsToLabel, TrainingTask
from textmill.trainers.tasks.text_rows import TextRows, read_texts

LABEL, LOGITS, ROW_WEIGHTS = "label", "logits", "row_weights"
_ROWS_PER_READ = 65_536  # to count labels
_FORMS = {
    "loss": "loss {:.4f}",
    "accuracy": "accuracy {:.2%}",
    "auc": "AUC {:.4f}",
    "f1": "F1 {:.4f}",
    "ece": "ECE {:.4f}",
}


class ClassificationTask(TrainingTask):
    """Cross-entropy over `classes`, each with its weight from `weights` in training."""

    unit, counts = "nats a row", "weight"

    def __init__(self, flags: RunFlags, schema: Schema, shards: BatchReader | None = None):
        task = flags.task
        assert isinstance(task, ClassificationFlags)
        self.classes, self.best_metric = tuple(schema.parameters["classes"]), task.measure
        self._split, self._class_weights = flags.data.train_split, task.class_weights
        self._flags = flags
        self.weights = [1.0] * len(self.classes)
        self.head_share = 1 / schema.max_length

    def prepare_training(self, shards: BatchReader) -> list[str]:
        """Sets the weights of the classes; a line for each, with its rows in the training split."""
        counts = count_labels(shards, self._split)
        try:
            seen = _counts_as_read(shards, self._split, counts, self._flags)
            self.weights = class_scores.class_weights(self._class_weights, seen)
        except ValueError as error:
            raise UsageError(
                f"{flag('class_weights', self._class_weights)}: {error} (classes: "
                f"{', '.join(self.classes)})"
            ) from error
        return [
            f"{name}: {count:,} training rows, weight {weight:.4g}"
            for name, count, weight in zip(self.classes, counts, self.weights)
        ]

    def meaning_of(self, schema: Schema) -> dict[str, object]:
        """Classes, tokenizer and features."""
        return {
            "classes": schema.parameters["classes"],
            "tokenizer": schema.tokenizer_sha256,
            "features": [feature.name for feature in schema.features],
        }

    def predict(
        self, program: Program, schema: Schema, tokenizer_json: bytes, texts: TextsToLabel
    ) -> Iterator[Prediction]:
        """The likeliest class of each text, and its probability."""
        rows_of = TextRows(schema, open_tokenizer(tokenizer_json))
        for rows in rows_of.batches(read_texts(texts, schema), program.evaluation_rows):
            outputs = program.evaluate(program.put(rows))()
            for row_C in probabilities(outputs[LOGITS][rows[ROW_WEIGHTS] == 1]):
                yield Prediction(self.classes[row_C.argmax()], float(row_C.max()))

    def measure(self, batches: Iterator[tuple[Batch, Arrays]]) -> Metrics | None:
        """Metrics of all rows with equal weight; see `class_metrics`."""
        logits, labels = [np.zeros((0, len(self.classes)))], [np.zeros(0, np.int64)]
        for batch, outputs in batches:
            rows = {**batch, **outputs}  # outputs of all processes, with their labels
            is_real = rows[ROW_WEIGHTS] == 1
            logits.append(rows[LOGITS][is_real])
            labels.append(rows[LABEL][is_real])
        self._logits_BxC, self._label_B = np.concatenate(logits), np.concatenate(labels)
        self._metrics = class_scores.class_metrics(self._logits_BxC, self._label_B)
        return self._metrics

    def describe(self, metrics: Mapping[str, float]) -> str:
        """The metrics as a line."""
        return ", ".join(form.format(metrics[n]) for n, form in _FORMS.items() if n in metrics)

    def write_files(self, folder: Path) -> None:
        """Draws confusion.png and reliability.png if all logits are finite."""
        if "accuracy" not in self._metrics:
            return
        chosen_B, classes = self._logits_BxC.argmax(axis=1), len(self.classes)
        confusion = class_scores.confusion_matrix(chosen_B, self._label_B, classes)
        title = f"accuracy {self._metrics['accuracy']:.2%} of {len(self._label_B):,} rows"
        class_scores.draw_confusion(confusion, self.classes, str(folder / "confusion.png"), title)
        bins = class_scores.calibration(probabilities(self._logits_BxC), self._label_B)
        class_scores.draw_reliability(bins, str(folder / "reliability.png"))


def count_labels(shards: BatchReader, split: str) -> list[int]:
    """Rows of each class in a split: from stats.json if its counts add up, else from the rows."""
    names, rows = shards.schema.parameters["classes"], shards.rows(split)
    stats = [part.stats.split(split) for part in sets_of(shards) if split in part.splits]
    counts = [sum(part.labels.get(name, 0) for part in stats) for name in names]
    if sum(counts) == rows:
        return counts
    counts = np.zeros(len(names), np.int64)
    for start in range(0, rows, _ROWS_PER_READ):
        indices = np.arange(start, min(start + _ROWS_PER_READ, rows))
        counts += np.bincount(shards.read(split, indices)[LABEL], minlength=len(names))
    return counts.tolist()


def _counts_as_read(
    shards: BatchReader, split: str, counts: list[int], flags: RunFlags
) -> Sequence[float]:
    """The counts as training reads the rows: by the shares of a mixture, in the same sum."""
    if not isinstance(shards, Mixture):
        return counts
    rows = flags.plan_steps(shards) * flags.compute.batch_size
    shares = [
        share * np.array(count_labels(part, split)) / part.rows(split)
        for part, share in zip(shards.parts, shards.row_shares(split, rows))
        if share
    ]
    return (shards.rows(split) * np.sum(shares, axis=0)).tolist()
