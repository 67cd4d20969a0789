"""What a classifier learns, and how it is measured: the loop's `Learner`.

Legend: B rows, L tokens a row, C classes.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from trainers.data.batches import Batch, BatchReader
from trainers.measures.class_pictures import draw_confusion, draw_reliability
from trainers.measures.class_scores import (
    calibration,
    class_measures,
    confusion_matrix,
    probabilities,
)
from trainers.models.set_tokenizer import sets_of
from trainers.on_tf.backend import tf
from trainers.on_tf.encoder import Encoder, Seed
from trainers.on_tf.step import LOSS, TOKENS, WEIGHT, Tensors

FEATURES = ("input_ids", "segment_ids", "token_type_ids")
LABEL, LOGITS = "label", "logits"
_COUNTED = 65_536  # rows that are read at once to count labels
_SAID = {"accuracy": "accuracy", "auc": "AUC", "f1": "F1", "ece": "ECE"}


class Classifier:
    """Cross-entropy of the classes, with a weight for each."""

    features = (*FEATURES, LABEL)
    unit = "nats a row"

    def __init__(
        self,
        model: Encoder,
        class_weights: Sequence[float],
        *,
        best_by: str = "accuracy",
        pictures: Path | None = None,
    ):
        """Takes a model with its weights filled.

        Args:
          model: the encoder.
          class_weights: one a class.
          best_by: the measure that the best checkpoint is chosen by.
          pictures: where those of an evaluation go; each replaces the last. None draws none.
        """
        self.model, self.pictures = model, pictures
        self._class_weights = list(class_weights)
        self.best_by, self.best_is_highest = best_by, best_by != "loss"

    def logits(self, batch: Tensors, seed: Seed = None) -> tf.Tensor:
        """f32 [B, C] of a batch; a seed turns dropout on."""
        return self.model(
            batch["input_ids"], batch["segment_ids"], batch.get("token_type_ids"), seed=seed
        )

    def loss_sums(self, batch: Tensors, seed: Seed) -> Tensors:
        """See `Learner`; "weight" is the sum of the rows' class weights."""
        label_B = tf.cast(batch[LABEL], tf.int32)
        logits_BxC = self.logits(batch, seed)
        weight_B = tf.gather(tf.constant(self._class_weights, tf.float32), label_B)
        loss_B = tf.nn.sparse_softmax_cross_entropy_with_logits(label_B, logits_BxC)
        is_right_B = tf.equal(tf.argmax(logits_BxC, axis=1, output_type=tf.int32), label_B)
        is_token_BxL = tf.not_equal(tf.cast(batch["segment_ids"], tf.int32), 0)
        return {
            LOSS: tf.reduce_sum(weight_B * loss_B),
            WEIGHT: tf.reduce_sum(weight_B),
            TOKENS: tf.reduce_sum(tf.cast(is_token_BxL, tf.float32)),
            "accuracy": tf.reduce_sum(weight_B * tf.cast(is_right_B, tf.float32)),
        }

    def outputs(self, batch: Tensors) -> Tensors:
        """The logits of each row."""
        return {LOGITS: self.logits(batch)}

    def measures(self, outputs: Iterator[tuple[Batch, Batch]]) -> dict[str, float]:
        """Of all rows alike, whatever the class weights; see `class_measures`. Draws pictures."""
        pairs = [(found[LOGITS], batch[LABEL]) for batch, found in outputs]
        classes = len(self._class_weights)
        logits_BxC = np.concatenate([logits for logits, _ in pairs] or [np.zeros((0, classes))])
        label_B = np.concatenate([label for _, label in pairs] or [np.zeros(0, np.int64)])
        measures = class_measures(logits_BxC, label_B)
        if self.pictures is not None and "accuracy" in measures:
            names = self.model.sizes.classes
            confusion = confusion_matrix(logits_BxC.argmax(axis=1), label_B, classes)
            title = f"accuracy {measures['accuracy']:.2%} of {len(label_B):,} rows"
            draw_confusion(confusion, names, str(self.pictures / "confusion.png"), title)
            found = calibration(probabilities(logits_BxC), label_B)
            draw_reliability(found, str(self.pictures / "reliability.png"), "Reliability")
        return measures

    def said(self, measures: dict[str, float]) -> str:
        """The measures in a few words."""
        words = [f"loss {measures['loss']:.4f}"]
        for name, called in _SAID.items():
            if name in measures:
                form = ".2%" if name == "accuracy" else ".4f"
                words.append(f"{called} {measures[name]:{form}}")
        return ", ".join(words)


def label_counts(shards: BatchReader, split: str) -> list[int]:
    """Rows of each class in a split: as stats.json counts them, or all read once."""
    names, rows = shards.schema.parameters["classes"], shards.rows(split)
    stats = [part.stats.split(split) for part in sets_of(shards) if split in part.splits]
    told = [sum(part.labels.get(name, 0) for part in stats) for name in names]
    if sum(told) == rows:  # of a mixture too, whose rows are those of its sets
        return told
    counts, classes = np.zeros(len(names), np.int64), len(names)
    for start in range(0, rows, _COUNTED):
        indices = np.arange(start, min(start + _COUNTED, rows))
        counts += np.bincount(shards.read(split, indices)[LABEL], minlength=classes)
    return counts.tolist()
