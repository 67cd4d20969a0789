"""Masked language modeling for the loop: the encoder, its masks and its loss.

Legend: B rows, K masked slots a row, V vocabulary.
"""

import math
from collections.abc import Mapping
from functools import partial

import jax
import optax
from flax import nnx

from trainers.on_flax.config import MlmPlan
from trainers.on_flax.layers import Params
from trainers.on_flax.masking import MaskedRows, MaskRule, masked_anew, stored_masks
from trainers.on_flax.model import graph_of, init_params
from trainers.on_flax.programs import compute_dtype
from trainers.on_flax.task import Batch, Sums


class MlmTask:
    """A `trainers.on_flax.task.Task`."""

    unit = "nats a masked token"
    counts = "masked"

    def __init__(self, plan: MlmPlan):
        """Takes the plan; no weights yet."""
        self.plan = plan
        self._graph = graph_of(plan.model, compute_dtype(plan.config.precision))
        self._masked = {
            True: self._masker(plan.mask_rate),
            False: self._masker(plan.evaluation_mask_rate),
        }

    def _masker(self, rate: float | None):
        if rate is None:
            return stored_masks
        rule = MaskRule.of(self.plan.schema, rate)
        return partial(masked_anew, rule=rule, seed=self.plan.config.seed)

    def fresh(self, key: jax.Array) -> Params:
        """Weights before the first step."""
        return init_params(self.plan.model, key)

    def published(self) -> Params | None:
        """None: training begins with fresh weights."""
        return None

    def rows(self, batch: Batch, *, training: bool) -> MaskedRows:
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

    def evaluation(self, sums: Sums) -> dict[str, float]:
        """Loss, accuracy, perplexity and the number of masked tokens."""
        loss = float(sums.loss / sums.counted)
        return {
            "loss": loss,
            "accuracy": float(sums.correct / sums.counted),
            "perplexity": math.exp(min(loss, 700.0)),  # a float ends at exp(709)
            "masked": float(sums.counted),
        }

    def said(self, evaluation: Mapping[str, float]) -> str:
        """The same for people."""
        return (
            f"loss {evaluation['loss']:.4f}, accuracy {evaluation['accuracy']:.2%}, perplexity "
            f"{evaluation['perplexity']:,.1f}"
        )

    def notes(self) -> list[str]:
        """Where masks of the device are of another unit than the set's."""
        unit = self.plan.schema.mask_unit
        if self.plan.mask_rate is None or unit == "token":
            return []
        return [f"masks made on the device pick single tokens, not {unit}s as the set's own do"]

    def export(self, path: str, params: Params) -> None:
        """Writes the weights as a directory that transformers opens."""
        raise TypeError(f"{path}: no weights")
