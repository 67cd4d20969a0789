"""Masked language modeling on devices: the encoder, its masks and its loss.

Legend: B rows, K masked slots a row, V vocabulary.
"""

from functools import partial

import jax
from flax import nnx

from trainers.on_flax.flax_encoder import EncoderForMaskedLM
from trainers.on_flax.flax_program import DeviceBatch, Sums, compute_dtype, token_sums
from trainers.on_flax.layers import Params, graph_of
from trainers.on_flax.masking import MaskedRows, masked_anew, stored_masks
from trainers.run.program import Plan
from trainers.tasks.mlm import mask_rates


class MlmObjective:
    """A `trainers.on_flax.flax_program.FlaxObjective`."""

    def __init__(self, plan: Plan):
        """Takes the run's encoder and how it masks."""
        dtype = compute_dtype(plan.flags.precision)
        self._graph = graph_of(EncoderForMaskedLM, plan.model, dtype)
        self._rates = mask_rates(plan.flags, plan.schema)
        self._anew = partial(masked_anew, schema=plan.schema, seed=plan.flags.seed)

    def rows(self, batch: DeviceBatch, *, training: bool) -> MaskedRows:
        """Rows with the masks they carry, or with new ones."""
        rate = self._rates.training if training else self._rates.evaluation
        return stored_masks(batch) if rate is None else self._anew(batch, rate=rate)

    def weight(self, rows: MaskedRows) -> jax.Array:
        """Masked tokens."""
        return rows.weights.sum()

    def sums(self, params: Params, rows: MaskedRows, key: jax.Array | None) -> Sums:
        """Of all slots in use."""
        model = nnx.merge(self._graph, params)
        logits_BxKxV = model(rows.input_ids, rows.segment_ids, rows.positions, key)
        return token_sums(logits_BxKxV, rows.labels, rows.weights)
