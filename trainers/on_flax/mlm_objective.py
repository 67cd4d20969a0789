"""Masked language modeling on devices: the encoder, its masks and its loss.

Legend: B rows, K masked slots a row, V vocabulary.
"""

from functools import partial

import jax
import optax
from flax import nnx

from trainers.on_flax.encoder import graph_of
from trainers.on_flax.flax_program import DeviceBatch, Sums, compute_dtype
from trainers.on_flax.layers import Params
from trainers.on_flax.masking import MaskedRows, MaskRule, masked_anew, stored_masks
from trainers.run.program import Plan
from trainers.tasks.mlm import mask_rates


class MlmObjective:
    """A `trainers.on_flax.flax_program.Objective`."""

    def __init__(self, plan: Plan):
        """Takes the run's encoder and its masks."""
        self._graph = graph_of(plan.model, compute_dtype(plan.flags.precision))
        rates = mask_rates(plan.flags, plan.schema)
        self._masked = {
            True: _masker(plan, rates.training),
            False: _masker(plan, rates.evaluation),
        }

    def rows(self, batch: DeviceBatch, *, training: bool) -> MaskedRows:
        """Rows with the masks they carry, or with new ones."""
        return self._masked[training](batch)

    def weight(self, rows: MaskedRows) -> jax.Array:
        """Masked tokens."""
        return rows.weights.sum()

    def sums(self, params: Params, rows: MaskedRows, key: jax.Array | None) -> Sums:
        """Of all slots in use."""
        model = nnx.merge(self._graph, params)
        logits_BxKxV = model(rows.input_ids, rows.segment_ids, rows.positions, key)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits_BxKxV, rows.labels)
        hits = (logits_BxKxV.argmax(-1) == rows.labels) * rows.weights
        return Sums((losses * rows.weights).sum(), hits.sum(), rows.weights.sum())


def _masker(plan: Plan, rate: float | None):
    """What makes the masks: those that are stored, or as many as `rate` asks for."""
    if rate is None:
        return stored_masks
    return partial(masked_anew, rule=MaskRule.of(plan.schema, rate), seed=plan.flags.seed)
