"""Attention inside the segments of packed rows, or over a cache, as one function.

    context = packed_context(segment_ids_BxL, causal=True)
    mixed_BxLxNxD = attend(queries, keys, values, context, scale=D**-0.5, window=4096)

Legend: B rows, L tokens a row, M tokens to attend to, N heads, K key and value heads, G = N / K
heads that share one of these, D width of a head. By blocks: I blocks of a row, Q queries and M keys
of a block.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention
from jax.extend.backend import get_backend

from textmill.schemas.errors import UsageError, flag
from textmill.trainers.flags.framework_flags import FlaxComputeFlags
from textmill.trainers.run.plan import TrainingPlan

MASKED = -1e9  # added to attention logits that must not count; exp() of it is 0 in f32
SPLASH_BLOCK = 512  # tokens, a multiple of 128
SHORT = 256  # tokens of a row; on CPUs "dense" is as fast as "blockwise" up to here
BLOCK = 128  # tokens; on CPUs faster than 64, 256 and 512
_EMPTY = -1e30  # the running maximum before the first key


class Context(NamedTuple):
    """Positions of the tokens, and which others they attend to."""

    positions_BxL: jax.Array  # int32, in the segment, from 0 on
    # int32; tokens attend to those of their own segment, and 0 is padding. None if the keys are a
    # cache: the key of position p is at index p.
    segment_ids_BxL: jax.Array | None = None
    causal: bool = True  # tokens do not attend to later ones; always, with a cache
    kind: str = "dense"  # how it is computed, or a key of KINDS; "dense" with a cache


def packed_context(segment_ids_BxL: jax.Array, *, causal: bool, kind: str = "dense") -> Context:
    """Keeps positions and attention inside the segments of packed rows; segment 0 is padding."""
    return Context(positions_from_segments(segment_ids_BxL), segment_ids_BxL, causal, kind)


def positions_from_segments(segment_ids_BxL: jax.Array) -> jax.Array:
    """`schemas.format.features.positions_from_segments` on the device: int32 [B, L].

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


class MaskRule(NamedTuple):
    """Which tokens attend to each other inside a segment, and how."""

    behind: int  # the token at i attends to those at i - behind to i + ahead
    ahead: int
    softcap: float = 0.0  # see `attend`
    block: int = BLOCK  # tokens of a block

    def allows(self, distances: jax.Array) -> jax.Array:
        """Whether queries attend to keys, bool; a distance is from the key to the query."""
        return (distances <= self.behind) & (-distances <= self.ahead)


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
    tokens = keys_BxMxKxD.shape[1]
    if window:
        behind, ahead = (window - 1, 0) if context.causal else (window // 2, window // 2)
    else:
        behind, ahead = tokens, 0 if context.causal else tokens
    rule, segments = MaskRule(behind, ahead, softcap), context.segment_ids_BxL
    queries_BxLxNxD = queries_BxLxNxD * scale
    if context.kind != "dense":
        assert segments is not None  # a cache is read by "dense"
        return KINDS[context.kind](queries_BxLxNxD, keys_BxMxKxD, values_BxMxKxD, segments, rule)
    groups = queries_BxLxNxD.shape[2] // keys_BxMxKxD.shape[2]
    keys, values = (jnp.repeat(x, groups, axis=2) for x in (keys_BxMxKxD, values_BxMxKxD))
    # jax.nn.dot_product_attention gives the same bits, but has no dropout, and with its gradient
    # takes 15 % longer in f32 and 50 % in bf16 on a CPU (B 8, L 128, N 8, D 64; JAX 0.10).
    logits_BxNxLxM = jnp.einsum(
        "blnd,bmnd->bnlm", queries_BxLxNxD, keys, preferred_element_type=jnp.float32
    )
    if softcap:
        logits_BxNxLxM = softcap * jnp.tanh(logits_BxNxLxM / softcap)
    bias_Bx1xLxM = jnp.where(_allowed(context, rule, tokens), 0.0, MASKED)[:, None]
    # The softmax is always f32: bf16 rounds close logits to one value.
    shares = jax.nn.softmax(logits_BxNxLxM + bias_Bx1xLxM.astype(jnp.float32), axis=-1)
    shares = drop_out(shares.astype(values.dtype), dropout, key)
    return jnp.einsum("bnlm,bmnd->blnd", shares, values)


def _allowed(context: Context, rule: MaskRule, tokens: int) -> jax.Array:
    """Whether each query attends to each of this many keys: bool [B, L, M]."""
    index_M, segments = jnp.arange(tokens), context.segment_ids_BxL
    if segments is None:
        return rule.allows(context.positions_BxL[..., None] - index_M)
    is_same = segments[:, :, None] == segments[:, None, :]
    return is_same & (segments != 0)[:, None] & rule.allows(index_M[:, None] - index_M)


def blockwise_attention(
    queries_BxLxNxD: jax.Array,
    keys_BxLxKxD: jax.Array,
    values_BxLxKxD: jax.Array,
    segment_ids_BxL: jax.Array,
    rule: MaskRule,
) -> jax.Array:
    """The result of `attend` for scaled queries, [B, L, N, D]; 0 for padding.

    Plain JAX on any device, with memory that is linear in the length. A block of queries meets one
    block of keys after another and keeps a running softmax; the backward pass computes the
    probabilities again from the logarithms of their sums (Rabe & Staats, "Self-attention Does Not
    Need O(n^2) Memory", 2021, arXiv:2112.05682; Dao, "FlashAttention-2", 2023, arXiv:2307.08691).
    Keys of other documents, ahead of a causal query or outside its window are skipped, block by
    block.
    """
    rows, length, heads, width = queries_BxLxNxD.shape
    groups, pad = keys_BxLxKxD.shape[2], -length % rule.block
    if length < rule.block:
        rule, pad = rule._replace(block=length), 0

    def turn(x_BxLxNxD: jax.Array) -> jax.Array:
        x_BxNxLxD = jnp.pad(x_BxLxNxD, ((0, 0), (0, pad), (0, 0), (0, 0))).swapaxes(1, 2)
        return x_BxNxLxD.reshape(rows, groups, -1, length + pad, width)

    segments = jnp.pad(segment_ids_BxL, ((0, 0), (0, pad)))
    queries, keys, values = map(turn, (queries_BxLxNxD, keys_BxLxKxD, values_BxLxKxD))
    mixed: Any = _attend(rule, queries, keys[:, :, 0], values[:, :, 0], segments)
    return mixed.reshape(rows, heads, -1, width)[:, :, :length].swapaxes(1, 2)


def key_blocks(segment_ids_BxL: jax.Array, rule: MaskRule) -> tuple[jax.Array, jax.Array]:
    """The first block of keys for each block of queries, and one past the last: int32 [I] each.

    All rows share them. A segment should be in one piece: what is between its pieces is computed
    too, and masked.
    """
    ids_BxIxQ = segment_ids_BxL.reshape(len(segment_ids_BxL), -1, rule.block)
    highest_BxI = ids_BxIxQ.max(axis=2)
    lowest_BxI = jnp.where(ids_BxIxQ == 0, jnp.iinfo(jnp.int32).max, ids_BxIxQ).min(axis=2)
    # Two ranges of segments overlap unless one begins after the other's end.
    begins_BxIxI = lowest_BxI[:, :, None] <= highest_BxI[:, None, :]
    meets_IxI = (begins_BxIxI & begins_BxIxI.swapaxes(1, 2)).any(axis=0)
    starts_I = jnp.arange(len(meets_IxI)) * rule.block
    least_IxI = starts_I[:, None] - starts_I - (rule.block - 1)  # index of a query minus of a key
    meets_IxI &= (least_IxI <= rule.behind) & (least_IxI.T <= rule.ahead)
    first_I = meets_IxI.argmax(axis=1)
    last_I = len(meets_IxI) - meets_IxI[:, ::-1].argmax(axis=1)
    return first_I, jnp.where(meets_IxI.any(axis=1), last_I, first_I)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(rule: MaskRule, queries: Any, keys: Any, values: Any, segments: Any) -> jax.Array:
    """Queries [B, K, G, L, D], keys and values [B, K, L, D] -> [B, K, G, L, D]."""
    return _forward(rule, queries, keys, values, segments)[0]


def _forward(rule: MaskRule, queries: Any, keys: Any, values: Any, segments: Any):
    first_I, last_I = key_blocks(segments, rule)

    def of_queries(i: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The result of a block of queries, and the logarithm of its sums."""
        queries_i, segments_i = _cut(queries, i, rule), _cut(segments[..., None], i, rule)

        def add(j: jax.Array, sums):
            highest, total, mixed = sums
            logits, _, allowed = _logits(rule, queries_i, segments_i, keys, segments, i, j)
            higher = jnp.maximum(highest, jnp.where(allowed, logits, _EMPTY).max(axis=-1))
            shares = jnp.where(allowed, jnp.exp(logits - higher[..., None]), 0)
            fade = jnp.exp(highest - higher)
            values_j = _cut(values, j, rule)
            added = _einsum("bkgqm,bkmd->bkgqd", shares.astype(values.dtype), values_j)
            return higher, fade * total + shares.sum(axis=-1), fade[..., None] * mixed + added

        zeros = jnp.zeros(queries_i.shape, jnp.float32)
        nothing = (jnp.full(zeros.shape[:-1], _EMPTY), zeros[..., 0], zeros)
        highest, total, mixed = jax.lax.fori_loop(first_I[i], last_I[i], add, nothing)
        total = jnp.where(total == 0, 1, total)  # padding attends to nothing
        return (mixed / total[..., None]).astype(values.dtype), highest + jnp.log(total)

    mixed, logs = jax.lax.map(of_queries, jnp.arange(len(first_I)))
    mixed = jnp.moveaxis(mixed, 0, -3).reshape(queries.shape)
    return mixed, (queries, keys, values, segments, mixed, logs)


def _backward(rule: MaskRule, kept: Any, grad: jax.Array):
    queries, keys, values, segments, mixed, logs = kept
    first_I, last_I = key_blocks(segments, rule)

    def add_block(grads, i: jax.Array):
        """Adds the gradients of all keys that a block of queries met."""
        queries_i, segments_i = _cut(queries, i, rule), _cut(segments[..., None], i, rule)
        grad_i = _cut(grad, i, rule)
        inner = (_cut(mixed, i, rule).astype(jnp.float32) * grad_i).sum(axis=-1, keepdims=True)

        def add(j: jax.Array, grads):
            of_queries_i, of_keys, of_values = grads
            keys_j = _cut(keys, j, rule)
            logits, bend, allowed = _logits(rule, queries_i, segments_i, keys, segments, i, j)
            shares = jnp.where(allowed, jnp.exp(logits - logs[i][..., None]), 0)
            of_shares = _einsum("bkgqd,bkmd->bkgqm", grad_i, _cut(values, j, rule))
            of_logits = (shares * (of_shares - inner) * bend).astype(keys.dtype)
            of_keys_j = _einsum("bkgqm,bkgqd->bkmd", of_logits, queries_i)
            of_values_j = _einsum("bkgqm,bkgqd->bkmd", shares.astype(values.dtype), grad_i)
            return (
                of_queries_i + _einsum("bkgqm,bkmd->bkgqd", of_logits, keys_j),
                _add_to(of_keys, of_keys_j, j, rule),
                _add_to(of_values, of_values_j, j, rule),
            )

        begin = (jnp.zeros(queries_i.shape, jnp.float32), *grads)
        of_queries_i, *grads = jax.lax.fori_loop(first_I[i], last_I[i], add, begin)
        return tuple(grads), of_queries_i.astype(queries.dtype)

    zeros = jnp.zeros(keys.shape, jnp.float32)
    grads, of_queries = jax.lax.scan(add_block, (zeros, zeros), jnp.arange(len(first_I)))
    of_queries = jnp.moveaxis(of_queries, 0, -3).reshape(queries.shape)
    return of_queries, grads[0].astype(keys.dtype), grads[1].astype(values.dtype), None


_einsum = partial(jnp.einsum, preferred_element_type=jnp.float32)


def _cut(x: jax.Array, block: jax.Array, rule: MaskRule) -> jax.Array:
    """A block of tokens: [..., L, D] -> [..., Q, D]."""
    return jax.lax.dynamic_slice_in_dim(x, block * rule.block, rule.block, axis=-2)


def _add_to(x: jax.Array, part: jax.Array, block: jax.Array, rule: MaskRule) -> jax.Array:
    sums = _cut(x, block, rule) + part
    return jax.lax.dynamic_update_slice_in_dim(x, sums, block * rule.block, axis=-2)


def _logits(
    rule: MaskRule, queries_i: Any, segments_i: Any, keys: Any, segments: Any, i: Any, j: Any
):
    """f32 logits [B, K, G, Q, M] of two blocks, the derivative of the softcap, and masks.

    Masks are bool [B, 1, 1, Q, M].
    """
    logits = _einsum("bkgqd,bkmd->bkgqm", queries_i, _cut(keys, j, rule))
    bend: Any = 1.0
    if rule.softcap:
        share = jnp.tanh(logits / rule.softcap)
        logits, bend = rule.softcap * share, 1 - share**2
    segments_j = _cut(segments[..., None], j, rule).swapaxes(1, 2)
    index = jnp.arange(rule.block)
    distance = (i - j) * rule.block + index[:, None] - index  # from the key to the query
    allowed = rule.allows(distance) & (segments_i == segments_j) & (segments_j != 0)
    return logits, bend, allowed[:, None, None]


def by_cudnn(
    queries: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    segment_ids_BxL: jax.Array,
    rule: MaskRule,
    *,
    implementation: Literal["cudnn", "xla"] = "cudnn",
) -> jax.Array:
    """`attend` by cuDNN's kernel, without a softcap; "xla" runs on any device, for tests.

    The kernel knows no segments: they are a mask [B, 1, L, L], which all layers share.
    """
    index_L = jnp.arange(queries.shape[1])
    # Padding attends to padding, so that no query is without a key.
    mask_BxLxL = segment_ids_BxL[:, :, None] == segment_ids_BxL[:, None, :]
    mask_BxLxL &= rule.allows(index_L[:, None] - index_L)
    return jax.nn.dot_product_attention(
        queries,
        keys,
        values,
        mask=mask_BxLxL[:, None],
        scale=1.0,
        is_causal=not rule.ahead,  # in the mask too, but here the kernel skips blocks
        implementation=implementation,
    )


def by_splash(
    queries: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    segment_ids_BxL: jax.Array,
    rule: MaskRule,
    *,
    interpret: bool = False,
) -> jax.Array:
    """`attend` by JAX's kernel for TPUs, which each device calls for its own rows.

    `interpret` runs it on any device, for tests.
    """
    length, heads = queries.shape[1:3]
    block = min(SPLASH_BLOCK, length + -length % 128)
    pad = -length % block
    shape, window = (length + pad, length + pad), (rule.behind, rule.ahead)
    sizes: Any = [block] * 8  # of queries and keys, forwards and backwards
    kernel: Any = splash_attention.make_splash_mha(
        splash_attention.MultiHeadMask([splash_attention.LocalMask(shape, window, 0)] * heads),
        block_sizes=splash_attention.BlockSizes(*sizes),
        attn_logits_soft_cap=rule.softcap or None,
        head_shards=1,
        q_seq_shards=1,
        interpret=interpret,
    )

    def of_rows(segments: jax.Array, *arrays: jax.Array) -> jax.Array:
        ids = splash_attention.SegmentIds(segments, segments)
        return jax.vmap(kernel)(*arrays, segment_ids=ids)

    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.empty:  # XLA cannot share out the kernel's work
        rows = jax.sharding.PartitionSpec(mesh.axis_names)
        of_rows = jax.shard_map(of_rows, in_specs=rows, out_specs=rows, check_vma=False)
    padded = [jnp.pad(x, ((0, 0), (0, pad), (0, 0), (0, 0))) for x in (queries, keys, values)]
    segments_BxL = jnp.pad(segment_ids_BxL, ((0, 0), (0, pad)))
    mixed_BxNxLxD = of_rows(segments_BxL, *(x.swapaxes(1, 2) for x in padded))
    return mixed_BxNxLxD.swapaxes(1, 2)[:, :length]


KINDS: Mapping[str, Callable[..., jax.Array]] = {
    "blockwise": blockwise_attention,
    "cudnn": by_cudnn,
    "splash": by_splash,
}


class Machine(NamedTuple):
    """The device and the model: both decide which kinds of attention are possible."""

    platform: str  # "cpu", "cuda", "rocm" or "tpu"
    dtype: jnp.dtype  # of the computation
    dropout: bool  # on attention probabilities
    head_size: int  # D
    length: int  # L
    softcap: bool = False  # on attention logits

    def obstacle(self, kind: str) -> str | None:
        """Why a kind of attention cannot be computed, and the remedy; None if it can."""
        if kind != "dense" and self.dropout:
            return (
                f"has no dropout on attention probabilities: give {flag('attention', 'dense')} or "
                f"{flag('dropout', 0)}"
            )
        if kind == "splash" and self.platform != "tpu":
            return f"runs on TPUs, and this is a {self.platform}: give {flag('attention', 'auto')}"
        if kind != "cudnn":
            return None
        if self.platform != "cuda":
            return (
                f"runs on NVIDIA's GPUs, and this is a {self.platform}: give "
                f"{flag('attention', 'auto')}"
            )
        if self.dtype == jnp.float32:
            return (
                f"has no float32: give {flag('precision', 'bfloat16')} or "
                f"{flag('attention', 'blockwise')}"
            )
        if self.head_size % 8 or self.head_size > 128:
            return (
                "needs heads with a width of at most 128, a multiple of 8, and this model's are "
                f"{self.head_size} wide: give {flag('attention', 'blockwise')}"
            )
        if self.softcap:
            return f"has no soft caps on attention logits: give {flag('attention', 'blockwise')}"
        if self.length % 2:
            return (
                f"needs rows of an even length, not {self.length}: give "
                f"{flag('attention', 'blockwise')}"
            )
        return None

    def choose(self, requested: str) -> str:
        """The kind of `--attention`: itself, or for "auto" the first that can be computed.

        Raises:
          UsageError: the requested kind cannot be computed here.
        """
        if requested != "auto":
            obstacle = self.obstacle(requested)
            if obstacle:
                raise UsageError(f"{flag('attention', requested)} {obstacle}")
            return requested
        kinds = ("splash", "cudnn", *(["blockwise"] if self.length > SHORT else []), "dense")
        return next(kind for kind in kinds if not self.obstacle(kind))


def attention_kind(plan: TrainingPlan, dtype: jnp.dtype) -> str:
    """The kind that `--attention` means for a plan on this machine, see `Machine.choose`."""
    compute, model = plan.flags.compute, plan.model
    assert isinstance(compute, FlaxComputeFlags)
    platform = jax.default_backend()
    if platform == "gpu":
        platform = "rocm" if "rocm" in get_backend().platform_version else "cuda"
    return Machine(
        platform,
        dtype,
        dropout=model.attention_dropout > 0,
        head_size=model.head_size,
        length=plan.schema.max_length,
        softcap=model.attention_softcap > 0,
    ).choose(compute.attention)


_attend.defvjp(_forward, _backward)
