"""An encoder of BERT's family with a classification head, in Keras layers.

The architectures of Devlin et al., "BERT", 2018 (arXiv:1810.04805), Liu et al., "RoBERTa", 2019
(arXiv:1907.11692) and Clark et al., "ELECTRA", 2020 (arXiv:2003.10555), as published weights expect
them.

Legend: B rows, L tokens a row, E embedding, H hidden, C classes.
"""

from typing import Any

from trainers.models.model_config import ModelConfig
from trainers.on_tf.backend import keras, tf
from trainers.on_tf.tf_layers import Block, Seed, dense, dropped, norm, table, through_blocks


class Encoder(keras.Model):
    """Rows of one example each to logits of the classes."""

    def __init__(self, config: ModelConfig):
        """Makes parts and weights, of no meaning yet; under a strategy call it in its scope."""
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
            self.blocks = [Block(config, index) for index in range(config.layers)]
        # In float32 whatever the computation is: rounded logits would tie in an AUC.
        with keras.name_scope("head"):
            self.head_dense = dense("dense", hidden, hidden, dtype="float32")
            self.head_out = dense("out", hidden, len(config.classes), dtype="float32")
        self.built = True

    def encode(
        self, input_ids_BxL: Any, segment_ids_BxL: Any, token_types_BxL: Any, seed: Seed = None
    ) -> Any:
        """Hidden states [B, L, H] of the computation's dtype.

        Args:
          input_ids_BxL: any integers.
          segment_ids_BxL: any integers; 0 is padding.
          token_types_BxL: any integers, or None where all are 0; RoBERTa knows one type only.
          seed: turns dropout on.
        """
        config = self.config
        is_text_BxL = tf.not_equal(tf.cast(segment_ids_BxL, tf.int32), 0)
        length = input_ids_BxL.shape[1] or tf.shape(input_ids_BxL)[1]
        x_BxLxE = self.tokens(tf.cast(input_ids_BxL, tf.int32))
        # A row is one example and starts at position 0; padding is never attended.
        x_BxLxE += self.positions(tf.range(length) + config.position_offset)
        if token_types_BxL is None or config.token_types == 1:
            token_types_BxL = tf.zeros((1, 1), tf.int32)
        x_BxLxE += self.token_types(tf.cast(token_types_BxL, tf.int32))
        x_BxLxH = dropped(self.embedding_norm(x_BxLxE), config.dropout, seed, 0)
        if config.is_projected:
            x_BxLxH = self.projection(x_BxLxH)
        return through_blocks(self.blocks, x_BxLxH, is_text_BxL[:, None], seed)[0]

    def call(self, input_ids_BxL, segment_ids_BxL, token_types_BxL=None, seed: Seed = None) -> Any:
        """Logits f32 [B, C]; arguments as of `encode`."""
        family, rate = self.config.family, self.config.classifier_dropout
        x_BxLxH = self.encode(input_ids_BxL, segment_ids_BxL, token_types_BxL, seed)
        x_BxH = tf.cast(x_BxLxH[:, 0], tf.float32)
        if family != "bert":  # BERT's dense layer, the pooler, is published with the encoder
            x_BxH = dropped(x_BxH, rate, seed, 1)
        x_BxH = self.head_dense(x_BxH)
        x_BxH = tf.nn.gelu(x_BxH, approximate=False) if family == "electra" else tf.tanh(x_BxH)
        return self.head_out(dropped(x_BxH, rate, seed, 2))
