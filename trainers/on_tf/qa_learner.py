"""What a reader of questions learns, and how its answers are measured: the loop's `Learner`.

Legend: B rows, L tokens a row, T tokens of the longest answer, V vocabulary.
"""

import math
from collections.abc import Iterator

import numpy as np

from schemas.sidecar import Schema
from trainers.data.batches import Batch
from trainers.measures.questions import (
    Question,
    Scoring,
    example_numbers,
    scored,
    write_predictions,
)
from trainers.on_tf.backend import tf
from trainers.on_tf.decoding import answer_prompts
from trainers.on_tf.encoder import Seed
from trainers.on_tf.gpt2 import Gpt2
from trainers.on_tf.step import LOSS, TOKENS, WEIGHT, Tensors

_IDS, _LENGTHS = "answer_ids", "answer_lengths"


class QaLearner:
    """Cross-entropy of the answers' tokens; an evaluation also writes and scores answers.

    Attributes:
      predictions: name of a question to the answer that the last evaluation gave.
    """

    features = ("input_ids", "segment_ids", "loss_weights", "prefix_mask", "prompt_length")
    unit = "nats a token of an answer"

    def __init__(
        self,
        model: Gpt2,
        schema: Schema,
        scoring: Scoring | None = None,
        predictions_path: str | None = None,
    ):
        """Takes a model with its weights filled.

        Args:
          model: that learns.
          schema: of the rows.
          scoring: None: evaluations measure the loss and answer nothing.
          predictions_path: where those of an evaluation go; each replaces the last.
        """
        self.model, self._scoring, self._path = model, scoring, predictions_path
        self._eos = schema.special_ids["eos"]
        self._new_tokens = schema.parameters["max_answer_length"]
        self._prefix = schema.parameters["qa_form"] == "prefix"
        self.best_by, self.best_is_highest = ("f1", True) if scoring else (LOSS, False)
        self.predictions: dict[str, str] = {}

    def logits(self, batch: Tensors, seed: Seed = None) -> tf.Tensor:
        """f32 [B, L, V] of a batch; a seed turns dropout on."""
        return self.model(
            batch["input_ids"], batch["segment_ids"], batch.get("prefix_mask"), seed=seed
        )

    def loss_sums(self, batch: Tensors, seed: Seed) -> Tensors:
        """See `Learner`; "weight" is the number of tokens that are learned."""
        loss_B, correct_B, weight_B = self._rows(batch, seed)
        is_token_BxL = tf.not_equal(tf.cast(batch["segment_ids"], tf.int32), 0)
        return {
            LOSS: tf.reduce_sum(loss_B),
            WEIGHT: tf.reduce_sum(weight_B),
            TOKENS: tf.reduce_sum(tf.cast(is_token_BxL, tf.float32)),
            "accuracy": tf.reduce_sum(correct_B),
        }

    def _rows(self, batch: Tensors, seed: Seed = None) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Each row's sums over the tokens that count: loss, hits, weight; f32 [B]."""
        # The token at a place is predicted from the one before it, which is in its segment: no
        # segment begins with a token that counts.
        logits_BxLxV = self.logits(batch, seed)[:, :-1]
        target_BxL = tf.cast(batch["input_ids"], tf.int32)[:, 1:]
        weight_BxL = tf.cast(batch["loss_weights"], tf.float32)[:, 1:]
        loss_BxL = tf.nn.sparse_softmax_cross_entropy_with_logits(target_BxL, logits_BxLxV)
        best_BxL = tf.argmax(logits_BxLxV, axis=-1, output_type=tf.int32)
        correct_BxL = weight_BxL * tf.cast(best_BxL == target_BxL, tf.float32)
        sums = (weight_BxL * loss_BxL, correct_BxL, weight_BxL)
        loss_B, correct_B, weight_B = (tf.reduce_sum(value, axis=1) for value in sums)
        return loss_B, correct_B, weight_B

    def outputs(self, batch: Tensors) -> Tensors:
        """Each row's loss, and the answer to its prompt."""
        loss_B, correct_B, weight_B = self._rows(batch)
        found = {LOSS: loss_B, "accuracy": correct_B, WEIGHT: weight_B}
        if self._scoring is None:
            return found
        # Every prompt leaves room for the longest answer: that is in the contract.
        length = batch["input_ids"].shape[1]
        answers = answer_prompts(
            self.model,
            tf.cast(batch["input_ids"], tf.int32)[:, : length - self._new_tokens],
            batch["prompt_length"],
            new_tokens=self._new_tokens,
            eos=self._eos,
            prefix=self._prefix,
        )
        return {**found, _IDS: answers.ids_BxT, _LENGTHS: answers.lengths_B}

    def measures(self, outputs: Iterator[tuple[Batch, Batch]]) -> dict[str, float]:
        """Loss and accuracy of the answers' tokens; SQuAD's scores, see `squad_scores`."""
        sums = {name: 0.0 for name in (LOSS, "accuracy", WEIGHT)}
        questions, self.predictions = [], {}
        for batch, found in outputs:
            for name in sums:
                sums[name] += float(np.sum(found[name], dtype=np.float64))
            if self._scoring is not None:
                questions += self._answered(self._scoring, batch, found)
        weight = sums.pop(WEIGHT) or math.nan  # without answers to learn there is no loss
        measures = {name: value / weight for name, value in sums.items()}
        if self._scoring is not None:
            measures.update(scored(questions, self.predictions, self._scoring.version))
            if self._path is not None:
                write_predictions(self._path, self.predictions)
        return measures

    def _answered(self, scoring: Scoring, batch: Batch, found: Batch) -> list[Question]:
        """The questions of a batch; their answers go to the predictions."""
        questions = [scoring.questions[n] for n in example_numbers(batch["example_id"])]
        for question, ids, length in zip(questions, found[_IDS], found[_LENGTHS], strict=True):
            self.predictions[question.name] = scoring.prompts.text(ids[:length].tolist())
        return questions

    def said(self, measures: dict[str, float]) -> str:
        """The measures in a few words."""
        words = [f"loss {measures[LOSS]:.4f}"]
        if "f1" in measures:
            words.append(f"exact match {measures['exact']:.2f}, F1 {measures['f1']:.2f}")
            words.append(f"{measures['total']:,} questions")
        return ", ".join(words)
