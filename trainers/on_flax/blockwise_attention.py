"""Attention whose memory is linear in the length, in plain JAX, on any device.

A block of queries meets one block of keys after another and keeps a running softmax; the backward
pass computes the probabilities again from the logarithms of their sums (Rabe & Staats,
"Self-attention Does Not Need O(n^2) Memory", 2021, arXiv:2112.05682; Dao, "FlashAttention-2", 2023,
arXiv:2307.08691). Keys of other documents, ahead of a causal query or outside its window are
skipped, block by block.

Legend: B rows, L tokens a row, K key and value heads, G heads that share one of these, D width of a
head, I blocks of a row, Q queries and M keys of a block.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

BLOCK = 128  # tokens; on CPUs faster than 64, 256 and 512
_EMPTY = -1e30  # the running maximum before the first key


class Rule(NamedTuple):
    """Which tokens attend to each other inside a segment, and how.

    Attributes:
      behind, ahead: the token at i attends to those at i - behind to i + ahead.
      softcap: see `flax_attention.attend`.
      block: tokens of a block.
    """

    behind: int
    ahead: int
    softcap: float = 0.0
    block: int = BLOCK

    def allows(self, distances: jax.Array) -> jax.Array:
        """Whether queries attend to keys, bool; a distance is from the key to the query."""
        return (distances <= self.behind) & (-distances <= self.ahead)


def attend_by_blocks(
    queries_BxLxNxD: jax.Array,
    keys_BxLxKxD: jax.Array,
    values_BxLxKxD: jax.Array,
    segment_ids_BxL: jax.Array,
    rule: Rule,
) -> jax.Array:
    """The result of `flax_attention.attend` for scaled queries, [B, L, N, D]; 0 for padding."""
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


def key_blocks(segment_ids_BxL: jax.Array, rule: Rule) -> tuple[jax.Array, jax.Array]:
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
def _attend(rule: Rule, queries: Any, keys: Any, values: Any, segments: Any) -> jax.Array:
    """Queries [B, K, G, L, D], keys and values [B, K, L, D] -> [B, K, G, L, D]."""
    return _forward(rule, queries, keys, values, segments)[0]


def _forward(rule: Rule, queries: Any, keys: Any, values: Any, segments: Any):
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


def _backward(rule: Rule, kept: Any, slope: jax.Array):
    queries, keys, values, segments, mixed, logs = kept
    first_I, last_I = key_blocks(segments, rule)

    def add_block(slopes, i: jax.Array):
        """Adds the slopes of all keys that a block of queries met."""
        queries_i, segments_i = _cut(queries, i, rule), _cut(segments[..., None], i, rule)
        slope_i = _cut(slope, i, rule)
        inner = (_cut(mixed, i, rule).astype(jnp.float32) * slope_i).sum(axis=-1, keepdims=True)

        def add(j: jax.Array, slopes):
            of_queries_i, of_keys, of_values = slopes
            keys_j = _cut(keys, j, rule)
            logits, bend, allowed = _logits(rule, queries_i, segments_i, keys, segments, i, j)
            shares = jnp.where(allowed, jnp.exp(logits - logs[i][..., None]), 0)
            of_shares = _einsum("bkgqd,bkmd->bkgqm", slope_i, _cut(values, j, rule))
            of_logits = (shares * (of_shares - inner) * bend).astype(keys.dtype)
            of_keys_j = _einsum("bkgqm,bkgqd->bkmd", of_logits, queries_i)
            of_values_j = _einsum("bkgqm,bkgqd->bkmd", shares.astype(values.dtype), slope_i)
            return (
                of_queries_i + _einsum("bkgqm,bkmd->bkgqd", of_logits, keys_j),
                _add_to(of_keys, of_keys_j, j, rule),
                _add_to(of_values, of_values_j, j, rule),
            )

        begin = (jnp.zeros(queries_i.shape, jnp.float32), *slopes)
        of_queries_i, *slopes = jax.lax.fori_loop(first_I[i], last_I[i], add, begin)
        return tuple(slopes), of_queries_i.astype(queries.dtype)

    zeros = jnp.zeros(keys.shape, jnp.float32)
    slopes, of_queries = jax.lax.scan(add_block, (zeros, zeros), jnp.arange(len(first_I)))
    of_queries = jnp.moveaxis(of_queries, 0, -3).reshape(queries.shape)
    return of_queries, slopes[0].astype(keys.dtype), slopes[1].astype(values.dtype), None


_attend.defvjp(_forward, _backward)
_einsum = partial(jnp.einsum, preferred_element_type=jnp.float32)


def _cut(x: jax.Array, block: jax.Array, rule: Rule) -> jax.Array:
    """A block of tokens: [..., L, D] -> [..., Q, D]."""
    return jax.lax.dynamic_slice_in_dim(x, block * rule.block, rule.block, axis=-2)


def _add_to(x: jax.Array, part: jax.Array, block: jax.Array, rule: Rule) -> jax.Array:
    sums = _cut(x, block, rule) + part
    return jax.lax.dynamic_update_slice_in_dim(x, sums, block * rule.block, axis=-2)


def _logits(rule: Rule, queries_i: Any, segments_i: Any, keys: Any, segments: Any, i: Any, j: Any):
    """f32 logits [B, K, G, Q, M] of two blocks, their slope of those before the softcap, and masks.

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
