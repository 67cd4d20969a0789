"""Causal language modeling on devices: the decoder and its loss.

Legend: B rows, L tokens a row, V vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from trainers.on_flax.decoder import graph_of
from trainers.on_flax.flax_program import DeviceBatch, Sums, compute_dtype
from trainers.on_flax.layers import Params
from trainers.run.program import Plan


class CausalRows(NamedTuple):
    """What the model reads and is to predict.

    Attributes:
      input_ids: int32 [B, L].
      segment_ids: int32 [B, L].
      weights: f32 [B, L], 1 where predicting THIS token counts.
    """

    input_ids: jax.Array
    segment_ids: jax.Array
    weights: jax.Array


class ClmObjective:
    """A `trainers.on_flax.flax_program.Objective`."""

    def __init__(self, plan: Plan):
        """Takes the run's decoder."""
        self._graph = graph_of(plan.model, compute_dtype(plan.flags.precision))

    def rows(self, batch: DeviceBatch, *, training: bool) -> CausalRows:
        """Rows as they are stored, in the dtypes of the computation."""
        return CausalRows(
            batch["input_ids"].astype(jnp.int32),
            batch["segment_ids"].astype(jnp.int32),
            batch["loss_weights"].astype(jnp.float32),
        )

    def weight(self, rows: CausalRows) -> jax.Array:
        """Tokens that are predicted."""
        return rows.weights[:, 1:].sum()

    def sums(self, params: Params, rows: CausalRows, key: jax.Array | None) -> Sums:
        """Of every token given those before it in its segment."""
        model = nnx.merge(self._graph, params)
        logits_BxLxV = model(rows.input_ids, rows.segment_ids, key)[:, :-1]
        labels, weights = rows.input_ids[:, 1:], rows.weights[:, 1:]
        losses = optax.softmax_cross_entropy_with_integer_labels(logits_BxLxV, labels)
        hits = (logits_BxLxV.argmax(-1) == labels) * weights
        return Sums((losses * weights).sum(), hits.sum(), weights.sum())
