"""What encoders and decoders are made of: positions, what may attend to what, attention, layers.

A model is a graph without weights; those come from `trainers.models.weights` as nested dicts.

Legend: B rows, L tokens a row, M tokens to attend to, H hidden, I feed-forward block, N heads,
D = H / N.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from trainers.models.modules import Weights
from trainers.models.weights import Layout, from_layout, to_layout

Params: TypeAlias = Any  # nested dicts of f32 arrays, lists as dicts by index
Model = TypeVar("Model", bound=nnx.Module)

_LAYOUT = Layout(
    leaves={
        "table": {"weight": "embedding"},
        "norm": {"weight": "scale", "bias": "bias"},
        "scale": {"weight": "scale"},
        "linear": {"weight": "kernel", "bias": "bias"},
        "matrix": {"weight": "kernel"},
        "vector": {"bias": "bias"},
    },
    is_turned=True,
)
_TANH_GELU = partial(jax.nn.gelu, approximate=True)
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {  # by Hugging Face's names
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


class Context(NamedTuple):
    """What a layer is told of its tokens besides their hidden states."""

    positions_BxL: jax.Array  # in the segment, from 0 on
    # F32, added to the logits of attention, broadcast to [B, N, L, M]; without a cache M is L.
    bias: jax.Array
    places_BxL: jax.Array | None = None  # in the cache, where there is one


class Cache(NamedTuple):
    """Keys and values of one layer, each [B, M, N, D] of the computation's dtype."""

    keys_BxMxNxD: jax.Array
    values_BxMxNxD: jax.Array


def packed_context(segment_ids_BxL: jax.Array, *, causal: bool) -> Context:
    """Keeps positions and attention inside the segments of packed rows.

    A query in padding is allowed nothing: its softmax is then uniform, and no loss reads it.

    Args:
      segment_ids_BxL: any integers; 0 is padding.
      causal: whether a token sees itself and what is before it only.
    """
    is_same = segment_ids_BxL[:, :, None] == segment_ids_BxL[:, None, :]
    is_allowed = is_same & (segment_ids_BxL[:, None, :] != 0)
    if causal:
        is_allowed = jnp.tril(is_allowed)
    bias_Bx1xLxL = jnp.where(is_allowed, 0.0, MASKED)[:, None].astype(jnp.float32)
    return Context(positions_from_segments(segment_ids_BxL), bias_Bx1xLxL)


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


def dropped(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Dropout; with no key, `x` itself."""
    if key is None or rate == 0.0:
        return x
    keep = jax.random.bernoulli(key, 1.0 - rate, x.shape)
    return jnp.where(keep, x / (1.0 - rate), 0).astype(x.dtype)


def split_keys(key: jax.Array | None, count: int) -> list[jax.Array | None]:
    """Keys for several uses; no keys of no key."""
    return [None] * count if key is None else list(jax.random.split(key, count))


def head_logits(x_BxLxE: jax.Array, table_VxE: jax.Array) -> jax.Array:
    """Logits [B, L, V] of an output layer, f32 whatever the computation is."""
    table_VxE = table_VxE.astype(x_BxLxE.dtype)
    return jnp.einsum("ble,ve->blv", x_BxLxE, table_VxE, preferred_element_type=jnp.float32)


def norm(config: Any, width: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """The norm of a model's hidden states."""
    return nnx.LayerNorm(width, epsilon=config.layer_norm_epsilon, dtype=dtype, rngs=rngs)


class Layer(nnx.Module):
    """Self-attention and a feed-forward block, each with a norm before it or after its residual."""

    def __init__(
        self,
        config: Any,
        dtype: jnp.dtype,
        rngs: nnx.Rngs,
        *,
        norm_first: bool,
        scale: float,
        attention_dropout: float,
    ):
        """Makes the modules; `dtype` is of the computation, `scale` of the logits of attention."""
        self.config, self.dtype, self.norm_first = config, dtype, norm_first
        self.scale, self.attention_dropout = scale, attention_dropout
        hidden, linear = config.hidden_size, partial(nnx.Linear, dtype=dtype, rngs=rngs)
        # Query, key and value in one product: columns 0..H-1, H..2H-1, 2H..3H-1.
        self.qkv = linear(hidden, 3 * hidden)
        self.attention_out = linear(hidden, hidden)
        self.attention_norm = norm(config, hidden, dtype, rngs)
        self.mlp_in = linear(hidden, config.intermediate_size)
        self.mlp_out = linear(config.intermediate_size, hidden)
        self.mlp_norm = norm(config, hidden, dtype, rngs)

    def __call__(
        self,
        x_BxLxH: jax.Array,
        context: Context,
        *,
        cache: Cache | None = None,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, Cache]:
        """One layer.

        Args:
          x_BxLxH: hidden states.
          context: of the tokens.
          cache: of the tokens before; these tokens' keys and values are written into it.
          key: turns dropout on.

        Returns:
          Hidden states [B, L, H], and the cache with these tokens in it.
        """
        probability_key, attention_key, mlp_key = split_keys(key, 3)
        normed = self.attention_norm(x_BxLxH) if self.norm_first else x_BxLxH
        mixed, cache = self._attend(normed, context, cache, probability_key)
        x_BxLxH = x_BxLxH + dropped(mixed, self.config.dropout, attention_key)
        if not self.norm_first:
            x_BxLxH = self.attention_norm(x_BxLxH)
        normed = self.mlp_norm(x_BxLxH) if self.norm_first else x_BxLxH
        x_BxLxH = x_BxLxH + dropped(self._feed_forward(normed), self.config.dropout, mlp_key)
        return x_BxLxH if self.norm_first else self.mlp_norm(x_BxLxH), cache

    # Not jax.nn.dot_product_attention: it gives the same bits, but knows no dropout, and takes 15 %
    # longer in f32 and 50 % in bf16, with its gradient, on a CPU (B 8, L 128, N 8, D 64; JAX 0.10).
    def _attend(
        self, x_BxLxH: jax.Array, context: Context, cache: Cache | None, key: jax.Array | None
    ) -> tuple[jax.Array, Cache]:
        rows, length, _ = x_BxLxH.shape
        qkv = self.qkv(x_BxLxH).reshape(rows, length, 3, self.config.heads, -1)
        queries, keys, values = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        if cache is not None:
            rows_Bx1 = jnp.arange(rows)[:, None]
            keys = cache.keys_BxMxNxD.at[rows_Bx1, context.places_BxL].set(keys)
            values = cache.values_BxMxNxD.at[rows_Bx1, context.places_BxL].set(values)
        logits_BxNxLxM = jnp.einsum(
            "blnd,bmnd->bnlm", queries * self.scale, keys, preferred_element_type=jnp.float32
        )
        # The softmax is f32 whatever the computation is: bf16 cannot tell close logits apart.
        shares = jax.nn.softmax(logits_BxNxLxM + context.bias, axis=-1).astype(values.dtype)
        shares = dropped(shares, self.attention_dropout, key)
        mixed_BxLxNxD = jnp.einsum("bnlm,bmnd->blnd", shares, values)
        return self.attention_out(mixed_BxLxNxD.reshape(rows, length, -1)), Cache(keys, values)

    def _feed_forward(self, x_BxLxH: jax.Array) -> jax.Array:
        return self.mlp_out(ACTIVATIONS[self.config.activation](self.mlp_in(x_BxLxH)))

    def empty_cache(self, rows: int, places: int) -> Cache:
        """A cache for so many tokens of each row, with nothing in it."""
        config = self.config
        shape = (rows, places, config.heads, config.hidden_size // config.heads)
        return Cache(jnp.zeros(shape, self.dtype), jnp.zeros(shape, self.dtype))


def graph_of(kind: type[Model], config: Any, dtype: jnp.dtype) -> nnx.GraphDef[Model]:
    """The model without its weights: `nnx.merge(graph, params)` is a model to call."""
    make: Any = partial(kind, config, dtype)
    return nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))[0]


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of nested dicts, lists and named tuples: {"layers.0.qkv.kernel": leaf, ...}."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in pairs}


def to_params(weights: Weights, config: Any) -> Params:
    """Weights by the names of `trainers.models.weights.shapes`, as a model here takes them."""
    params: dict = {}
    for name, value in to_layout(weights, config, _LAYOUT).items():
        *modules, leaf = (int(part) if part.isdecimal() else part for part in name.split("."))
        place = params
        for module in modules:
            place = place.setdefault(module, {})
        place[leaf] = value
    return params


def to_weights(params: Params, config: Any) -> Weights:
    """What `to_params` gave, or gradients of it, by our names again: copies on the host."""
    # A view instead of a copy would keep the next step from using the device's buffer again.
    values = {name: np.array(value) for name, value in named_leaves(params).items()}
    return from_layout(values, config, _LAYOUT)
