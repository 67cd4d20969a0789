"""BERT, RoBERTa, ELECTRA's generator and ModernBERT, with the masked-language-model head.

Devlin et al., "BERT", 2019 (arXiv:1810.04805); Liu et al., "RoBERTa", 2019 (arXiv:1907.11692);
Clark et al., "ELECTRA", 2020 (arXiv:2003.10555); Warner et al., "ModernBERT", 2024
(arXiv:2412.13663). All are one module, compatible with published weights: layers, a head with a
dense layer, an activation and a norm, and the switches of `ModelConfig`. Rows are packed: attention
and positions stay inside segments.

Legend: B rows, L tokens a row, K masked slots a row, H hidden, E embedding, V vocabulary.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from textmill.schemas.format.features import max_masked_slots
from textmill.schemas.format.metadata import Schema
from textmill.trainers.flags.framework_flags import FlaxComputeFlags
from textmill.trainers.flags.task_flags import MlmFlags
from textmill.trainers.models.families import ACTIVATIONS
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.on_flax.flax_attention import Context, attention_kind, packed_context
from textmill.trainers.on_flax.flax_program import DeviceBatch, FlaxProgram
from textmill.trainers.on_flax.layers import (
    FORMULAS,
    Embeddings,
    Norm,
    Params,
    Table,
    add_parts,
    graph_of,
    head_logits,
    layers_of,
    normalize,
    split_keys,
)
from textmill.trainers.on_flax.precision import compute_dtype
from textmill.trainers.on_flax.token_loss import Sums, sums_in_chunks
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.training_task import TrainingTask
from textmill.trainers.tasks.language_models import mask_rates


class MaskedHead(nnx.Module):
    """Hidden states to logits of the vocabulary."""

    dense: nnx.Linear
    norm: nnx.LayerNorm
    table: Table | None = None

    def __init__(self, config: ModelConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        self.config, self.bias = config, nnx.Param(jnp.zeros(config.vocab_size))
        add_parts(self, "head.", config, dtype, rngs)

    def __call__(self, x_BxKxH: jax.Array, tokens: Table) -> jax.Array:
        """Float32 logits [B, K, V]; `tokens` is the output layer of a tied model."""
        activation = FORMULAS[ACTIVATIONS[self.config.head_activation]]
        x_BxKxE = self.norm(activation(self.dense(x_BxKxH)))
        table = tokens if self.table is None else self.table
        return head_logits(x_BxKxE, table.embedding[...]) + self.bias[...]


class EncoderForMaskedLM(nnx.Module):
    """Packed rows to logits at the masked positions."""

    final_norm: Norm | None = None

    def __init__(self, config: ModelConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        self.embeddings = Embeddings(config, dtype, rngs)
        self.layers = layers_of(config, dtype, rngs)
        add_parts(self, "", config, dtype, rngs)
        self.head = MaskedHead(config, dtype, rngs)

    def hidden(
        self,
        input_ids_BxL: jax.Array,
        context: Context,
        masked_positions_BxK: jax.Array,
        *,
        key: jax.Array | None = None,
        token_type_ids_BxL: jax.Array | None = None,
        remat: bool = False,
    ) -> jax.Array:
        """The input of the head, [B, K, H], at the masked positions; a key turns dropout on.

        With `remat` the backward pass computes each layer again instead of keeping its activations.
        """
        keys = split_keys(key, 1 + len(self.layers))
        x_BxLxH = self.embeddings(input_ids_BxL, context.positions_BxL, keys[0], token_type_ids_BxL)
        for layer, layer_key in zip(self.layers, keys[1:], strict=True):
            call = partial(layer, context=context, key=layer_key)
            x_BxLxH, _ = (jax.checkpoint(call) if remat else call)(x_BxLxH)
        slots_BxKx1 = masked_positions_BxK[..., None].astype(jnp.int32)
        x_BxKxH = jnp.take_along_axis(x_BxLxH, slots_BxKx1, axis=1)
        return normalize(x_BxKxH, self.final_norm)

    def logits(self, x_BxKxH: jax.Array) -> jax.Array:
        """Float32 logits [B, K, V] from the result of `hidden`."""
        return self.head(x_BxKxH, self.embeddings.tokens)

    def __call__(
        self,
        input_ids_BxL: jax.Array,
        segment_ids_BxL: jax.Array,
        masked_positions_BxK: jax.Array,
        dropout_key: jax.Array | None = None,
        token_type_ids_BxL: jax.Array | None = None,
    ) -> jax.Array:
        """Float32 logits [B, K, V] at the masked positions: K / L of the cost at all positions.

        Segment 0 is padding; token types default to 0; a key turns dropout on.
        """
        context = packed_context(segment_ids_BxL, causal=False)
        more: Any = {"key": dropout_key, "token_type_ids_BxL": token_type_ids_BxL}
        return self.logits(self.hidden(input_ids_BxL, context, masked_positions_BxK, **more))


AS_MASK, AS_RANDOM = 0.8, 0.1


class MaskedRows(NamedTuple):
    """Inputs and labels of the model."""

    input_ids: jax.Array  # int32 [B, L], masked
    segment_ids: jax.Array  # int32 [B, L]
    positions: jax.Array  # int32 [B, K], where tokens were masked
    labels: jax.Array  # int32 [B, K], the original tokens
    weights: jax.Array  # f32 [B, K], 1 for a slot in use


def row_bits(seed: int, row_index_Bx2: jax.Array, epoch_B: jax.Array, count: int) -> jax.Array:
    """`count` random uint32 for every (row, epoch): [B, count].

    The row's index in its split is two uint32, the low half first.
    """

    def bits_of(row: jax.Array, epoch: jax.Array) -> jax.Array:
        key = jax.random.wrap_key_data(row, impl="threefry2x32")  # the index is the 64-bit key
        key = jax.random.fold_in(jax.random.fold_in(key, epoch), seed)
        return jax.random.bits(key, (count,), jnp.uint32)

    return jax.vmap(bits_of)(row_index_Bx2, epoch_B)


def read_masks(batch: dict[str, jax.Array]) -> MaskedRows:
    """The static masks of the rows."""
    return MaskedRows(
        batch["input_ids"].astype(jnp.int32),
        batch["segment_ids"].astype(jnp.int32),
        batch["masked_positions"].astype(jnp.int32),
        batch["masked_ids"].astype(jnp.int32),
        batch["masked_weights"].astype(jnp.float32),
    )


def undo_masks(batch: dict[str, jax.Array]) -> jax.Array:
    """The ids before static masking, int32 [B, L]; unchanged if rows have no masks."""
    ids_BxL = batch["input_ids"].astype(jnp.int32)
    if "masked_positions" not in batch:
        return ids_BxL
    masks = read_masks(batch)
    return _put(ids_BxL, masks.positions, masks.weights > 0, masks.labels)


def draw_masks(
    batch: dict[str, jax.Array], *, schema: Schema, rate: float, seed: int
) -> MaskedRows:
    """Dynamic masks of the rows in their epochs; static masks are undone first.

    Args:
      batch: integer columns of the rows, with `row_index` uint32 [B, 2] and `epoch` uint32 [B].
      schema: its special ids are neither masked nor drawn.
      rate: share of a row's ordinary tokens to mask, rounded, at least one.
      seed: the run's in training, the dataset's in evaluations; below 2**32.
    """
    specials = np.asarray(sorted(set(schema.all_special_ids)), np.int32)
    slots = max_masked_slots(schema.max_length, rate)
    ids_BxL = undo_masks(batch)
    segment_ids_BxL = batch["segment_ids"].astype(jnp.int32)
    ordinary_BxL = (segment_ids_BxL > 0) & ~(ids_BxL[..., None] == specials).any(-1)
    length = ids_BxL.shape[1]
    bits = row_bits(seed, batch["row_index"], batch["epoch"], length + 2 * slots)
    order_BxL, way_BxK, token_BxK = jnp.split(bits, [length, length + slots], axis=1)

    # The K smallest numbers are a sample without replacement; special tokens sort last.
    order_BxL = jnp.where(ordinary_BxL, order_BxL >> 1, jnp.uint32(0xFFFFFFFF))
    positions_BxK = jnp.argsort(order_BxL, axis=1)[:, :slots].astype(jnp.int32)
    ordinary_Bx1 = ordinary_BxL.sum(axis=1, keepdims=True)
    picked_Bx1 = jnp.clip(jnp.round(rate * ordinary_Bx1).astype(jnp.int32), 1, slots)
    used_BxK = jnp.arange(slots) < jnp.minimum(picked_Bx1, ordinary_Bx1)
    labels_BxK = jnp.take_along_axis(ids_BxL, positions_BxK, axis=1)

    random_BxK = _ordinary(token_BxK, specials, schema.vocab_size)
    new_BxK = jnp.where(way_BxK < _below(AS_MASK + AS_RANDOM), random_BxK, labels_BxK)
    new_BxK = jnp.where(way_BxK < _below(AS_MASK), schema.special_ids["mask"], new_BxK)
    input_ids_BxL = _put(ids_BxL, positions_BxK, used_BxK, new_BxK)
    weights_BxK = used_BxK.astype(jnp.float32)
    return MaskedRows(input_ids_BxL, segment_ids_BxL, positions_BxK, labels_BxK, weights_BxK)


def _below(share: float) -> jax.Array:
    """The bound below which this share of random uint32 are."""
    return jnp.uint32(round(share * (1 << 32)))


def _ordinary(bits: jax.Array, specials: np.ndarray, vocab_size: int) -> jax.Array:
    """Random bits to ordinary ids, uniformly (to a relative error of V / 2**32)."""
    number = (bits % jnp.uint32(vocab_size - len(specials))).astype(jnp.int32)
    # The r-th ordinary id is r plus the number of special ids at or below it.
    gaps = jnp.asarray(specials - np.arange(len(specials), dtype=np.int32))
    return number + (number[..., None] >= gaps).sum(-1)


def _put(
    ids_BxL: jax.Array, slots_BxK: jax.Array, used_BxK: jax.Array, new_BxK: jax.Array
) -> jax.Array:
    # An empty slot points past the row and is dropped: it must not overwrite position 0.
    slots_BxK = jnp.where(used_BxK, slots_BxK, ids_BxL.shape[1])
    return ids_BxL.at[jnp.arange(len(ids_BxL))[:, None], slots_BxK].set(new_BxK, mode="drop")


class MlmObjective:
    """A `trainers.on_flax.flax_program.FlaxObjective`."""

    def __init__(self, plan: TrainingPlan):
        compute, task = plan.flags.compute, plan.flags.task
        assert isinstance(compute, FlaxComputeFlags) and isinstance(task, MlmFlags)
        dtype = compute_dtype(compute.precision)
        self._graph = graph_of(EncoderForMaskedLM, plan.model, dtype)
        self._compute, self.attention = compute, attention_kind(plan, dtype)
        self._vocab_size = plan.model.vocab_size
        self._rates = mask_rates(task, plan.schema)
        self._schema, self._seed = plan.schema, plan.flags.compute.seed

    def rows(self, batch: DeviceBatch, *, training: bool) -> MaskedRows:
        """Rows with static or dynamic masks."""
        # Masks of evaluations depend on the dataset only, so that runs compare.
        evaluation = self._rates.evaluation, self._schema.seed % (1 << 32)
        rate, seed = (self._rates.training, self._seed) if training else evaluation
        if rate is None:
            return read_masks(batch)
        return draw_masks(batch, schema=self._schema, rate=rate, seed=seed)

    def weight(self, rows: MaskedRows) -> jax.Array:
        """The number of masked tokens."""
        return rows.weights.sum()

    def sums(self, params: Params, rows: MaskedRows, key: jax.Array | None) -> Sums:
        """Sums over all masked tokens."""
        model, compute = nnx.merge(self._graph, params), self._compute
        context = packed_context(rows.segment_ids, causal=False, kind=self.attention)
        how: Any = {"key": key, "remat": compute.remat}
        x_BxKxH = model.hidden(rows.input_ids, context, rows.positions, **how)
        masked = x_BxKxH, rows.labels, rows.weights
        return sums_in_chunks(model.logits, *masked, compute.loss_chunks, self._vocab_size)


def make_program(plan: TrainingPlan, task: TrainingTask) -> FlaxProgram:
    """Masked language modeling."""
    return FlaxProgram(plan, MlmObjective(plan))
