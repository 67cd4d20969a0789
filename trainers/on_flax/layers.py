"""What encoders and decoders are made of: positions, what may attend to what, attention, dropout.

Legend: B rows, L tokens a row, M tokens to attend to, H hidden, N heads, D = H / N.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

Params: TypeAlias = Any  # nested dicts of f32 arrays, lists as dicts by index
Model = TypeVar("Model", bound=nnx.Module)

_TANH_GELU = partial(jax.nn.gelu, approximate=True)
_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {  # by Hugging Face's names
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "silu": jax.nn.silu,
    "swish": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_new": _TANH_GELU,
    "gelu_fast": _TANH_GELU,
    "gelu_pytorch_tanh": _TANH_GELU,
}
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


def attention_bias(segment_ids_BxL: jax.Array, *, causal: bool = False) -> jax.Array:
    """What keeps attention inside segments: f32 [B, 1, L, L], 0 where allowed, else `MASKED`.

    A query in padding is allowed nothing: its softmax is then uniform, and no loss reads it.

    Args:
      segment_ids_BxL: any integers; 0 is padding.
      causal: whether a token sees itself and what is before it only.
    """
    same = segment_ids_BxL[:, :, None] == segment_ids_BxL[:, None, :]
    allowed = same & (segment_ids_BxL[:, None, :] != 0)
    if causal:
        allowed = jnp.tril(allowed)
    return jnp.where(allowed, 0.0, MASKED)[:, None].astype(jnp.float32)


def heads_of(qkv_BxLx3H: jax.Array, heads: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One product of query, key and value as three of heads, each [B, L, N, D]."""
    batch, length, width = qkv_BxLx3H.shape
    parts = qkv_BxLx3H.reshape(batch, length, 3, heads, width // 3 // heads)
    return parts[:, :, 0], parts[:, :, 1], parts[:, :, 2]


def attend(
    q_BxLxNxD: jax.Array,
    k_BxMxNxD: jax.Array,
    v_BxMxNxD: jax.Array,
    bias: jax.Array,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    key: jax.Array | None = None,
) -> jax.Array:
    """Attention of every head: [B, L, H], heads side by side.

    Args:
      q_BxLxNxD: queries.
      k_BxMxNxD: keys.
      v_BxMxNxD: values.
      bias: f32, broadcast to [B, N, L, M]; from `attention_bias`.
      scale: of the logits; None is D ** -0.5.
      dropout: of probabilities.
      key: turns dropout on.
    """
    factor = q_BxLxNxD.shape[-1] ** -0.5 if scale is None else scale
    logits_BxNxLxM = jnp.einsum(
        "blnd,bmnd->bnlm", q_BxLxNxD * factor, k_BxMxNxD, preferred_element_type=jnp.float32
    )
    # The softmax is f32 whatever the computation is: bf16 cannot tell close logits apart.
    probabilities = jax.nn.softmax(logits_BxNxLxM + bias, axis=-1).astype(v_BxMxNxD.dtype)
    probabilities = dropped(probabilities, dropout, key)
    mixed_BxLxNxD = jnp.einsum("bnlm,bmnd->blnd", probabilities, v_BxMxNxD)
    return mixed_BxLxNxD.reshape(*mixed_BxLxNxD.shape[:2], -1)


def activation(name: str) -> Callable[[jax.Array], jax.Array]:
    """The function of Hugging Face's name: "gelu_new" is GELU by its tanh formula."""
    return _ACTIVATIONS[name]


def dropped(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Dropout; with no key, `x` itself."""
    if key is None or rate == 0.0:
        return x
    keep = jax.random.bernoulli(key, 1.0 - rate, x.shape)
    return jnp.where(keep, x / (1.0 - rate), 0).astype(x.dtype)


def split_keys(key: jax.Array | None, count: int) -> list[jax.Array | None]:
    """Keys for several uses; no keys of no key."""
    return [None] * count if key is None else list(jax.random.split(key, count))


def linear(
    inputs: int,
    outputs: int,
    dtype: jnp.dtype,
    rngs: nnx.Rngs,
    *,
    deviation: float = 0.02,
    bias: bool = True,
) -> nnx.Linear:
    """A linear layer whose f32 weights begin normal; `dtype` is of the computation."""
    init = nnx.initializers.normal(deviation)
    return nnx.Linear(inputs, outputs, use_bias=bias, dtype=dtype, kernel_init=init, rngs=rngs)


def embedding(rows: int, hidden: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> nnx.Embed:
    """A table whose f32 weights begin normal of deviation 0.02."""
    init = nnx.initializers.normal(0.02)
    return nnx.Embed(rows, hidden, dtype=dtype, embedding_init=init, rngs=rngs)


def layer_norm(hidden: int, epsilon: float, dtype: jnp.dtype, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """LayerNorm over the hidden states."""
    return nnx.LayerNorm(hidden, epsilon=epsilon, dtype=dtype, rngs=rngs)


def graph(make: Callable[[jnp.dtype, nnx.Rngs], Model], dtype: jnp.dtype) -> nnx.GraphDef[Model]:
    """The model without its weights: `nnx.merge(graph, params)` is a model to call."""
    return nnx.split(nnx.eval_shape(lambda: make(dtype, nnx.Rngs(0))))[0]


def fresh_params(make: Callable[[jnp.dtype, nnx.Rngs], nnx.Module], key: jax.Array) -> Params:
    """Fresh f32 weights as nested dicts of arrays; pure, so that it can be jitted and sharded."""
    return nnx.to_pure_dict(nnx.state(make(jnp.dtype(jnp.float32), nnx.Rngs(key)), nnx.Param))
