"""GPT-2 and OPT: decoders with a causal language-model head, for packed rows and for generation.

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; Zhang et al., "OPT",
2022 (arXiv:2205.01068). One module for both, since they differ in switches only: see
`DecoderConfig`. OPT-350m normalizes after each residual, has no last LayerNorm, and embeddings
narrower than its hidden states, with a projection in and one out.

Legend: B rows, L tokens a row, M places of a cache, H hidden, E embedding, N heads, D = H / N,
V vocabulary.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from trainers.on_flax.decoder_config import DecoderConfig
from trainers.on_flax.layers import (
    Params,
    activation,
    attend,
    attention_bias,
    dropped,
    embedding,
    fresh_params,
    graph,
    heads_of,
    layer_norm,
    linear,
    positions_from_segments,
    split_keys,
)


class Cache(NamedTuple):
    """Keys and values of one layer, each [B, M, N, D] of the computation's dtype."""

    keys_BxMxNxD: jax.Array
    values_BxMxNxD: jax.Array


class DecoderLayer(nnx.Module):
    """Causal self-attention and a feed-forward block, normalized before or after each."""

    def __init__(self, config: DecoderConfig, index: int, dtype: jnp.dtype, rngs: nnx.Rngs):
        """Makes the weights of layer `index`, from 0; `dtype` is of the computation."""
        self.heads, self.dropout, self.norm_first = config.heads, config.dropout, config.norm_first
        self.activation = config.activation
        self.scale = config.attention_scale(index)
        hidden, epsilon = config.hidden_size, config.layer_norm_epsilon
        # GPT-2's: what is added to the residual stream 2 * layers times begins that much smaller.
        residual = 0.02 * (2 * config.layers) ** -0.5 if config.family == "gpt2" else 0.02
        # Query, key and value in one product: columns 0..H-1, H..2H-1, 2H..3H-1.
        self.qkv = linear(hidden, 3 * hidden, dtype, rngs)
        self.attention_out = linear(hidden, hidden, dtype, rngs, deviation=residual)
        self.attention_norm = layer_norm(hidden, epsilon, dtype, rngs)
        self.mlp_in = linear(hidden, config.intermediate_size, dtype, rngs)
        self.mlp_out = linear(config.intermediate_size, hidden, dtype, rngs, deviation=residual)
        self.mlp_norm = layer_norm(hidden, epsilon, dtype, rngs)

    def __call__(
        self,
        x_BxLxH: jax.Array,
        bias: jax.Array,
        *,
        cache: Cache | None = None,
        places_BxL: jax.Array | None = None,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, Cache]:
        """One layer.

        Args:
          x_BxLxH: hidden states.
          bias: what may be attended, broadcast to [B, N, L, M]; M is L where there is no cache.
          cache: of the tokens before; these tokens' keys and values are written into it.
          places_BxL: where in the cache.
          key: turns dropout on.

        Returns:
          Hidden states [B, L, H], and the cache with these tokens in it.
        """
        probability_key, attention_key, mlp_key = split_keys(key, 3)
        normed = self.attention_norm(x_BxLxH) if self.norm_first else x_BxLxH
        q_BxLxNxD, keys, values = heads_of(self.qkv(normed), self.heads)
        if cache is not None:
            rows_Bx1 = jnp.arange(len(keys))[:, None]
            keys = cache.keys_BxMxNxD.at[rows_Bx1, places_BxL].set(keys)
            values = cache.values_BxMxNxD.at[rows_Bx1, places_BxL].set(values)
        mixed = attend(
            q_BxLxNxD,
            keys,
            values,
            bias,
            scale=self.scale,
            dropout=self.dropout,
            key=probability_key,
        )
        x_BxLxH = x_BxLxH + dropped(self.attention_out(mixed), self.dropout, attention_key)
        if not self.norm_first:
            x_BxLxH = self.attention_norm(x_BxLxH)
        normed = self.mlp_norm(x_BxLxH) if self.norm_first else x_BxLxH
        grown = self.mlp_out(activation(self.activation)(self.mlp_in(normed)))
        x_BxLxH = x_BxLxH + dropped(grown, self.dropout, mlp_key)
        return x_BxLxH if self.norm_first else self.mlp_norm(x_BxLxH), Cache(keys, values)


class DecoderForCausalLM(nnx.Module):
    """Packed rows to the logits of each next token."""

    def __init__(self, config: DecoderConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        """Makes the weights: normal of deviation 0.02 (see DecoderLayer), zero biases."""
        self.config, self.dtype = config, dtype
        hidden, narrow = config.hidden_size, config.embedding_size
        self.tokens = embedding(config.vocab_size, narrow, dtype, rngs)
        self.positions = embedding(config.position_rows, hidden, dtype, rngs)
        if config.is_projected:
            self.project_in = linear(narrow, hidden, dtype, rngs, bias=False)
            self.project_out = linear(hidden, narrow, dtype, rngs, bias=False)
        self.layers = nnx.List(
            [DecoderLayer(config, index, dtype, rngs) for index in range(config.layers)]
        )
        if config.final_norm:
            self.final_norm = layer_norm(hidden, config.layer_norm_epsilon, dtype, rngs)
        if not config.tied:
            self.head = linear(narrow, config.vocab_size, dtype, rngs, bias=False)

    def hidden(
        self,
        input_ids_BxL: jax.Array,
        positions_BxL: jax.Array,
        bias: jax.Array,
        *,
        caches: Sequence[Cache] | None = None,
        places_BxL: jax.Array | None = None,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, list[Cache]]:
        """Ids to what the head reads, [B, L, E], and every layer's cache.

        Args:
          input_ids_BxL: any integers.
          positions_BxL: from 0 on.
          bias: see DecoderLayer.
          caches: one a layer, to go on from.
          places_BxL: of these tokens in the caches.
          key: turns dropout on.
        """
        keys = split_keys(key, 1 + len(self.layers))
        x_BxLxH = self.tokens(input_ids_BxL)
        if self.config.is_projected:
            x_BxLxH = self.project_in(x_BxLxH)
        x_BxLxH = x_BxLxH + self.positions(positions_BxL + self.config.position_offset)
        x_BxLxH = dropped(x_BxLxH, self.config.dropout, keys[0])
        made = []
        befores = [None] * len(self.layers) if caches is None else caches
        for layer, before, layer_key in zip(self.layers, befores, keys[1:], strict=True):
            x_BxLxH, cache = layer(
                x_BxLxH, bias, cache=before, places_BxL=places_BxL, key=layer_key
            )
            made.append(cache)
        if self.config.final_norm:
            x_BxLxH = self.final_norm(x_BxLxH)
        return self.project_out(x_BxLxH) if self.config.is_projected else x_BxLxH, made

    def logits(self, x_BxLxE: jax.Array) -> jax.Array:
        """What `hidden` gave to f32 logits [B, L, V]."""
        if self.config.tied:
            table_VxE = self.tokens.embedding[...].astype(self.dtype)
        else:
            table_VxE = self.head.kernel[...].astype(self.dtype).T
        return jnp.einsum("ble,ve->blv", x_BxLxE, table_VxE, preferred_element_type=jnp.float32)

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
        positions_BxL = positions_from_segments(segment_ids_BxL)
        bias_Bx1xLxL = attention_bias(segment_ids_BxL, causal=True)
        return self.logits(
            self.hidden(input_ids_BxL, positions_BxL, bias_Bx1xLxL, key=dropout_key)[0]
        )


def graph_of(config: DecoderConfig, dtype: jnp.dtype) -> nnx.GraphDef[DecoderForCausalLM]:
    """The model without its weights: `nnx.merge(graph, params)` is a model to call."""
    return graph(partial(DecoderForCausalLM, config), dtype)


def init_params(config: DecoderConfig, key: jax.Array) -> Params:
    """Fresh f32 weights as nested dicts of arrays; pure, so that it can be jitted and sharded."""
    return fresh_params(partial(DecoderForCausalLM, config), key)
