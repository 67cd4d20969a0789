"""A RoBERTa encoder with its masked-language-model head, for packed rows.

The architecture of Liu et al., "RoBERTa", 2019 (arXiv:1907.11692) as published weights expect it:
post-norm layers, exact GELU, one token type, an output layer tied to the embedding, and position
tables whose first `position_offset` rows no token uses.

Legend: B rows, L tokens a row, K masked slots a row, H hidden, N heads, D = H / N, V vocabulary.
"""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from flax import nnx

from trainers.on_flax.config import ModelConfig

Params: TypeAlias = Any  # nested dicts of f32 arrays, lists as dicts by index
MASKED = -1e9  # added to the logits of what may not be attended; exp() of it is 0 in f32


def positions_from_segments(segment_ids_BxL: jax.Array) -> jax.Array:
    """Positions that restart at 0 in each segment: [[1, 1, 1, 2, 2, 0]] -> [[0, 1, 2, 0, 1, 0]].

    The same function as `schemas.features.positions_from_segments`, on the device.

    Returns:
      int32 [B, L]; 0 at padding.
    """
    index_L = jnp.arange(segment_ids_BxL.shape[1], dtype=jnp.int32)
    changes_BxL = segment_ids_BxL[:, 1:] != segment_ids_BxL[:, :-1]
    starts_BxL = jnp.pad(jnp.where(changes_BxL, index_L[1:], 0), ((0, 0), (1, 0)))
    starts_BxL = jax.lax.cummax(starts_BxL, axis=1)
    return jnp.where(segment_ids_BxL == 0, 0, index_L - starts_BxL)


def attention_bias(segment_ids_BxL: jax.Array) -> jax.Array:
    """What keeps attention inside segments: f32 [B, 1, L, L], 0 where allowed, else `MASKED`.

    A query in padding is allowed nothing: its softmax is then uniform, and no loss reads it.
    """
    same = segment_ids_BxL[:, :, None] == segment_ids_BxL[:, None, :]
    allowed = same & (segment_ids_BxL[:, None, :] != 0)
    return jnp.where(allowed, 0.0, MASKED)[:, None].astype(jnp.float32)


def dropped(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Dropout; with no key, `x` itself."""
    if key is None or rate == 0.0:
        return x
    keep = jax.random.bernoulli(key, 1.0 - rate, x.shape)
    return jnp.where(keep, x / (1.0 - rate), 0).astype(x.dtype)


def _keys(key: jax.Array | None, count: int) -> list[jax.Array | None]:
    return [None] * count if key is None else list(jax.random.split(key, count))


class EncoderLayer(nnx.Module):
    """Self-attention and a feed-forward block, each followed by residual and LayerNorm."""

    def __init__(self, config: ModelConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        """Makes the weights; `dtype` is of the computation, weights are f32."""
        self.heads, self.dropout = config.heads, config.dropout
        hidden = config.hidden_size
        # Query, key and value in one product: columns 0..H-1, H..2H-1, 2H..3H-1.
        self.qkv = _linear(hidden, 3 * hidden, dtype, rngs)
        self.attention_out = _linear(hidden, hidden, dtype, rngs)
        self.attention_norm = _layer_norm(config, dtype, rngs)
        self.mlp_in = _linear(hidden, config.intermediate_size, dtype, rngs)
        self.mlp_out = _linear(config.intermediate_size, hidden, dtype, rngs)
        self.mlp_norm = _layer_norm(config, dtype, rngs)

    def __call__(
        self, x_BxLxH: jax.Array, bias_Bx1xLxL: jax.Array, key: jax.Array | None = None
    ) -> jax.Array:
        """One layer: [B, L, H] -> [B, L, H]; `key` turns dropout on."""
        probability_key, attention_key, mlp_key = _keys(key, 3)
        mixed = self.attention_out(self._attend(x_BxLxH, bias_Bx1xLxL, probability_key))
        x_BxLxH = self.attention_norm(x_BxLxH + dropped(mixed, self.dropout, attention_key))
        grown = jax.nn.gelu(self.mlp_in(x_BxLxH), approximate=False)
        return self.mlp_norm(x_BxLxH + dropped(self.mlp_out(grown), self.dropout, mlp_key))

    def _attend(self, x_BxLxH: jax.Array, bias: jax.Array, key: jax.Array | None) -> jax.Array:
        shape = (*x_BxLxH.shape[:2], 3, self.heads, x_BxLxH.shape[2] // self.heads)
        q_BxLxNxD, k_BxMxNxD, v_BxMxNxD = jnp.moveaxis(self.qkv(x_BxLxH).reshape(shape), 2, 0)
        q_BxLxNxD = q_BxLxNxD * (shape[-1] ** -0.5)
        logits_BxNxLxM = jnp.einsum(
            "blnd,bmnd->bnlm", q_BxLxNxD, k_BxMxNxD, preferred_element_type=jnp.float32
        )
        # The softmax is f32 whatever the computation is: bf16 cannot tell close logits apart.
        probabilities = jax.nn.softmax(logits_BxNxLxM + bias, axis=-1).astype(x_BxLxH.dtype)
        probabilities = dropped(probabilities, self.dropout, key)
        return jnp.einsum("bnlm,bmnd->blnd", probabilities, v_BxMxNxD).reshape(x_BxLxH.shape)


class RobertaForMaskedLM(nnx.Module):
    """Packed rows to logits at the masked positions."""

    def __init__(self, config: ModelConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        """Makes the weights: normal of deviation 0.02, zero biases, as RoBERTa's."""
        self.config, self.dtype = config, dtype
        hidden = config.hidden_size
        self.tokens = _embedding(config.vocab_size, hidden, dtype, rngs)
        self.positions = _embedding(config.position_rows, hidden, dtype, rngs)
        self.token_types = _embedding(1, hidden, dtype, rngs)
        self.embedding_norm = _layer_norm(config, dtype, rngs)
        self.layers = nnx.List([EncoderLayer(config, dtype, rngs) for _ in range(config.layers)])
        self.head_dense = _linear(hidden, hidden, dtype, rngs)
        self.head_norm = _layer_norm(config, dtype, rngs)
        self.head_bias = nnx.Param(jnp.zeros(config.vocab_size))

    def encode(
        self,
        input_ids_BxL: jax.Array,
        segment_ids_BxL: jax.Array,
        dropout_key: jax.Array | None = None,
    ) -> jax.Array:
        """Ids to hidden states [B, L, H] of the computation's dtype.

        Args:
          input_ids_BxL: any integers.
          segment_ids_BxL: any integers; 0 is padding.
          dropout_key: turns dropout on.
        """
        positions_BxL = positions_from_segments(segment_ids_BxL) + self.config.position_offset
        x_BxLxH = self.tokens(input_ids_BxL) + self.positions(positions_BxL)
        x_BxLxH = self.embedding_norm(x_BxLxH + self.token_types(jnp.zeros((1, 1), jnp.int32)))
        keys = _keys(dropout_key, 1 + len(self.layers))
        x_BxLxH = dropped(x_BxLxH, self.config.dropout, keys[0])
        bias_Bx1xLxL = attention_bias(segment_ids_BxL)
        for layer, key in zip(self.layers, keys[1:], strict=True):
            x_BxLxH = layer(x_BxLxH, bias_Bx1xLxL, key)
        return x_BxLxH

    def head(self, x_BxKxH: jax.Array) -> jax.Array:
        """Hidden states to f32 logits [B, K, V]."""
        x_BxKxH = self.head_norm(jax.nn.gelu(self.head_dense(x_BxKxH), approximate=False))
        table_VxH = self.tokens.embedding[...].astype(self.dtype)
        logits_BxKxV = jnp.einsum(
            "bkh,vh->bkv", x_BxKxH, table_VxH, preferred_element_type=jnp.float32
        )
        return logits_BxKxV + self.head_bias[...]

    def __call__(
        self,
        input_ids_BxL: jax.Array,
        segment_ids_BxL: jax.Array,
        masked_positions_BxK: jax.Array,
        dropout_key: jax.Array | None = None,
    ) -> jax.Array:
        """Logits f32 [B, K, V] at the masked positions: the head costs K / L of its full price."""
        x_BxLxH = self.encode(input_ids_BxL, segment_ids_BxL, dropout_key)
        slots_BxKx1 = masked_positions_BxK[..., None].astype(jnp.int32)
        return self.head(jnp.take_along_axis(x_BxLxH, slots_BxKx1, axis=1))


def _linear(inputs: int, outputs: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> nnx.Linear:
    init = nnx.initializers.normal(0.02)
    return nnx.Linear(inputs, outputs, dtype=dtype, kernel_init=init, rngs=rngs)


def _embedding(rows: int, hidden: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> nnx.Embed:
    init = nnx.initializers.normal(0.02)
    return nnx.Embed(rows, hidden, dtype=dtype, embedding_init=init, rngs=rngs)


def _layer_norm(config: ModelConfig, dtype: jnp.dtype, rngs: nnx.Rngs) -> nnx.LayerNorm:
    return nnx.LayerNorm(
        config.hidden_size, epsilon=config.layer_norm_epsilon, dtype=dtype, rngs=rngs
    )


def graph_of(config: ModelConfig, dtype: jnp.dtype) -> nnx.GraphDef[RobertaForMaskedLM]:
    """The model without its weights: `nnx.merge(graph, params)` is a model to call."""
    model = nnx.eval_shape(lambda: RobertaForMaskedLM(config, dtype, nnx.Rngs(0)))
    return nnx.split(model)[0]


def init_params(config: ModelConfig, key: jax.Array) -> Params:
    """Fresh f32 weights as nested dicts of arrays; pure, so that it can be jitted and sharded."""
    model = RobertaForMaskedLM(config, jnp.dtype(jnp.float32), nnx.Rngs(key))
    return nnx.to_pure_dict(nnx.state(model, nnx.Param))
