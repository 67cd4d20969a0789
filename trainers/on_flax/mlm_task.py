"""Masked language modeling for the loop: the encoder, its masks and its loss.

Legend: B rows, K masked slots a row, V vocabulary.
"""

import math
from collections.abc import Mapping
from functools import partial

import jax
import optax
from flax import nnx

from trainers.models.hf_files import Tensors, tokenizer_settings, write_directory
from trainers.on_flax.config import MlmPlan
from trainers.on_flax.encoder_files import config_json
from trainers.on_flax.layers import Params
from trainers.on_flax.masking import MaskedRows, MaskRule, masked_anew, stored_masks
from trainers.on_flax.model import graph_of, init_params
from trainers.on_flax.programs import compute_dtype
from trainers.on_flax.task import Batch, Sums
from trainers.on_flax.weights import from_hugging_face, names_found, to_hugging_face


class MlmTask:
    """A `trainers.on_flax.task.Task`."""

    unit = "nats a masked token"
    counts = "masked"

    def __init__(self, plan: MlmPlan, tokenizer_json: bytes | None = None):
        """Takes the plan; no weights yet.

        Args:
          plan: of the run.
          tokenizer_json: of its shards, to export with the weights.
        """
        self.plan, self._tokenizer = plan, tokenizer_json
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
        """Those of --init_from."""
        plan = self.plan
        if plan.published is None:
            return None
        key = jax.random.key(plan.config.seed)
        return from_hugging_face(
            plan.published,
            plan.model,
            jax.eval_shape(self.fresh, key),
            place=f"--init_from={plan.config.init_from}",
            fresh=lambda: jax.device_get(jax.jit(self.fresh)(key)),
            seed=plan.config.seed,
        )

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
        """What published weights lack or leave, and how masks of the device differ."""
        plan, notes = self.plan, []
        if plan.published is not None:
            notes += self._notes_on(plan.published)
        unit = plan.schema.mask_unit
        if plan.mask_rate is not None and unit != "token":
            notes.append(
                f"masks made on the device pick single tokens, not {unit}s as the set's own do"
            )
        return notes

    def _notes_on(self, published: Tensors) -> list[str]:
        found, plan = names_found(published, self.plan.model), self.plan
        notes = []
        if found.headless:
            notes.append("--init_from holds an encoder alone: the output head begins anew")
        if found.other_heads:
            notes.append(f"left out, of other heads: {', '.join(found.other_heads)}")
        if plan.published_vocabulary < plan.model.vocab_size:
            notes.append(
                f"the vocabulary grows from {plan.published_vocabulary:,} tokens of --init_from to "
                f"the set's {plan.model.vocab_size:,}: new ones begin near the mean of the old"
            )
        return notes

    def export(self, path: str, params: Params) -> None:
        """Writes the weights as a directory that transformers opens, with the tokenizer."""
        schema, model = self.plan.schema, self.plan.model
        settings = None
        if self._tokenizer is not None:
            longest = model.max_positions
            settings = tokenizer_settings(self._tokenizer, schema.special_ids, max_length=longest)
        write_directory(
            path,
            config_json(model, schema.special_ids),
            to_hugging_face(params, model),
            self._tokenizer,
            settings,
        )
