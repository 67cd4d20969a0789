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
from trainers.on_flax.config import Plan, TrainConfig
from trainers.on_flax.masking import MaskRule, masked_anew, stored_masks
from trainers.on_flax.model import Params, graph_of
from trainers.on_flax.step import (
    Batch,
    EvaluationSums,
    Masker,
    State,
    StepMetrics,
    evaluation_step,
    fresh_state,
    learning_rate,
    optimizer_for,
    train_step,
)


@dataclass(frozen=True)
class Programs:
    """Executables for one set of shapes: they cannot recompile, only refuse.

    Attributes:
      train: (state, batch) -> (state, metrics); takes over the state's buffers.
      evaluate: (params, batch) -> sums.
      fresh: () -> the state before the first step.
      abstract_state: its shapes, dtypes and shardings.
      place: puts a batch of the reader's on the devices.
      evaluation_batch_size: rows of a batch for `evaluate`.
    """

    train: Callable[[State, Batch], tuple[State, StepMetrics]]
    evaluate: Callable[[Params, Batch], EvaluationSums]
    fresh: Callable[[], State]
    abstract_state: State
    place: Callable[[dict[str, np.ndarray]], Batch]
    evaluation_batch_size: int


def compile_programs(plan: Plan, devices: Sequence[Any] | None = None) -> Programs:
    """Compiles a run's programs.

    Args:
      plan: of the run.
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

    graph = graph_of(plan.model, _compute_dtype(config, devices))
    rate = learning_rate(config, plan.steps)
    optimizer = optimizer_for(config, rate)
    fresh = partial(fresh_state, plan.model, optimizer, config.seed)
    abstract_state = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=replicated),
        jax.eval_shape(fresh),
    )
    micro_size = config.batch_size // config.accumulation
    train = jax.jit(
        train_step(graph, optimizer, rate, _masker(plan, plan.mask_rate), mesh, config),
        donate_argnums=0,
        out_shardings=replicated,
    )
    evaluate = jax.jit(
        evaluation_step(graph, _masker(plan, plan.evaluation_mask_rate)), out_shardings=replicated
    )
    train_batch = abstract_batch(plan.schema, config.batch_size, by_row)
    evaluation_batch = abstract_batch(plan.schema, micro_size, by_row)
    return Programs(
        train=train.lower(abstract_state, train_batch).compile(),
        evaluate=evaluate.lower(abstract_state["params"], evaluation_batch).compile(),
        fresh=jax.jit(fresh, out_shardings=replicated),
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


def _masker(plan: Plan, rate: float | None) -> Masker:
    if rate is None:
        return stored_masks
    return partial(masked_anew, rule=MaskRule.of(plan.schema, rate), seed=plan.config.seed)


def _compute_dtype(config: TrainConfig, devices: Sequence[Any]) -> jnp.dtype:
    if config.precision != "auto":
        return jnp.dtype(config.precision)
    return jnp.dtype(jnp.float32 if devices[0].platform == "cpu" else jnp.bfloat16)
