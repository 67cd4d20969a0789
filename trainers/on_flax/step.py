"""The jitted steps: one that trains, one that evaluates. What they compute of rows is the task's.

Legend: B rows, A microbatches.
"""

from collections.abc import Callable
from typing import NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trainers.on_flax.layers import Params
from trainers.on_flax.optimizer import Rate
from trainers.on_flax.run_config import RunConfig
from trainers.on_flax.task import Batch, Rows, Sums, Task


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
      loss: mean cross-entropy of the tokens that count, nats.
      tokens: that are not padding.
      counted: tokens the loss is the mean of.
      gradient_norm: before clipping.
      learning_rate: that was used.
    """

    loss: jax.Array
    tokens: jax.Array
    counted: jax.Array
    gradient_norm: jax.Array
    learning_rate: jax.Array


def state_of(params: Params, optimizer: optax.GradientTransformation) -> State:
    """The state before the first step, of f32 weights; pure."""
    return State(params=params, optimizer=optimizer.init(params), step=jnp.zeros((), jnp.uint32))


def train_step(
    task: Task,
    optimizer: optax.GradientTransformation,
    rate: Rate,
    mesh: Mesh,
    config: RunConfig,
) -> Callable[[State, Batch], tuple[State, StepMetrics]]:
    """Makes the pure function (state, batch) -> (state, metrics) that the loop jits.

    The loss is the mean over the tokens that count in the whole batch, whatever the microbatches:
    each adds its sum, divided by the batch's total weight.
    """

    def gradients(params: Params, rows: Rows, total: jax.Array, key: jax.Array | None):
        return jax.value_and_grad(lambda params: task.sums(params, rows, key).loss / total)(params)

    def step(state: State, batch: Batch) -> tuple[State, StepMetrics]:
        rows = task.rows(batch, training=True)
        counted = task.weight(rows)
        total = jnp.maximum(counted, 1.0)
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
        used_rate = jnp.asarray(rate(state["step"]), jnp.float32)
        metrics = StepMetrics(loss, tokens, counted, optax.tree.norm(grads), used_rate)
        return State(params=params, optimizer=optimizer_state, step=state["step"] + 1), metrics

    return step


def microbatches(rows: Rows, count: int, mesh: Mesh) -> Rows:
    """[B, ...] to [A, B / A, ...]: row i goes to microbatch i % A.

    Dealing rows out instead of cutting the batch keeps every row on the device that holds it.
    """
    sharding = NamedSharding(mesh, PartitionSpec(None, *mesh.axis_names))

    def deal(value: jax.Array) -> jax.Array:
        dealt = value.reshape(value.shape[0] // count, count, *value.shape[1:]).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(dealt, sharding)

    return jax.tree.map(deal, rows)


def evaluation_step(task: Task) -> Callable[[Params, Batch], Sums]:
    """Makes the pure function (params, batch) -> sums; padding rows add nothing."""

    def step(params: Params, batch: Batch) -> Sums:
        return task.sums(params, task.rows(batch, training=False), None)

    return step
