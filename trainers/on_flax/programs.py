"""A run's programs, compiled from the contract's shapes before the first batch is read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from schemas.errors import UsageError
from schemas.sidecar import Schema
from trainers.on_flax.layers import Params
from trainers.on_flax.optimizer import learning_rate, optimizer_for
from trainers.on_flax.run_config import Plan
from trainers.on_flax.step import State, StepMetrics, evaluation_step, state_of, train_step
from trainers.on_flax.task import Batch, Sums, Task


@dataclass(frozen=True)
class Programs:
    """Executables for one set of shapes: they cannot recompile, only refuse.

    Attributes:
      train: (state, batch) -> (state, metrics); takes over the state's buffers.
      evaluate: (params, batch) -> sums.
      first: () -> the state before the first step.
      abstract_state: its shapes, dtypes and shardings.
      place: puts a batch of the reader's on the devices.
      evaluation_batch_size: rows of a batch for `evaluate`.
    """

    train: Callable[[State, Batch], tuple[State, StepMetrics]]
    evaluate: Callable[[Params, Batch], Sums]
    first: Callable[[], State]
    abstract_state: State
    place: Callable[[dict[str, np.ndarray]], Batch]
    evaluation_batch_size: int


def compile_programs(plan: Plan, task: Task, devices: Sequence[Any] | None = None) -> Programs:
    """Compiles a run's programs.

    Args:
      plan: of the run.
      task: its model and loss.
      devices: to share batches over; the default is all local ones.

    Raises:
      UsageError: the batch cannot be shared by that many devices.
    """
    config = plan.config
    devices = devices or jax.local_devices()
    if config.batch_size % (len(devices) * config.accumulation):
        raise UsageError(
            f"--batch_size={config.batch_size} cannot be shared by {len(devices)} devices in "
            f"{config.accumulation} microbatches: give a multiple of "
            f"{len(devices) * config.accumulation}"
        )
    mesh = Mesh(np.array(devices), ("rows",))
    replicated = NamedSharding(mesh, PartitionSpec())
    by_row = NamedSharding(mesh, PartitionSpec("rows"))

    rate = learning_rate(config, plan.steps)
    optimizer = optimizer_for(config, rate)

    def fresh() -> State:
        return state_of(task.fresh(jax.random.key(config.seed)), optimizer)

    jitted_fresh = jax.jit(fresh, out_shardings=replicated)
    jitted_state = jax.jit(partial(state_of, optimizer=optimizer), out_shardings=replicated)

    def first() -> State:
        published = task.published()
        return jitted_fresh() if published is None else jitted_state(published)

    abstract_state = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=replicated),
        jax.eval_shape(fresh),
    )
    micro_size = config.batch_size // config.accumulation
    train = jax.jit(
        train_step(task, optimizer, rate, mesh, config), donate_argnums=0, out_shardings=replicated
    )
    evaluate = jax.jit(evaluation_step(task), out_shardings=replicated)
    train_batch = abstract_batch(plan.schema, config.batch_size, by_row)
    evaluation_batch = abstract_batch(plan.schema, micro_size, by_row)
    return Programs(
        train=train.lower(abstract_state, train_batch).compile(),
        evaluate=evaluate.lower(abstract_state["params"], evaluation_batch).compile(),
        first=first,
        abstract_state=abstract_state,
        place=partial(place, names=tuple(train_batch), sharding=by_row),
        evaluation_batch_size=micro_size,
    )


def abstract_batch(schema: Schema, rows: int, sharding: NamedSharding) -> Batch:
    """Shapes and dtypes of a batch on the devices: the stored features, and what keys the masks."""
    stored = {feature.name: feature for feature in schema.features}
    batch = {
        name: jax.ShapeDtypeStruct((rows, *feature.shape), feature.dtype, sharding=sharding)
        for name, feature in stored.items()
    }
    batch["row_index"] = jax.ShapeDtypeStruct((rows, 2), jnp.uint32, sharding=sharding)
    batch["epoch"] = jax.ShapeDtypeStruct((rows,), jnp.uint32, sharding=sharding)
    return batch  # type: ignore[return-value]


def place(
    batch: dict[str, np.ndarray], *, names: tuple[str, ...], sharding: NamedSharding
) -> Batch:
    """A batch of the reader's on the devices, in its narrow dtypes; 64-bit indices as two words."""
    words = np.ascontiguousarray(batch["row_index"], "<i8").view("<u4").reshape(-1, 2)
    batch = dict(batch, row_index=words, epoch=batch["epoch"].astype(np.uint32))
    return jax.device_put({name: batch[name] for name in names}, sharding)


def compute_dtype(precision: str) -> jnp.dtype:
    """Of the computation: what `--precision` says, or what suits the devices."""
    if precision != "auto":
        return jnp.dtype(precision)
    platform = jax.local_devices()[0].platform
    return jnp.dtype(jnp.float32 if platform == "cpu" else jnp.bfloat16)
