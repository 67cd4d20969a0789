"""BERT, RoBERTa and ELECTRA with a classification head, in Keras layers.

Devlin et al., "BERT", 2018 (arXiv:1810.04805), Liu et al., "RoBERTa", 2019 (arXiv:1907.11692) and
Clark et al., "ELECTRA", 2020 (arXiv:2003.10555), compatible with published weights.

Legend: B rows, L tokens a row, E embedding, H hidden, C classes.
"""

from collections.abc import Sequence
from typing import Any

from textmill.schemas.format.metadata import Schema
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.on_tf.backend import keras, tf
from textmill.trainers.on_tf.tf_layers import (
    Seed,
    Tensors,
    TransformerLayer,
    dense,
    drop_out,
    norm,
    table,
    through_blocks,
)
from textmill.trainers.on_tf.tf_program import Sums, TfObjective, TfProgram
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.tasks.classification import LABEL, LOGITS, ClassificationTask


class Encoder(keras.Model):
    """Rows of one example each to logits of the classes."""

    def __init__(self, config: ModelConfig):
        super().__init__(name=config.family)
        self.config = config
        width, hidden = config.embedding_size, config.hidden_size
        with keras.name_scope("embeddings"):
            self.tokens = table("tokens", config.vocab_size, width)
            self.positions = table("positions", config.position_rows, width)
            self.token_types = table("token_types", config.token_types, width)
            self.embedding_norm = norm("norm", width, config.layer_norm_epsilon)
            if config.is_projected:
                self.projection = dense("projection", width, hidden)
        with keras.name_scope("layers"):
            self.blocks = [TransformerLayer(config, index) for index in range(config.layers)]
        # Always float32: rounded logits would tie in an AUC.
        with keras.name_scope("head"):
            self.head_dense = dense("dense", hidden, hidden, dtype="float32")
            self.head_out = dense("out", hidden, len(config.classes), dtype="float32")
        self.built = True

    def encode(
        self, input_ids_BxL: Any, segment_ids_BxL: Any, token_types_BxL: Any, seed: Seed = None
    ) -> Any:
        """Hidden states [B, L, H] of the computation's dtype; a seed turns dropout on.

        Segment 0 is padding; token types default to 0, and are 0 in RoBERTa, which has one type.
        """
        config = self.config
        is_text_BxL = tf.not_equal(tf.cast(segment_ids_BxL, tf.int32), 0)
        length = input_ids_BxL.shape[1] or tf.shape(input_ids_BxL)[1]
        x_BxLxE = self.tokens(tf.cast(input_ids_BxL, tf.int32))
        # A row is one example and starts at position 0; no token attends to padding.
        x_BxLxE += self.positions(tf.range(length) + config.position_offset)
        if token_types_BxL is None or config.token_types == 1:
            token_types_BxL = tf.zeros((1, 1), tf.int32)
        x_BxLxE += self.token_types(tf.cast(token_types_BxL, tf.int32))
        x_BxLxH = drop_out(self.embedding_norm(x_BxLxE), config.dropout, seed, 0)
        if config.is_projected:
            x_BxLxH = self.projection(x_BxLxH)
        return through_blocks(self.blocks, x_BxLxH, is_text_BxL[:, None], seed)[0]

    def call(self, input_ids_BxL, segment_ids_BxL, token_types_BxL=None, seed: Seed = None) -> Any:
        """Float32 logits [B, C]; arguments as of `encode`."""
        family, rate = self.config.family, self.config.classifier_dropout
        x_BxLxH = self.encode(input_ids_BxL, segment_ids_BxL, token_types_BxL, seed)
        x_BxH = tf.cast(x_BxLxH[:, 0], tf.float32)
        if family != "bert":  # BERT's dense layer is the encoder's pooler, without dropout before
            x_BxH = drop_out(x_BxH, rate, seed, 1)
        x_BxH = self.head_dense(x_BxH)
        x_BxH = tf.nn.gelu(x_BxH, approximate=False) if family == "electra" else tf.tanh(x_BxH)
        return self.head_out(drop_out(x_BxH, rate, seed, 2))


INPUTS = ("input_ids", "segment_ids", "token_type_ids")


class ClassificationObjective(TfObjective):
    """Cross-entropy of the classes, with a weight for each."""

    features = (*INPUTS, LABEL)

    def __init__(self, config: ModelConfig, class_weights: Sequence[float]):
        self.model, self._class_weights = Encoder(config), list(class_weights)

    def logits(self, batch: Tensors, seed: Seed = None) -> tf.Tensor:
        """Float32 logits [B, C] of a batch; a seed turns dropout on."""
        return self.model(*(batch.get(name) for name in INPUTS), seed=seed)

    def sums(self, batch: Tensors, seed: Seed) -> Sums:
        """Sums over rows, each with the weight of its class; hits without, as in evaluations."""
        label_B = tf.cast(batch[LABEL], tf.int32)
        logits_BxC = self.logits(batch, seed)
        weight_B = tf.gather(tf.constant(self._class_weights, tf.float32), label_B)
        loss_B = tf.nn.sparse_softmax_cross_entropy_with_logits(label_B, logits_BxC)
        is_right_B = tf.equal(tf.argmax(logits_BxC, axis=1, output_type=tf.int32), label_B)
        return Sums(
            loss=tf.reduce_sum(weight_B * loss_B),
            counted=tf.reduce_sum(weight_B),
            correct=tf.reduce_sum(tf.cast(is_right_B, tf.float32)),
            tried=tf.cast(tf.size(label_B), tf.float32),
        )

    def outputs(self, batch: Tensors) -> Tensors:
        """The logits of each row."""
        return {LOGITS: self.logits(batch)}

    def serve(self, schema: Schema) -> Any:
        """The function of a SavedModel.

        It takes int32 [rows, tokens] `input_ids` and `segment_ids` (1 for a token, 0 for padding),
        for pairs also `token_type_ids`; it returns `logits` and `probabilities` [rows, classes] and
        `label`, the name of the likeliest class.
        """

        def serve(**batch: Any) -> Tensors:
            logits = self.logits(batch)
            label = tf.gather(tf.constant(self.model.config.classes), tf.argmax(logits, axis=1))
            return {"logits": logits, "probabilities": tf.nn.softmax(logits), "label": label}

        names = INPUTS if "text_pair_field" in schema.parameters else INPUTS[:2]
        specs = {name: tf.TensorSpec((None, None), tf.int32, name) for name in names}
        return tf.function(serve).get_concrete_function(**specs)


def make_program(plan: TrainingPlan, task: ClassificationTask) -> TfProgram:
    """Classification, with the task's class weights."""
    return TfProgram(plan, lambda: ClassificationObjective(plan.model, task.weights))
