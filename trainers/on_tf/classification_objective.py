"""A classifier's loss and outputs on a device, and as a SavedModel.

Legend: B rows, L tokens a row, C classes.
"""

from collections.abc import Sequence
from typing import Any

from schemas.sidecar import Schema
from trainers.models.model_config import ModelConfig
from trainers.on_tf.backend import tf
from trainers.on_tf.tf_encoder import Encoder
from trainers.on_tf.tf_layers import Seed, Tensors
from trainers.on_tf.tf_program import Sums, TfObjective
from trainers.tasks.classification import LABEL, LOGITS

INPUTS = ("input_ids", "segment_ids", "token_type_ids")


class ClassificationObjective(TfObjective):
    """Cross-entropy of the classes, with a weight for each."""

    features = (*INPUTS, LABEL)

    def __init__(self, config: ModelConfig, class_weights: Sequence[float]):
        """Makes the model; under a strategy call it in its scope."""
        self.model, self._class_weights = Encoder(config), list(class_weights)

    def logits(self, batch: Tensors, seed: Seed = None) -> tf.Tensor:
        """f32 [B, C] of a batch; a seed turns dropout on."""
        return self.model(*(batch.get(name) for name in INPUTS), seed=seed)

    def sums(self, batch: Tensors, seed: Seed) -> Sums:
        """Rows count with the weight of their class."""
        label_B = tf.cast(batch[LABEL], tf.int32)
        logits_BxC = self.logits(batch, seed)
        weight_B = tf.gather(tf.constant(self._class_weights, tf.float32), label_B)
        loss_B = tf.nn.sparse_softmax_cross_entropy_with_logits(label_B, logits_BxC)
        is_right_B = tf.equal(tf.argmax(logits_BxC, axis=1, output_type=tf.int32), label_B)
        return Sums(
            loss=tf.reduce_sum(weight_B * loss_B),
            correct=tf.reduce_sum(weight_B * tf.cast(is_right_B, tf.float32)),
            counted=tf.reduce_sum(weight_B),
        )

    def outputs(self, batch: Tensors) -> Tensors:
        """The logits of each row."""
        return {LOGITS: self.logits(batch)}

    def serve(self, schema: Schema) -> Any:
        """The function of a SavedModel.

        It takes int32 [rows, tokens] `input_ids` and `segment_ids` (1 for a token, 0 for padding),
        for pairs `token_type_ids` too, and gives `logits`, `probabilities` [rows, classes] and
        `label`, the name of the likeliest class.
        """

        def serve(**batch: Any) -> Tensors:
            logits = self.logits(batch)
            label = tf.gather(tf.constant(self.model.config.classes), tf.argmax(logits, axis=1))
            return {"logits": logits, "probabilities": tf.nn.softmax(logits), "label": label}

        names = INPUTS if "text_pair_field" in schema.parameters else INPUTS[:2]
        specs = {name: tf.TensorSpec((None, None), tf.int32, name) for name in names}
        return tf.function(serve).get_concrete_function(**specs)
