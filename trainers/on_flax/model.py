"""BERT, RoBERTa and ELECTRA's generator: an encoder with its masked-language-model head.

Devlin et al., "BERT", 2019 (arXiv:1810.04805); Liu et al., "RoBERTa", 2019 (arXiv:1907.11692);
Clark et al., "ELECTRA", 2020 (arXiv:2003.10555). One module for all, as their published weights
expect it: post-norm layers, a head of a dense layer, an activation and a norm, and switches for the
rest: see `ModelConfig`. Rows are packed: attention and positions stay inside segments.

Legend: B rows, L tokens a row, K masked slots a row, H hidden, E embedding, N heads, D = H / N,
V vocabulary.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from trainers.on_flax.encoder_config import ModelConfig
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


class EncoderLayer(nnx.Module):
    """Self-attention and a feed-forward block, each followed by residual and LayerNorm."""

    def __init__(self, config: ModelConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        """Makes the weights; `dtype` is of the computation, weights are f32."""
        self.heads, self.dropout = config.heads, config.dropout
        self.activation = config.activation
        hidden = config.hidden_size
        # Query, key and value in one product: columns 0..H-1, H..2H-1, 2H..3H-1.
        self.qkv = linear(hidden, 3 * hidden, dtype, rngs)
        self.attention_out = linear(hidden, hidden, dtype, rngs)
        self.attention_norm = layer_norm(hidden, config.layer_norm_epsilon, dtype, rngs)
        self.mlp_in = linear(hidden, config.intermediate_size, dtype, rngs)
        self.mlp_out = linear(config.intermediate_size, hidden, dtype, rngs)
        self.mlp_norm = layer_norm(hidden, config.layer_norm_epsilon, dtype, rngs)

    def __call__(
        self, x_BxLxH: jax.Array, bias_Bx1xLxL: jax.Array, key: jax.Array | None = None
    ) -> jax.Array:
        """One layer: [B, L, H] -> [B, L, H]; `key` turns dropout on."""
        probability_key, attention_key, mlp_key = split_keys(key, 3)
        q_BxLxNxD, k_BxLxNxD, v_BxLxNxD = heads_of(self.qkv(x_BxLxH), self.heads)
        mixed = attend(
            q_BxLxNxD,
            k_BxLxNxD,
            v_BxLxNxD,
            bias_Bx1xLxL,
            dropout=self.dropout,
            key=probability_key,
        )
        mixed = dropped(self.attention_out(mixed), self.dropout, attention_key)
        x_BxLxH = self.attention_norm(x_BxLxH + mixed)
        grown = activation(self.activation)(self.mlp_in(x_BxLxH))
        return self.mlp_norm(x_BxLxH + dropped(self.mlp_out(grown), self.dropout, mlp_key))


class EncoderForMaskedLM(nnx.Module):
    """Packed rows to logits at the masked positions."""

    def __init__(self, config: ModelConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        """Makes the weights: normal of deviation 0.02, zero biases, as BERT's."""
        self.config, self.dtype = config, dtype
        hidden, width, epsilon = (
            config.hidden_size,
            config.embedding_size,
            config.layer_norm_epsilon,
        )
        self.tokens = embedding(config.vocab_size, width, dtype, rngs)
        self.positions = embedding(config.position_rows, width, dtype, rngs)
        self.token_types = embedding(config.token_types, width, dtype, rngs)
        self.embedding_norm = layer_norm(width, epsilon, dtype, rngs)
        if config.is_projected:
            self.project_in = linear(width, hidden, dtype, rngs)
        self.layers = nnx.List([EncoderLayer(config, dtype, rngs) for _ in range(config.layers)])
        self.head_dense = linear(hidden, width, dtype, rngs)
        self.head_norm = layer_norm(width, epsilon, dtype, rngs)
        self.head_bias = nnx.Param(jnp.zeros(config.vocab_size))
        if not config.tied:
            self.head_table = embedding(config.vocab_size, width, dtype, rngs)

    def encode(
        self,
        input_ids_BxL: jax.Array,
        segment_ids_BxL: jax.Array,
        dropout_key: jax.Array | None = None,
        token_type_ids_BxL: jax.Array | None = None,
    ) -> jax.Array:
        """Ids to hidden states [B, L, H] of the computation's dtype.

        Args:
          input_ids_BxL: any integers.
          segment_ids_BxL: any integers; 0 is padding.
          dropout_key: turns dropout on.
          token_type_ids_BxL: below `token_types`; None is 0 everywhere.
        """
        positions_BxL = positions_from_segments(segment_ids_BxL) + self.config.position_offset
        if token_type_ids_BxL is None:
            token_type_ids_BxL = jnp.zeros((1, 1), jnp.int32)
        x_BxLxE = self.tokens(input_ids_BxL) + self.positions(positions_BxL)
        x_BxLxE = self.embedding_norm(x_BxLxE + self.token_types(token_type_ids_BxL))
        keys = split_keys(dropout_key, 1 + len(self.layers))
        x_BxLxE = dropped(x_BxLxE, self.config.dropout, keys[0])
        x_BxLxH = self.project_in(x_BxLxE) if self.config.is_projected else x_BxLxE
        bias_Bx1xLxL = attention_bias(segment_ids_BxL)
        for layer, key in zip(self.layers, keys[1:], strict=True):
            x_BxLxH = layer(x_BxLxH, bias_Bx1xLxL, key)
        return x_BxLxH

    def head(self, x_BxKxH: jax.Array) -> jax.Array:
        """Hidden states to f32 logits [B, K, V]."""
        grown = activation(self.config.head_activation)(self.head_dense(x_BxKxH))
        x_BxKxE = self.head_norm(grown)
        table = self.tokens if self.config.tied else self.head_table
        table_VxE = table.embedding[...].astype(self.dtype)
        logits_BxKxV = jnp.einsum(
            "bke,ve->bkv", x_BxKxE, table_VxE, preferred_element_type=jnp.float32
        )
        return logits_BxKxV + self.head_bias[...]

    def __call__(
        self,
        input_ids_BxL: jax.Array,
        segment_ids_BxL: jax.Array,
        masked_positions_BxK: jax.Array,
        dropout_key: jax.Array | None = None,
        token_type_ids_BxL: jax.Array | None = None,
    ) -> jax.Array:
        """Logits f32 [B, K, V] at the masked positions: the head costs K / L of its full price."""
        x_BxLxH = self.encode(input_ids_BxL, segment_ids_BxL, dropout_key, token_type_ids_BxL)
        slots_BxKx1 = masked_positions_BxK[..., None].astype(jnp.int32)
        return self.head(jnp.take_along_axis(x_BxLxH, slots_BxKx1, axis=1))


def graph_of(config: ModelConfig, dtype: jnp.dtype) -> nnx.GraphDef[EncoderForMaskedLM]:
    """The model without its weights: `nnx.merge(graph, params)` is a model to call."""
    return graph(partial(EncoderForMaskedLM, config), dtype)


def init_params(config: ModelConfig, key: jax.Array) -> Params:
    """Fresh f32 weights as nested dicts of arrays; pure, so that it can be jitted and sharded."""
    return fresh_params(partial(EncoderForMaskedLM, config), key)
