"""Parts of encoders and decoders: embeddings, layers, caches.

A model is a graph without weights; `trainers.models.weights` supplies those as nested dicts.

Legend: B rows, L tokens a row, M tokens to attend to, H hidden, I feed-forward block, N heads,
K key and value heads, D width of a head.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx
from flax.nnx.nn.dtypes import promote_dtype

from textmill.trainers.models.families import ACTIVATIONS, Module, Weights
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.models.rope import Rope
from textmill.trainers.models.weights import Layout, to_layout
from textmill.trainers.on_flax.flax_attention import Context, attend, drop_out

Params: TypeAlias = Any  # nested dicts of f32 arrays, lists as dicts by index
Model = TypeVar("Model", bound=nnx.Module)

FLAX = Layout(
    leaves={
        "table": {"weight": "embedding"},
        "norm": {"weight": "scale", "bias": "bias"},
        "bare_norm": {"weight": "scale"},
        "scale": {"weight": "scale"},
        "offset_scale": {"weight": "scale"},
        "linear": {"weight": "kernel", "bias": "bias"},
        "matrix": {"weight": "kernel"},
        "vector": {"bias": "bias"},
    },
    is_turned=True,
)
FORMULAS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "tanh_gelu": partial(jax.nn.gelu, approximate=True),
}


ROWS = "rows"  # axis of the mesh of devices


class RmsNorm(nnx.Module):
    """x / rms(x) * (offset + scale) over the last axis, in float32.

    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019 (arXiv:1910.07467).
    """

    def __init__(self, width: int, epsilon: float, offset: float, dtype: jnp.dtype):
        self.scale = nnx.Param(jnp.full(width, 1 - offset))
        self.epsilon, self.offset, self.dtype = epsilon, offset, dtype

    def __call__(self, x: jax.Array) -> jax.Array:
        """The same shape in the computation's dtype."""
        x = x.astype(jnp.float32)
        x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + self.epsilon)
        return (x * (self.offset + self.scale[...])).astype(self.dtype)


Norm: TypeAlias = nnx.LayerNorm | RmsNorm


def normalize(x: jax.Array, norm: Norm | None) -> jax.Array:
    """`norm(x)`, or `x` itself where a model has no such norm."""
    return x if norm is None else norm(x)


def rotate(x_BxLxNxD: jax.Array, positions_BxL: jax.Array, rope: Rope) -> jax.Array:
    """Turns the pairs (i, i + D / 2) of each head by angles that grow with the position."""
    angles_BxLx1xP = positions_BxL[..., None, None] * rope.inverse_frequencies(x_BxLxNxD.shape[-1])
    cosine, sine = (turn(angles_BxLx1xP) * rope.attention_factor for turn in (jnp.cos, jnp.sin))
    first, second = jnp.split(x_BxLxNxD, 2, axis=-1)
    turned = [first * cosine - second * sine, second * cosine + first * sine]
    return jnp.concatenate(turned, axis=-1).astype(x_BxLxNxD.dtype)


class KVCache(NamedTuple):
    """Keys and values of one layer, each [B, M, K, D] of the computation's dtype."""

    keys_BxMxKxD: jax.Array
    values_BxMxKxD: jax.Array


def gather(weight: jax.Array) -> jax.Array:
    """All of a weight on each device, where a mesh (`jax.set_mesh`) may have cut it.

    Without this, the compiler would rather move activations.
    """
    if jax.sharding.get_abstract_mesh().empty:
        return weight
    return jax.lax.with_sharding_constraint(weight, jax.sharding.PartitionSpec())


def promote_and_gather(arrays: tuple[Any, ...], **how: Any) -> list[Any]:
    """Flax's `promote_dtype`, then `gather` of the weights, which are smaller after the cast."""
    arrays = tuple(promote_dtype(arrays, **how))
    inputs = 0 if len(arrays) == 1 else 1  # before the weights; an embedding has none
    return [*arrays[:inputs], *(None if w is None else gather(w) for w in arrays[inputs:])]


def split_keys(key: jax.Array | None, count: int) -> list[jax.Array | None]:
    """Keys for several uses; None each for None."""
    return [None] * count if key is None else list(jax.random.split(key, count))


def head_logits(x_BxLxE: jax.Array, table_VxE: jax.Array, multiple: int | None = None) -> jax.Array:
    """Float32 logits [B, L, V] of an output layer, for any dtype of the computation.

    The product has a multiple of `multiple` columns, of which V are returned: by default 128, as
    GPUs and TPUs compute odd sizes slowly, and V on CPUs.
    """
    return _head_logits(
        multiple or (1 if jax.default_backend() == "cpu" else 128), x_BxLxE, table_VxE
    )


# Left to JAX, the gradients of f32 logits are multiplied as f32, at half the speed of bf16 on GPUs.
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _head_logits(multiple: int, x_BxLxE: jax.Array, table_VxE: jax.Array) -> jax.Array:
    return _head_forward(multiple, x_BxLxE, table_VxE)[0]


def _head_forward(multiple: int, x_BxLxE: jax.Array, table_VxE: jax.Array):
    vocab_size = len(table_VxE)
    padded_WxE = gather(table_VxE.astype(x_BxLxE.dtype))
    padded_WxE = jnp.pad(padded_WxE, ((0, -vocab_size % multiple), (0, 0)))
    logits_BxLxW = _product("ble,we->blw", x_BxLxE, padded_WxE)
    return logits_BxLxW[..., :vocab_size], (x_BxLxE, padded_WxE)


def _head_backward(multiple: int, kept: tuple[jax.Array, jax.Array], grad_BxLxV: jax.Array):
    x_BxLxE, padded_WxE = kept
    vocab_size = grad_BxLxV.shape[-1]
    empty = len(padded_WxE) - vocab_size
    grad_BxLxW = jnp.pad(grad_BxLxV.astype(x_BxLxE.dtype), ((0, 0), (0, 0), (0, empty)))
    of_x_BxLxE = _product("blw,we->ble", grad_BxLxW, padded_WxE).astype(x_BxLxE.dtype)
    return of_x_BxLxE, _product("blw,ble->we", grad_BxLxW, x_BxLxE)[:vocab_size]


_product = partial(jnp.einsum, preferred_element_type=jnp.float32)
_head_logits.defvjp(_head_forward, _head_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _look_up(dtype: jnp.dtype, table_VxE: jax.Array, ids: jax.Array) -> jax.Array:
    return jnp.take(gather(table_VxE.astype(dtype)), ids, axis=0)


def _look_up_forward(dtype: jnp.dtype, table_VxE: jax.Array, ids: jax.Array):
    return _look_up(dtype, table_VxE, ids), (table_VxE, ids)


def _look_up_backward(dtype: jnp.dtype, kept: tuple[jax.Array, jax.Array], grad: jax.Array):
    table_VxE, ids = kept
    return jnp.zeros_like(table_VxE).at[ids].add(grad.astype(table_VxE.dtype)), None


_look_up.defvjp(_look_up_forward, _look_up_backward)


class Table(nnx.Embed):
    """A row for each id, in the dtype of the computation; their gradients are summed in float32.

    In bfloat16, rows of frequent tokens would lose most of their gradients to rounding, and GPUs
    add to bfloat16 in memory slowly.
    """

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Rows [..., E] of ids [...]."""
        return _look_up(self.dtype, self.embedding[...], inputs)


def add_parts(
    model: nnx.Module, prefix: str, config: ModelConfig, dtype: jnp.dtype, rngs: nnx.Rngs
) -> None:
    """Adds the modules of `config.modules` below a name: "layers.0." has "qkv" and others.

    `dtype` is that of the computation.
    """
    how: Any = {"dtype": dtype, "rngs": rngs, "promote_dtype": promote_and_gather}
    norm = partial(nnx.LayerNorm, epsilon=config.layer_norm_epsilon, **how)
    make: dict[str, Callable[[int, int], nnx.Module]] = {
        "table": lambda rows, width: Table(rows, width, **how),
        "norm": lambda rows, _: norm(rows),
        "bare_norm": lambda rows, _: norm(rows, use_bias=False),
        "scale": lambda rows, _: RmsNorm(rows, config.layer_norm_epsilon, 0.0, dtype),
        "offset_scale": lambda rows, _: RmsNorm(rows, config.layer_norm_epsilon, 1.0, dtype),
        "linear": lambda rows, width: nnx.Linear(width, rows, **how),
        "matrix": lambda rows, width: nnx.Linear(width, rows, use_bias=False, **how),
    }
    for module in config.modules:
        outer, dot, name = module.ours.rpartition(".")
        if outer + dot == prefix and module.kind in make:  # a vector belongs to a module
            setattr(model, name, make[module.kind](sum(module.rows), module.width))


class Embeddings(nnx.Module):
    """Tokens, positions and token types to the hidden states before the first layer."""

    tokens: Table
    positions: Table | None = None
    token_types: Table | None = None
    norm: nnx.LayerNorm | None = None
    projection: nnx.Linear

    def __init__(self, config: ModelConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        self.config = config
        add_parts(self, "embeddings.", config, dtype, rngs)

    def __call__(
        self,
        input_ids_BxL: jax.Array,
        positions_BxL: jax.Array,
        key: jax.Array | None,
        token_type_ids_BxL: jax.Array | None = None,
    ) -> jax.Array:
        """Hidden states [B, L, H]; a key turns dropout on, token types default to 0."""
        x = self.tokens(input_ids_BxL)
        if self.config.scale_embeddings:
            x = x * x.shape[-1] ** 0.5
        if self.positions is not None:
            positions = self.positions(positions_BxL + self.config.position_offset)
            if x.shape[-1] != positions.shape[-1]:
                x = self.projection(x)
            x = x + positions
        if self.token_types is not None:
            no_types = jnp.zeros((1, 1), jnp.int32)
            x = x + self.token_types(no_types if token_type_ids_BxL is None else token_type_ids_BxL)
        if self.norm is not None:
            x = self.norm(x)
        x = drop_out(x, self.config.dropout, key)
        return x if x.shape[-1] == self.config.hidden_size else self.projection(x)


class Layer(nnx.Module):
    """Self-attention and feed-forward block, each with a residual connection.

    `attention_norm` and `mlp_norm` are before the block or after the residual sum, `*_out_norm`
    between block and sum. A model has those that are in its table of modules.
    """

    qkv: nnx.Linear  # columns 0..ND-1 are queries, the next KD keys, the last KD values
    attention_out: nnx.Linear
    attention_norm: Norm | None = None
    attention_out_norm: Norm | None = None
    query_norm: RmsNorm | None = None  # over each head, or over all heads
    key_norm: RmsNorm | None = None
    mlp_in: nnx.Linear  # of a gated block, columns 0..I-1 are the gate
    mlp_out: nnx.Linear
    mlp_norm: Norm | None = None
    mlp_out_norm: Norm | None = None

    def __init__(self, config: ModelConfig, index: int, dtype: jnp.dtype, rngs: nnx.Rngs):
        self.config, self.dtype, self.scale = config, dtype, config.attention_scale(index)
        self.window, self.rope = config.window_of(index), config.rope_of(index)
        add_parts(self, f"layers.{index}.", config, dtype, rngs)

    def __call__(
        self,
        x_BxLxH: jax.Array,
        context: Context,
        *,
        cache: KVCache | None = None,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, KVCache]:
        """Hidden states [B, L, H], and the cache with these tokens' keys and values.

        A key turns dropout on; without a cache, tokens attend only to each other.
        """
        probability_key, attention_key, mlp_key = split_keys(key, 3)
        rate, before = self.config.dropout, self.config.norm_first
        normed = normalize(x_BxLxH, self.attention_norm if before else None)
        mixed, cache = self._attend(normed, context, cache, probability_key)
        mixed = normalize(mixed, self.attention_out_norm)
        x_BxLxH = x_BxLxH + drop_out(mixed, rate, attention_key)
        x_BxLxH = normalize(x_BxLxH, None if before else self.attention_norm)
        normed = normalize(x_BxLxH, self.mlp_norm if before else None)
        wide = normalize(self._feed_forward(normed), self.mlp_out_norm)
        x_BxLxH = x_BxLxH + drop_out(wide, rate, mlp_key)
        return normalize(x_BxLxH, None if before else self.mlp_norm), cache

    def _attend(
        self, x_BxLxH: jax.Array, context: Context, cache: KVCache | None, key: jax.Array | None
    ) -> tuple[jax.Array, KVCache]:
        rows, length, _ = x_BxLxH.shape
        size, widths = self.config.head_size, (self.config.heads, self.config.kv_heads)
        ends = [size * widths[0], size * sum(widths)]
        queries, keys, values = jnp.split(self.qkv(x_BxLxH), ends, axis=-1)
        queries, keys = self._heads(queries, self.query_norm), self._heads(keys, self.key_norm)
        values = self._heads(values, None)
        if self.rope is not None:
            queries, keys = (rotate(x, context.positions_BxL, self.rope) for x in (queries, keys))
        if cache is not None:
            here = jnp.arange(rows)[:, None], context.positions_BxL
            keys = cache.keys_BxMxKxD.at[here].set(keys)
            values = cache.values_BxMxKxD.at[here].set(values)
        how: Any = {"window": self.window, "softcap": self.config.attention_softcap}
        how.update(dropout=self.config.attention_dropout, key=key)
        mixed_BxLxNxD = attend(queries, keys, values, context, scale=self.scale, **how)
        return self.attention_out(mixed_BxLxNxD.reshape(rows, length, -1)), KVCache(keys, values)

    def _heads(self, x_BxLxC: jax.Array, norm: RmsNorm | None) -> jax.Array:
        """Columns as heads, [B, L, C / D, D]; a norm is as wide as one head or as all of them."""
        shape = (*x_BxLxC.shape[:2], -1, self.config.head_size)
        if norm is not None and norm.scale.shape == x_BxLxC.shape[-1:]:
            return norm(x_BxLxC).reshape(shape)
        return normalize(x_BxLxC.reshape(shape), norm)

    def _feed_forward(self, x_BxLxH: jax.Array) -> jax.Array:
        activate, wide = FORMULAS[ACTIVATIONS[self.config.activation]], self.mlp_in(x_BxLxH)
        if not self.config.is_gated:
            return self.mlp_out(activate(wide))
        gate, up = jnp.split(wide, 2, axis=-1)
        return self.mlp_out(activate(gate) * up)

    def empty_cache(self, rows: int, tokens: int) -> KVCache:
        """An empty cache for this number of tokens in each row."""
        shape = (rows, tokens, self.config.kv_heads, self.config.head_size)
        return KVCache(jnp.zeros(shape, self.dtype), jnp.zeros(shape, self.dtype))


def layers_of(config: ModelConfig, dtype: jnp.dtype, rngs: nnx.Rngs) -> Sequence[Layer]:
    """All layers of a model."""
    return nnx.List([Layer(config, index, dtype, rngs) for index in range(config.layers)])


def graph_of(kind: type[Model], config: ModelConfig, dtype: jnp.dtype) -> nnx.GraphDef[Model]:
    """The model without weights: `nnx.merge(graph, params)` is a callable model."""
    make: Any = partial(kind, config, dtype)
    return nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))[0]


def name_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of nested dicts, lists and named tuples: {"layers.0.qkv.kernel": leaf, ...}."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in pairs}


def modules_of_leaves(modules: Sequence[Module]) -> dict[str, tuple[Module, str]]:
    """The module and our name of each parameter: {"layers.0.qkv.kernel": (qkv, "weight"), ...}."""
    return {
        f"{module.ours}.{FLAX.leaves[module.kind][leaf]}": (module, leaf)
        for module in modules
        for leaf in module.leaves
    }


def to_params(weights: Weights, config: ModelConfig) -> Params:
    """Weights named as in `trainers.models.weights.shapes`, as parameters of a model here."""
    params: dict = {}
    for name, value in to_layout(weights, config, FLAX).items():
        *modules, leaf = (int(part) if part.isdecimal() else part for part in name.split("."))
        node = params
        for module in modules:
            node = node.setdefault(module, {})
        node[leaf] = value
    return params
