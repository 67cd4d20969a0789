"""BERT, RoBERTa and ELECTRA's generator: an encoder with its masked-language-model head.

Devlin et al., "BERT", 2019 (arXiv:1810.04805); Liu et al., "RoBERTa", 2019 (arXiv:1907.11692);
Clark et al., "ELECTRA", 2020 (arXiv:2003.10555). One module for all, as their published weights
expect it: post-norm layers, a head of a dense layer, an activation and a norm, and switches for the
rest: see `EncoderConfig`. Rows are packed: attention and positions stay inside segments.

Legend: B rows, L tokens a row, K masked slots a row, H hidden, E embedding, V vocabulary.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from trainers.models.encoder import EncoderConfig
from trainers.on_flax.layers import (
    ACTIVATIONS,
    Layer,
    dropped,
    head_logits,
    norm,
    packed_context,
    split_keys,
)


class EncoderEmbeddings(nnx.Module):
    """Tokens, positions and token types to the hidden states before the first layer."""

    def __init__(self, config: EncoderConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        """Makes the modules; `dtype` is of the computation."""
        self.config = config
        width, table = config.embedding_size, partial(nnx.Embed, dtype=dtype, rngs=rngs)
        self.tokens = table(config.vocab_size, width)
        self.positions = table(config.position_rows, width)
        self.token_types = table(config.token_types, width)
        self.norm = norm(config, width, dtype, rngs)
        if config.is_projected:
            self.projection = nnx.Linear(width, config.hidden_size, dtype=dtype, rngs=rngs)

    def __call__(
        self,
        input_ids_BxL: jax.Array,
        positions_BxL: jax.Array,
        token_type_ids_BxL: jax.Array,
        key: jax.Array | None,
    ) -> jax.Array:
        """Hidden states [B, L, H]; `key` turns dropout on."""
        x_BxLxE = self.tokens(input_ids_BxL)
        x_BxLxE = x_BxLxE + self.positions(positions_BxL + self.config.position_offset)
        x_BxLxE = self.norm(x_BxLxE + self.token_types(token_type_ids_BxL))
        x_BxLxE = dropped(x_BxLxE, self.config.dropout, key)
        return self.projection(x_BxLxE) if self.config.is_projected else x_BxLxE


class MaskedHead(nnx.Module):
    """Hidden states to logits of the vocabulary."""

    def __init__(self, config: EncoderConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        """Makes the modules; `dtype` is of the computation."""
        self.config, width = config, config.embedding_size
        self.dense = nnx.Linear(config.hidden_size, width, dtype=dtype, rngs=rngs)
        self.norm = norm(config, width, dtype, rngs)
        self.bias = nnx.Param(jnp.zeros(config.vocab_size))
        if not config.tied:
            self.table = nnx.Embed(config.vocab_size, width, dtype=dtype, rngs=rngs)

    def __call__(self, x_BxKxH: jax.Array, tokens: nnx.Embed) -> jax.Array:
        """F32 logits [B, K, V]; `tokens` is the output layer where the model has no other."""
        x_BxKxE = self.norm(ACTIVATIONS[self.config.head_activation](self.dense(x_BxKxH)))
        table = tokens if self.config.tied else self.table
        return head_logits(x_BxKxE, table.embedding[...]) + self.bias[...]


class EncoderForMaskedLM(nnx.Module):
    """Packed rows to logits at the masked positions."""

    def __init__(self, config: EncoderConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        """Makes the modules; `dtype` is of the computation."""
        self.embeddings = EncoderEmbeddings(config, dtype, rngs)
        layer = partial(
            Layer,
            norm_first=False,
            scale=(config.hidden_size // config.heads) ** -0.5,
            attention_dropout=config.attention_dropout,
        )
        self.layers = nnx.List([layer(config, dtype, rngs) for _ in range(config.layers)])
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
        if token_type_ids_BxL is None:
            token_type_ids_BxL = jnp.zeros((1, 1), jnp.int32)
        context = packed_context(segment_ids_BxL, causal=False)
        keys = split_keys(dropout_key, 1 + len(self.layers))
        x_BxLxH = self.embeddings(input_ids_BxL, context.positions_BxL, token_type_ids_BxL, keys[0])
        for layer, key in zip(self.layers, keys[1:], strict=True):
            x_BxLxH, _ = layer(x_BxLxH, context, key=key)
        slots_BxKx1 = masked_positions_BxK[..., None].astype(jnp.int32)
        x_BxKxH = jnp.take_along_axis(x_BxLxH, slots_BxKx1, axis=1)
        return self.head(x_BxKxH, self.embeddings.tokens)
