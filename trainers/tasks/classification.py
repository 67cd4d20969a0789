"""Classification: class weights, measures, pictures, predictions of texts. Python 3.8 syntax."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Iterator, List, Literal, Mapping, Optional, Tuple

import numpy as np

from schemas.errors import UsageError
from schemas.sidecar import Schema
from trainers.data.batches import Batch, BatchReader
from trainers.measures import class_scores
from trainers.models.set_tokenizer import open_tokenizer, sets_of
from trainers.run.flags import RunFlags
from trainers.run.program import Arrays, Measures, Program, Task
from trainers.tasks.class_texts import TextRows, read_texts, write_predictions

LABEL, LOGITS = "label", "logits"
_COUNTED = 65_536  # rows that are read at once to count labels
_FORMS = {
    "loss": "loss {:.4f}",
    "accuracy": "accuracy {:.2%}",
    "auc": "AUC {:.4f}",
    "f1": "F1 {:.4f}",
    "ece": "ECE {:.4f}",
}


@dataclass(frozen=True)
class ClassificationFlags(RunFlags):
    """What classes weigh, and what is classified with a run."""

    task: ClassVar[str] = "classification"
    same_settings: ClassVar[Tuple[str, ...]] = (*RunFlags.same_settings, "class_weights")

    class_weights: str = "none"
    """Weight of each class in the loss: none, balanced, or one number a class as in 1,2.5."""
    best_by: Literal["accuracy", "auc", "f1", "loss", "none"] = "accuracy"
    """What the best weights, kept besides the newest, are best in on the validation split."""
    predict: Optional[str] = None
    """Do not train: classify the texts of this file (JSON Lines by .jsonl, else lines; a pair's two
    with a tab between) with the run in --output; a line of label, tab, probability for each."""
    predictions: Optional[str] = None
    """Where the lines of --predict go. None: standard output."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        super().__post_init__()
        if self.predictions is not None and self.predict is None:
            raise UsageError(f"--predictions={self.predictions} needs --predict=FILE")

    @property
    def uses_run(self) -> bool:
        """Whether something is asked of a run that can be done without a set."""
        return super().uses_run or self.predict is not None

    @property
    def trains(self) -> bool:
        """Whether there is anything to train."""
        return super().trains and self.predict is None


class ClassificationTask(Task):
    """Cross-entropy of the `classes`, with `weights` for each."""

    unit, counts = "nats a row", "weight"

    def __init__(
        self, flags: ClassificationFlags, schema: Schema, shards: Optional[BatchReader] = None
    ):
        """Weighs the classes by the rows of the training split, where there is one.

        Raises:
          UsageError: --class_weights does not go with the classes.
        """
        self.classes = tuple(schema.parameters["classes"])
        self.best_by = None if flags.best_by == "none" else flags.best_by
        self._predict, self._predictions = flags.predict, flags.predictions
        self.weights, self._notes = [1.0] * len(self.classes), []
        if flags.trains and shards is not None:
            counts = count_labels(shards, flags.train_split)
            try:
                self.weights = class_scores.class_weights(flags.class_weights, counts)
            except ValueError as error:
                raise UsageError(
                    f"--class_weights={flags.class_weights}: {error} (the classes are "
                    f"{', '.join(self.classes)})"
                ) from error
            self._notes = [
                f"{name}: {count:,} training rows, weight {weight:.4g}"
                for name, count, weight in zip(self.classes, counts, self.weights)
            ]

    def notes(self) -> List[str]:
        """Rows and weight of each class."""
        return self._notes

    def check_same_rows(self, place: str, schema: Schema, trained: Schema) -> None:
        """Classes, tokenizer and features are the same; raises as `Task.check_same_rows`."""
        of_rows, of_model = (
            {
                "classes": found.parameters["classes"],
                "tokenizer": found.tokenizer_sha256,
                "features": [feature.name for feature in found.features],
            }
            for found in (schema, trained)
        )
        differing = [
            f"its {name} is {of_rows[name]!r}, the model's {of_model[name]!r}"
            for name in of_rows
            if of_rows[name] != of_model[name]
        ]
        if differing:
            raise UsageError(
                f"{place} does not go with the model: {'; '.join(differing)}. Build it as the set "
                "that the model was trained on"
            )

    @property
    def is_asked(self) -> bool:
        """Whether there are texts to classify."""
        return self._predict is not None

    def answer(self, program: Program, schema: Schema, tokenizer_json: bytes) -> None:
        """Writes a line of label and probability for each text of --predict, as they come."""
        assert self._predict is not None
        maker = TextRows(schema, open_tokenizer(tokenizer_json))
        batches = maker.batches(read_texts(self._predict, schema), program.evaluation_rows)
        found = ((rows, program.evaluate(program.place(rows))()) for rows in batches)
        logits = (outputs[LOGITS][rows["row_weights"] == 1] for rows, outputs in found)
        write_predictions(logits, self.classes, self._predictions)

    def measure(self, found: Iterator[Tuple[Batch, Arrays]]) -> Optional[Measures]:
        """Of all rows alike, whatever the class weights; see `class_measures`."""
        logits, labels = [np.zeros((0, len(self.classes)))], [np.zeros(0, np.int64)]
        for batch, outputs in found:
            is_real = batch["row_weights"] == 1
            logits.append(outputs[LOGITS][is_real])
            labels.append(batch[LABEL][is_real])
        self._logits_BxC, self._label_B = np.concatenate(logits), np.concatenate(labels)
        self._measures = class_scores.class_measures(self._logits_BxC, self._label_B)
        return self._measures

    def describe(self, measures: Mapping[str, float]) -> str:
        """The measures in a few words."""
        return ", ".join(form.format(measures[n]) for n, form in _FORMS.items() if n in measures)

    def write_files(self, folder: Path) -> None:
        """Draws confusion.png and reliability.png, where all logits are finite."""
        if "accuracy" not in self._measures:
            return
        chosen_B, classes = self._logits_BxC.argmax(axis=1), len(self.classes)
        confusion = class_scores.confusion_matrix(chosen_B, self._label_B, classes)
        title = f"accuracy {self._measures['accuracy']:.2%} of {len(self._label_B):,} rows"
        class_scores.draw_confusion(confusion, self.classes, str(folder / "confusion.png"), title)
        probability_BxC = class_scores.probabilities(self._logits_BxC)
        bins = class_scores.calibration(probability_BxC, self._label_B)
        class_scores.draw_reliability(bins, str(folder / "reliability.png"), "Reliability")


def count_labels(shards: BatchReader, split: str) -> List[int]:
    """Rows of each class in a split: as stats.json counts them, or all read once."""
    names, rows = shards.schema.parameters["classes"], shards.rows(split)
    stats = [part.stats.split(split) for part in sets_of(shards) if split in part.splits]
    told = [sum(part.labels.get(name, 0) for part in stats) for name in names]
    if sum(told) == rows:  # of a mixture too, whose rows are those of its sets
        return told
    counts = np.zeros(len(names), np.int64)
    for start in range(0, rows, _COUNTED):
        indices = np.arange(start, min(start + _COUNTED, rows))
        counts += np.bincount(shards.read(split, indices)[LABEL], minlength=len(names))
    return counts.tolist()
