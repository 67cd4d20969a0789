"""BERT, RoBERTa and ELECTRA's generator: an encoder with its masked-language-model head.

Devlin et al., "BERT", 2019 (arXiv:1810.04805); Liu et al., "RoBERTa", 2019 (arXiv:1907.11692);
Clark et al., "ELECTRA", 2020 (arXiv:2003.10555). One module for all, as their published weights
expect it: post-norm layers, a head of a dense layer, an activation and a norm, and switches for the
rest: see `ModelConfig`. Rows are packed: attention and positions stay inside segments.

Legend: B rows, L tokens a row, K masked slots a row, H hidden, E embedding, V vocabulary.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from trainers.models.model_config import ModelConfig
from trainers.models.modules import ACTIVATIONS
from trainers.on_flax.layers import (
    FORMULAS,
    Embeddings,
    add_parts,
    head_logits,
    layers_of,
    packed_context,
    split_keys,
)


class MaskedHead(nnx.Module):
    """Hidden states to logits of the vocabulary."""

    dense: nnx.Linear
    norm: nnx.LayerNorm
    table: nnx.Embed | None = None

    def __init__(self, config: ModelConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        """Makes the modules; `dtype` is of the computation."""
        self.config, self.bias = config, nnx.Param(jnp.zeros(config.vocab_size))
        add_parts(self, "head.", config, dtype, rngs)

    def __call__(self, x_BxKxH: jax.Array, tokens: nnx.Embed) -> jax.Array:
        """F32 logits [B, K, V]; `tokens` is the output layer where the model has no other."""
        activation = FORMULAS[ACTIVATIONS[self.config.head_activation]]
        x_BxKxE = self.norm(activation(self.dense(x_BxKxH)))
        table = tokens if self.table is None else self.table
        return head_logits(x_BxKxE, table.embedding[...]) + self.bias[...]


class EncoderForMaskedLM(nnx.Module):
    """Packed rows to logits at the masked positions."""

    def __init__(self, config: ModelConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        """Makes the modules; `dtype` is of the computation."""
        self.embeddings = Embeddings(config, dtype, rngs)
        self.layers = layers_of(config, dtype, rngs)
        self.head = MaskedHead(config, dtype, rngs)

    def __call__(
        self,
        input_ids_BxL: jax.Array,
        segment_ids_BxL: jax.Array,
        masked_positions_BxK: jax.Array,
        dropout_key: jax.Array | None = None,
        token_type_ids_BxL: jax.Array | None = None,
    ) -> jax.Array:
        """Logits f32 [B, K, V] at the masked positions: the head costs K / L of its full price.

        Args:
          input_ids_BxL: any integers.
          segment_ids_BxL: any integers; 0 is padding.
          masked_positions_BxK: any integers, such as 0 in empty slots.
          dropout_key: turns dropout on.
          token_type_ids_BxL: below `token_types`; None is 0 everywhere.
        """
        context = packed_context(segment_ids_BxL, causal=False)
        keys = split_keys(dropout_key, 1 + len(self.layers))
        x_BxLxH = self.embeddings(input_ids_BxL, context.positions_BxL, keys[0], token_type_ids_BxL)
        for layer, key in zip(self.layers, keys[1:], strict=True):
            x_BxLxH, _ = layer(x_BxLxH, context, key=key)
        slots_BxKx1 = masked_positions_BxK[..., None].astype(jnp.int32)
        x_BxKxH = jnp.take_along_axis(x_BxLxH, slots_BxKx1, axis=1)
        return self.head(x_BxKxH, self.embeddings.tokens)
