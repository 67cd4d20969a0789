"""Attention inside the segments of packed rows, or over a cache, as one function.

    context = packed_context(segment_ids_BxL, causal=True)
    mixed_BxLxNxD = attend(queries, keys, values, context, scale=D**-0.5, window=4096)

Legend: B rows, L tokens a row, M tokens to attend to, N heads, K key and value heads, G = N / K
heads that share one of these, D width of a head.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

MASKED = -1e9  # added to attention logits that must not count; exp() of it is 0 in f32


class Context(NamedTuple):
    """Positions of the tokens, and which others they attend to.

    Attributes:
      positions_BxL: int32, in the segment, from 0 on.
      segment_ids_BxL: int32; tokens attend to those of their own segment, and 0 is padding. None if
        the keys are a cache: the key of position p is at index p.
      causal: whether tokens do not attend to later ones. Always, with a cache.
    """

    positions_BxL: jax.Array
    segment_ids_BxL: jax.Array | None = None
    causal: bool = True


def packed_context(segment_ids_BxL: jax.Array, *, causal: bool) -> Context:
    """Keeps positions and attention inside the segments of packed rows; segment 0 is padding."""
    return Context(positions_from_segments(segment_ids_BxL), segment_ids_BxL, causal)


def positions_from_segments(segment_ids_BxL: jax.Array) -> jax.Array:
    """`schemas.features.positions_from_segments` on the device: int32 [B, L].

    [[1, 1, 1, 2, 2, 0]] -> [[0, 1, 2, 0, 1, 0]].
    """
    index_L = jnp.arange(segment_ids_BxL.shape[1], dtype=jnp.int32)
    changes_BxL = segment_ids_BxL[:, 1:] != segment_ids_BxL[:, :-1]
    starts_BxL = jnp.pad(jnp.where(changes_BxL, index_L[1:], 0), ((0, 0), (1, 0)))
    starts_BxL = jax.lax.cummax(starts_BxL, axis=1)
    return jnp.where(segment_ids_BxL == 0, 0, index_L - starts_BxL)


def drop_out(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Dropout; without a key, `x` itself."""
    if key is None or rate == 0.0:
        return x
    keep = jax.random.bernoulli(key, 1.0 - rate, x.shape)
    return jnp.where(keep, x / (1.0 - rate), 0).astype(x.dtype)


def attend(
    queries_BxLxNxD: jax.Array,
    keys_BxMxKxD: jax.Array,
    values_BxMxKxD: jax.Array,
    context: Context,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    dropout: float = 0.0,
    key: jax.Array | None = None,
) -> jax.Array:
    """The values that each query attends to, weighed: [B, L, N, D] of the values' dtype.

    Padding may attend to nothing: its result is finite, and no loss reads it.

    Args:
      queries_BxLxNxD: N is a multiple of K; head n attends to the keys of head n // (N / K).
      keys_BxMxKxD: without a cache, M is L.
      values_BxMxKxD: of the keys.
      context: which keys are of the same segment.
      scale: of the queries.
      window: if not 0, a causal token attends to the last `window` tokens, itself among them
        (Mistral); others to those at most window // 2 tokens away (ModernBERT).
      softcap: if not 0, logits x become softcap * tanh(x / softcap) (Gemma 2).
      dropout: on the attention probabilities.
      key: turns dropout on.
    """
    heads, groups = queries_BxLxNxD.shape[2], keys_BxMxKxD.shape[2]
    if groups != heads:
        keys_BxMxKxD = jnp.repeat(keys_BxMxKxD, heads // groups, axis=2)
        values_BxMxKxD = jnp.repeat(values_BxMxKxD, heads // groups, axis=2)
    # jax.nn.dot_product_attention gives the same bits, but has no dropout, and with its gradient
    # takes 15 % longer in f32 and 50 % in bf16 on a CPU (B 8, L 128, N 8, D 64; JAX 0.10).
    logits_BxNxLxM = jnp.einsum(
        "blnd,bmnd->bnlm",
        queries_BxLxNxD * scale,
        keys_BxMxKxD,
        preferred_element_type=jnp.float32,
    )
    if softcap:
        logits_BxNxLxM = softcap * jnp.tanh(logits_BxNxLxM / softcap)
    is_allowed_BxLxM = _allowed(context, keys_BxMxKxD.shape[1], window)
    bias_Bx1xLxM = jnp.where(is_allowed_BxLxM, 0.0, MASKED)[:, None].astype(jnp.float32)
    # The softmax is always f32: bf16 rounds close logits to one value.
    shares = jax.nn.softmax(logits_BxNxLxM + bias_Bx1xLxM, axis=-1).astype(values_BxMxKxD.dtype)
    return jnp.einsum("bnlm,bmnd->blnd", drop_out(shares, dropout, key), values_BxMxKxD)


def _allowed(context: Context, keys: int, window: int) -> jax.Array:
    """Whether each query attends to each of these keys: bool [B, L, M]."""
    index_M = jnp.arange(keys)
    segments = context.segment_ids_BxL
    if segments is None:
        index = context.positions_BxL[..., None]  # of the query among the keys
        allowed = index_M <= index
    else:
        index = index_M[:, None]
        allowed = (segments[:, :, None] == segments[:, None, :]) & (segments[:, None, :] != 0)
        if context.causal:
            allowed = jnp.tril(allowed)
    if window and context.causal:
        allowed &= index_M > index - window
    elif window:
        allowed &= abs(index - index_M) <= window // 2
    return allowed
