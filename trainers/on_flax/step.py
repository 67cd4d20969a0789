"""The jitted steps: one that trains, one that evaluates.

Legend: B rows, K masked slots a row, V vocabulary, A microbatches.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trainers.on_flax.config import ModelConfig, TrainConfig
from trainers.on_flax.masking import MaskedRows
from trainers.on_flax.model import Params, init_params

Batch = dict[str, jax.Array]
Rate = Callable[[Any], jax.Array]  # steps done -> learning rate
Masker = Callable[[Batch], MaskedRows]


class State(TypedDict):
    """What training changes, and all that a checkpoint holds.

    Attributes:
      params: f32 weights.
      optimizer: optax's state.
      step: uint32, steps done.
    """

    params: Params
    optimizer: optax.OptState
    step: jax.Array


class StepMetrics(NamedTuple):
    """Of one step, f32 scalars.

    Attributes:
      loss: mean cross-entropy of the masked tokens, nats.
      tokens: that are not padding.
      masked: tokens the loss is the mean of.
      gradient_norm: before clipping.
      learning_rate: that was used.
    """

    loss: jax.Array
    tokens: jax.Array
    masked: jax.Array
    gradient_norm: jax.Array
    learning_rate: jax.Array


class EvaluationSums(NamedTuple):
    """Sums over masked tokens, f32: of cross-entropy, of hits, of tokens."""

    loss: jax.Array
    correct: jax.Array
    masked: jax.Array


def learning_rate(config: TrainConfig, steps: int) -> Rate:
    """Linear up to the highest over the warm-up, then linear down; no step has a rate of 0."""
    warmup = max(1, steps // 10 if config.warmup_steps is None else config.warmup_steps)

    def rate(steps_done: Any) -> jax.Array:
        step = jnp.asarray(steps_done, jnp.float32) + 1
        rise = step / warmup
        fall = (steps + 1 - step) / max(1, steps + 1 - warmup)
        return config.learning_rate * jnp.clip(jnp.minimum(rise, fall), 0.0, 1.0)

    return rate


def optimizer_for(config: TrainConfig, rate: Rate) -> optax.GradientTransformation:
    """Clipping and AdamW; biases and norms (vectors) do not decay."""
    adamw = optax.adamw(
        rate,
        b1=config.beta1,
        b2=config.beta2,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        mask=lambda params: jax.tree.map(lambda value: value.ndim > 1, params),
    )
    if not config.clip_norm:
        return adamw
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), adamw)


def fresh_state(model: ModelConfig, optimizer: optax.GradientTransformation, seed: int) -> State:
    """Weights and optimizer before the first step; pure."""
    params = init_params(model, jax.random.key(seed))
    return State(params=params, optimizer=optimizer.init(params), step=jnp.zeros((), jnp.uint32))


def _cross_entropy(
    graph: nnx.GraphDef, params: Params, rows: MaskedRows, key: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Cross-entropy [B, K] of every slot, 0 where empty; and the logits [B, K, V]."""
    model = nnx.merge(graph, params)
    logits = model(rows.input_ids, rows.segment_ids, rows.positions, key)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, rows.labels)
    return losses * rows.weights, logits


def train_step(
    graph: nnx.GraphDef,
    optimizer: optax.GradientTransformation,
    rate: Rate,
    masker: Masker,
    mesh: Mesh,
    config: TrainConfig,
) -> Callable[[State, Batch], tuple[State, StepMetrics]]:
    """Makes the pure function (state, batch) -> (state, metrics) that the loop jits.

    The loss is the mean over the masked tokens of the whole batch, whatever the microbatches: each
    adds its sum, divided by the batch's total weight.
    """

    def gradients(params: Params, rows: MaskedRows, total: jax.Array, key: jax.Array | None):
        def loss(params: Params) -> jax.Array:
            return _cross_entropy(graph, params, rows, key)[0].sum() / total

        return jax.value_and_grad(loss)(params)

    def step(state: State, batch: Batch) -> tuple[State, StepMetrics]:
        rows = masker(batch)
        masked = rows.weights.sum()
        total = jnp.maximum(masked, 1.0)
        key = None
        if config.dropout:
            key = jax.random.fold_in(jax.random.key(config.seed), state["step"])
        if config.accumulation == 1:
            loss, grads = gradients(state["params"], rows, total, key)
        else:
            micro = microbatches(rows, config.accumulation, mesh)

            def add(sums, numbered):
                number, rows = numbered
                micro_key = None if key is None else jax.random.fold_in(key, number)
                found = gradients(state["params"], rows, total, micro_key)
                return jax.tree.map(jnp.add, sums, found), None

            zeros = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, state["params"]))
            numbers = jnp.arange(config.accumulation)
            (loss, grads), _ = jax.lax.scan(add, zeros, (numbers, micro))
        updates, optimizer_state = optimizer.update(grads, state["optimizer"], state["params"])
        params: Params = optax.apply_updates(state["params"], updates)
        tokens = (batch["segment_ids"] > 0).sum().astype(jnp.float32)
        norm = optax.tree.norm(grads)
        metrics = StepMetrics(loss, tokens, masked, norm, rate(state["step"]))
        return State(params=params, optimizer=optimizer_state, step=state["step"] + 1), metrics

    return step


def microbatches(rows: MaskedRows, count: int, mesh: Mesh) -> MaskedRows:
    """[B, ...] to [A, B / A, ...]: row i goes to microbatch i % A.

    Dealing rows out instead of cutting the batch keeps every row on the device that holds it.
    """
    sharding = NamedSharding(mesh, PartitionSpec(None, *mesh.axis_names))

    def deal(value: jax.Array) -> jax.Array:
        dealt = value.reshape(value.shape[0] // count, count, *value.shape[1:]).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(dealt, sharding)

    return jax.tree.map(deal, rows)


def evaluation_step(
    graph: nnx.GraphDef, masker: Masker
) -> Callable[[Params, Batch], EvaluationSums]:
    """Makes the pure function (params, batch) -> sums; padding rows add nothing."""

    def step(params: Params, batch: Batch) -> EvaluationSums:
        rows = masker(batch)
        losses, logits = _cross_entropy(graph, params, rows, None)
        hits = (logits.argmax(-1) == rows.labels) * rows.weights
        return EvaluationSums(losses.sum(), hits.sum(), rows.weights.sum())

    return step
