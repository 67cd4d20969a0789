"""GPT-2 in Keras layers, with attention that is causal or bidirectional on a prefix.

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, as published weights
expect it; the prefix is Raffel et al.'s, "Exploring the Limits of Transfer Learning", 2019
(arXiv:1910.10683), section 3.2. What may be attended is a matrix of booleans, so that one model
reads packed rows, prompts, and token after token from a cache.

Legend: B rows, L tokens a row, H hidden, V vocabulary.
"""

from typing import Any

from schemas.errors import UsageError
from trainers.models.model_config import ModelConfig
from trainers.on_tf.backend import keras, tf
from trainers.on_tf.tf_layers import (
    Block,
    Seed,
    Seen,
    dense,
    dropped,
    float32_product,
    norm,
    table,
    through_blocks,
)


def allowed_attention(segment_ids_BxL: Any, prefix_mask_BxL: Any = None) -> Any:
    """Bool [B, L, L]: who attends whom in packed rows.

    A token sees its own segment up to itself; and all of its segment's prefix, where there is one.

    Args:
      segment_ids_BxL: any integers; 0 is padding, which sees padding only.
      prefix_mask_BxL: any integers, 1 on a segment's prefix; None is causal.
    """
    segments = tf.cast(segment_ids_BxL, tf.int32)
    places = tf.range(segments.shape[1] or tf.shape(segments)[1])
    seen = places[None, None, :] <= places[None, :, None]
    if prefix_mask_BxL is not None:
        seen |= tf.not_equal(tf.cast(prefix_mask_BxL, tf.int32), 0)[:, None, :]
    return seen & (segments[:, :, None] == segments[:, None, :])


def positions_of(segment_ids_BxL: Any) -> Any:
    """Int32 [B, L], from 0 in each segment: [[1, 1, 1, 2, 2]] -> [[0, 1, 2, 0, 1]]."""
    before = tf.cast(allowed_attention(segment_ids_BxL), tf.int32)
    return tf.reduce_sum(before, axis=2) - 1


class Decoder(keras.Model):
    """Packed rows to the logits of each next token; its parts serve generation too."""

    def __init__(self, config: ModelConfig):
        """Makes parts and weights, of no meaning yet; under a strategy call it in its scope.

        Raises:
          UsageError: it is no GPT-2.
        """
        if config.family != "gpt2":
            raise UsageError(
                f"the model is of family {config.family!r}; the TensorFlow trainers know GPT-2 "
                "only: give weights of a gpt2, or take trainers.flax_clm"
            )
        super().__init__(name=config.family)
        self.config, hidden = config, config.hidden_size
        with keras.name_scope("embeddings"):
            self.tokens = table("tokens", config.vocab_size, hidden)
            self.positions = table("positions", config.position_rows, hidden)
        with keras.name_scope("layers"):
            self.blocks = [Block(config, index) for index in range(config.layers)]
        self.final_norm = norm("final_norm", hidden, config.layer_norm_epsilon)
        if not config.tied:
            self.head = dense("head", hidden, config.vocab_size, use_bias=False)
        self.built = True

    def embed(self, input_ids_BxL: Any, positions_BxL: Any, seed: Seed = None) -> Any:
        """Hidden states [B, L, H] before the first layer."""
        x_BxLxH = self.tokens(tf.cast(input_ids_BxL, tf.int32)) + self.positions(positions_BxL)
        return dropped(x_BxLxH, self.config.dropout, seed, 0)

    def hidden(
        self, input_ids_BxL: Any, positions_BxL: Any, allowed_BxLxL: Any, seed: Seed = None
    ) -> tuple[Any, list[Seen]]:
        """What the head reads, [B, L, H], and what each layer's tokens have been seen as."""
        x_BxLxH = self.embed(input_ids_BxL, positions_BxL, seed)
        x_BxLxH, made = through_blocks(self.blocks, x_BxLxH, allowed_BxLxL, seed)
        return self.final_norm(x_BxLxH), made

    def logits(self, x_BxLxH: Any) -> Any:
        """What `hidden` gave to f32 logits [B, L, V] of the token after each."""
        config, length = self.config, x_BxLxH.shape[1] or tf.shape(x_BxLxH)[1]
        weights = self.tokens.embeddings if config.tied else tf.transpose(self.head.kernel)
        table_VxH = tf.cast(tf.convert_to_tensor(weights), x_BxLxH.dtype)
        # Of two dimensions: else the gradient is a table for each of the B rows, then their sum.
        logits = float32_product(tf.reshape(x_BxLxH, (-1, config.hidden_size)), table_VxH)
        return tf.reshape(logits, (-1, length, config.vocab_size))

    def call(self, input_ids_BxL, segment_ids_BxL, prefix_mask_BxL=None, seed: Seed = None) -> Any:
        """Logits f32 [B, L, V] of the token after each, within its segment.

        Args:
          input_ids_BxL: any integers.
          segment_ids_BxL: any integers; 0 is padding.
          prefix_mask_BxL: 1 where attention is bidirectional; None is causal.
          seed: turns dropout on.
        """
        allowed = allowed_attention(segment_ids_BxL, prefix_mask_BxL)
        x_BxLxH, _ = self.hidden(input_ids_BxL, positions_of(segment_ids_BxL), allowed, seed)
        return self.logits(x_BxLxH)
