"""GPT-2 and OPT: decoders with a causal language-model head, for packed rows and for generation.

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; Zhang et al., "OPT",
2022 (arXiv:2205.01068). One module for both, since they differ in switches only: see
`DecoderConfig`. OPT-350m normalizes after each residual, has no last LayerNorm, and embeddings
narrower than its hidden states, with a projection in and one out.

Legend: B rows, L tokens a row, H hidden, E embedding, V vocabulary.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from trainers.models.decoder import DecoderConfig
from trainers.on_flax.layers import (
    Cache,
    Context,
    Layer,
    dropped,
    head_logits,
    norm,
    packed_context,
    split_keys,
)


class DecoderEmbeddings(nnx.Module):
    """Tokens and positions to the hidden states before the first layer."""

    def __init__(self, config: DecoderConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        """Makes the modules; `dtype` is of the computation."""
        self.config = config
        narrow, hidden = config.embedding_size, config.hidden_size
        self.tokens = nnx.Embed(config.vocab_size, narrow, dtype=dtype, rngs=rngs)
        self.positions = nnx.Embed(config.position_rows, hidden, dtype=dtype, rngs=rngs)
        if config.is_projected:
            self.projection = nnx.Linear(narrow, hidden, use_bias=False, dtype=dtype, rngs=rngs)

    def __call__(
        self, input_ids_BxL: jax.Array, positions_BxL: jax.Array, key: jax.Array | None
    ) -> jax.Array:
        """Hidden states [B, L, H]; `key` turns dropout on."""
        x_BxLxH = self.tokens(input_ids_BxL)
        if self.config.is_projected:
            x_BxLxH = self.projection(x_BxLxH)
        x_BxLxH = x_BxLxH + self.positions(positions_BxL + self.config.position_offset)
        return dropped(x_BxLxH, self.config.dropout, key)


class DecoderForCausalLM(nnx.Module):
    """Packed rows to the logits of each next token."""

    def __init__(self, config: DecoderConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        """Makes the modules; `dtype` is of the computation."""
        self.config = config
        hidden, narrow = config.hidden_size, config.embedding_size
        matrix = partial(nnx.Linear, use_bias=False, dtype=dtype, rngs=rngs)
        self.embeddings = DecoderEmbeddings(config, dtype, rngs)
        layer = partial(Layer, norm_first=config.norm_first, attention_dropout=config.dropout)
        self.layers = nnx.List(
            [
                layer(config, dtype, rngs, scale=config.attention_scale(index))
                for index in range(config.layers)
            ]
        )
        if config.final_norm:
            self.final_norm = norm(config, hidden, dtype, rngs)
        if config.is_projected:
            self.project_out = matrix(hidden, narrow)
        if not config.tied:
            self.head = matrix(narrow, config.vocab_size)

    def hidden(
        self,
        input_ids_BxL: jax.Array,
        context: Context,
        *,
        caches: Sequence[Cache] | None = None,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, list[Cache]]:
        """Ids to what the head reads, [B, L, E], and every layer's cache.

        Args:
          input_ids_BxL: any integers.
          context: of the tokens.
          caches: one a layer, to go on from.
          key: turns dropout on.
        """
        keys = split_keys(key, 1 + len(self.layers))
        x_BxLxH = self.embeddings(input_ids_BxL, context.positions_BxL, keys[0])
        after = []
        befores = [None] * len(self.layers) if caches is None else caches
        for layer, before, layer_key in zip(self.layers, befores, keys[1:], strict=True):
            x_BxLxH, cache = layer(x_BxLxH, context, cache=before, key=layer_key)
            after.append(cache)
        if self.config.final_norm:
            x_BxLxH = self.final_norm(x_BxLxH)
        return self.project_out(x_BxLxH) if self.config.is_projected else x_BxLxH, after

    def logits(self, x_BxLxE: jax.Array) -> jax.Array:
        """What `hidden` gave to f32 logits [B, L, V]."""
        if self.config.tied:
            return head_logits(x_BxLxE, self.embeddings.tokens.embedding[...])
        return head_logits(x_BxLxE, self.head.kernel[...].T)

    def __call__(
        self,
        input_ids_BxL: jax.Array,
        segment_ids_BxL: jax.Array,
        dropout_key: jax.Array | None = None,
    ) -> jax.Array:
        """Logits f32 [B, L, V] of the token after each, within its segment.

        Args:
          input_ids_BxL: any integers.
          segment_ids_BxL: any integers; 0 is padding.
          dropout_key: turns dropout on.
        """
        context = packed_context(segment_ids_BxL, causal=True)
        return self.logits(self.hidden(input_ids_BxL, context, key=dropout_key)[0])
