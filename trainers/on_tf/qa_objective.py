"""What a reader of questions learns and answers on a device, and as a SavedModel.

Legend: B rows, L tokens a row, V vocabulary.
"""

from typing import Any

from schemas.sidecar import Schema
from trainers.models.model_config import ModelConfig
from trainers.on_tf.backend import tf
from trainers.on_tf.decoding import answer_prompts
from trainers.on_tf.tf_decoder import Decoder
from trainers.on_tf.tf_layers import Seed, Tensors
from trainers.on_tf.tf_program import Sums, TfObjective
from trainers.tasks.language import CORRECT, COUNTED, LOSS


class QaObjective(TfObjective):
    """Cross-entropy of the answers' tokens; evaluations also answer."""

    features = ("input_ids", "segment_ids", "loss_weights", "prefix_mask", "prompt_length")

    def __init__(self, config: ModelConfig, schema: Schema, *, answers: bool):
        """Makes the model; under a strategy call it in its scope.

        Args:
          config: of the model.
          schema: of the rows.
          answers: whether evaluations answer the questions.
        """
        self.model, self._schema, self._answers = Decoder(config), schema, answers

    def logits(self, batch: Tensors, seed: Seed = None) -> tf.Tensor:
        """f32 [B, L, V] of a batch; a seed turns dropout on."""
        return self.model(
            batch["input_ids"], batch["segment_ids"], batch.get("prefix_mask"), seed=seed
        )

    def sums(self, batch: Tensors, seed: Seed) -> Sums:
        """Tokens of answers count."""
        return Sums(*map(tf.reduce_sum, self._rows(batch, seed)))

    def _rows(self, batch: Tensors, seed: Seed = None) -> Sums:
        """Each row's sums over the tokens that count; f32 [B]."""
        # The token at a place is predicted from the one before it, which is in its segment: no
        # segment begins with a token that counts.
        logits_BxLxV = self.logits(batch, seed)[:, :-1]
        target_BxL = tf.cast(batch["input_ids"], tf.int32)[:, 1:]
        weight_BxL = tf.cast(batch["loss_weights"], tf.float32)[:, 1:]
        loss_BxL = tf.nn.sparse_softmax_cross_entropy_with_logits(target_BxL, logits_BxLxV)
        best_BxL = tf.argmax(logits_BxLxV, axis=-1, output_type=tf.int32)
        is_right_BxL = tf.cast(best_BxL == target_BxL, tf.float32)
        return Sums(
            loss=tf.reduce_sum(weight_BxL * loss_BxL, axis=1),
            correct=tf.reduce_sum(weight_BxL * is_right_BxL, axis=1),
            counted=tf.reduce_sum(weight_BxL, axis=1),
        )

    def outputs(self, batch: Tensors) -> Tensors:
        """Each row's sums, and the answer to its prompt."""
        rows = self._rows(batch)
        found = {LOSS: rows.loss, CORRECT: rows.correct, COUNTED: rows.counted}
        if not self._answers:
            return found
        # Every prompt leaves room for the longest answer: that is in the contract.
        places = batch["input_ids"].shape[1] - self._schema.parameters["max_answer_length"]
        prompts = tf.cast(batch["input_ids"], tf.int32)[:, :places]
        return {**found, **self._answer(prompts, batch["prompt_length"], self._schema)}

    def _answer(self, prompts_BxP: Any, lengths_B: Any, schema: Schema) -> Tensors:
        return answer_prompts(
            self.model,
            prompts_BxP,
            lengths_B,
            new_tokens=schema.parameters["max_answer_length"],
            eos=schema.special_ids["eos"],
            prefix=schema.parameters["qa_form"] == "prefix",
        )

    def serve(self, schema: Schema) -> Any:
        """The function of a SavedModel, with decoding in it.

        It takes int32 `input_ids` [rows, tokens], prompts filled up at the right, and
        `prompt_lengths` [rows]; it gives int32 `answer_ids` [rows, longest answer], filled up with
        eos, and `answer_lengths` [rows], the tokens before eos. A prompt may have max_length -
        max_answer_length tokens, of the contract that lies in it.
        """

        def serve(input_ids: Any, prompt_lengths: Any) -> Tensors:
            return self._answer(input_ids, prompt_lengths, schema)

        return tf.function(serve).get_concrete_function(
            input_ids=tf.TensorSpec((None, None), tf.int32, "input_ids"),
            prompt_lengths=tf.TensorSpec((None,), tf.int32, "prompt_lengths"),
        )
