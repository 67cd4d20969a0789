"""Causal language modeling on devices: the decoder and its loss.

Legend: B rows, L tokens a row, V vocabulary.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from trainers.on_flax.flax_decoder import DecoderForCausalLM
from trainers.on_flax.flax_program import DeviceBatch, Sums, compute_dtype, token_sums
from trainers.on_flax.layers import Params, graph_of
from trainers.run.program import Plan


class ClmObjective:
    """A `trainers.on_flax.flax_program.FlaxObjective`."""

    def __init__(self, plan: Plan):
        """Takes the run's decoder."""
        dtype = compute_dtype(plan.flags.precision)
        self._graph = graph_of(DecoderForCausalLM, plan.model, dtype)

    def rows(self, batch: DeviceBatch, *, training: bool) -> DeviceBatch:
        """Rows as they are stored; `loss_weights` are 1 where predicting THIS token counts."""
        dtypes = {"input_ids": jnp.int32, "segment_ids": jnp.int32, "loss_weights": jnp.float32}
        return {name: batch[name].astype(dtype) for name, dtype in dtypes.items()}

    def weight(self, rows: DeviceBatch) -> jax.Array:
        """Tokens that are predicted."""
        return rows["loss_weights"][:, 1:].sum()

    def sums(self, params: Params, rows: DeviceBatch, key: jax.Array | None) -> Sums:
        """Of every token given those before it in its segment."""
        model = nnx.merge(self._graph, params)
        logits_BxLxV = model(rows["input_ids"], rows["segment_ids"], key)[:, :-1]
        return token_sums(logits_BxLxV, rows["input_ids"][:, 1:], rows["loss_weights"][:, 1:])
