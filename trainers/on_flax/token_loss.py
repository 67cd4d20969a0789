"""The loss of tokens: sums over those that count, with few logits in memory at a time.

Legend: B rows of a batch or microbatch, T tokens of a row, H width of the head's input, C chunks,
V vocabulary.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

from textmill.trainers.tasks.language_models import CORRECT, COUNTED, LOSS

Sums: TypeAlias = dict[str, jax.Array]  # f32, over the tokens that count
LOGITS = 1 << 26  # of a chunk on a CPU; 256 MiB
PIECES = 16  # of a row in which few tokens count


def token_sums(logits: jax.Array, labels: jax.Array, weights: jax.Array) -> Sums:
    """Weighted sums over tokens [B, T] with f32 logits [B, T, V]: loss (nats), hits, weights."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    hits = logits.argmax(-1) == labels
    return {
        LOSS: (losses * weights).sum(),
        CORRECT: (hits * weights).sum(),
        COUNTED: weights.sum(),
    }


def sums_in_chunks(
    logits_of: Callable[[jax.Array], jax.Array],
    x_BxTxH: jax.Array,
    labels_BxT: jax.Array,
    weights_BxT: jax.Array,
    chunks: int | None,
    vocab_size: int,
    *,
    sparse: bool = False,
) -> Sums:
    """`token_sums` of `logits_of(x)`, for one chunk of each row's tokens after another.

    With `sparse`, tokens that count come first in each row, at least `PIECES` chunks are made, and
    chunks in which no token counts are skipped: in conversations few tokens count.

    One chunk's logits are in memory, and computed once: the gradients of LOSS, the only ones of all
    sums, follow a chunk's loss at once (Hsu et al., "Liger Kernel: Efficient Triton Kernels for LLM
    Training", 2024, arXiv:2410.10989). The default is as few chunks as keep each below `LOGITS` on
    a CPU, and below 4 times as many on a GPU or TPU, where many small products take longer.
    """
    rows, tokens = labels_BxT.shape
    if chunks is None:
        limit = LOGITS if jax.default_backend() == "cpu" else 4 * LOGITS
        chunks = -(-rows * tokens * vocab_size // (limit * jax.device_count()))
        chunks = max(chunks, PIECES) if sparse else chunks
    size = -(-tokens // min(chunks, tokens))
    if size == tokens:
        return token_sums(logits_of(x_BxTxH), labels_BxT, weights_BxT)

    used: Any = -(-tokens // size)  # chunks
    if sparse:
        order_BxT = jnp.argsort(weights_BxT == 0, axis=1, stable=True)
        labels_BxT = jnp.take_along_axis(labels_BxT, order_BxT, axis=1)
        weights_BxT = jnp.take_along_axis(weights_BxT, order_BxT, axis=1)
        x_BxTxH = jnp.take_along_axis(x_BxTxH, order_BxT[..., None], axis=1)
        used = -(-(weights_BxT != 0).sum(axis=1).max() // size)

    def cut(values: jax.Array) -> jax.Array:
        """[B, T, ...] to [C, B, T / C, ...], with zeros at the end."""
        padding = [(0, 0), (0, -tokens % size)] + [(0, 0)] * (values.ndim - 2)
        pieces = jnp.pad(values, padding).reshape(rows, -1, size, *values.shape[2:])
        return pieces.swapaxes(0, 1)

    x, labels, weights = map(cut, (x_BxTxH, labels_BxT, weights_BxT))
    logits_of, params = jax.closure_convert(logits_of, x[0])

    def sums_of(params, x, labels, weights):
        sums = token_sums(logits_of(x, *params), labels, weights)
        return sums[LOSS], sums

    zeros = {name: jnp.zeros(()) for name in (LOSS, CORRECT, COUNTED)}

    def chunk(x, number):
        return tuple(values[number] for values in (x, labels, weights))

    @jax.custom_vjp
    def sums_of_all(params, x):
        def add(number, sums):
            return jax.tree.map(jnp.add, sums, sums_of(params, *chunk(x, number))[1])

        return jax.lax.fori_loop(0, used, add, zeros)

    def forward(params, x):
        def add(number, before):
            sums, grads_of_x = before
            of, parts = jax.grad(sums_of, (0, 1), has_aux=True)(params, *chunk(x, number))
            sums = jax.tree.map(jnp.add, sums, (parts, of[0]))
            return sums, grads_of_x.at[number].set(of[1])

        first = (zeros, jax.tree.map(jnp.zeros_like, params)), jnp.zeros_like(x)
        (sums, of_params), of_x = jax.lax.fori_loop(0, used, add, first)
        return sums, (of_params, of_x)

    def backward(grads, factors):
        return jax.tree.map(lambda grad: (grad * factors[LOSS]).astype(grad.dtype), grads)

    sums_of_all.defvjp(forward, backward)
    return sums_of_all(params, x)
