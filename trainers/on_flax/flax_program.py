"""A model on JAX's devices: compiled steps, weights, the optimizer's state.

Training and evaluation steps are compiled from the schema's shapes before the first row is read; a
batch of another shape is an error, never a recompilation. A `FlaxObjective` defines the loss.

Legend: B rows of a batch or microbatch, A microbatches.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from textmill.schemas.errors import UsageError, flag
from textmill.trainers.data.batches import Batch
from textmill.trainers.flags.framework_flags import FlaxComputeFlags
from textmill.trainers.models.families import Weights
from textmill.trainers.models.plan_model import peak_flops
from textmill.trainers.models.weights import layout_names, shapes
from textmill.trainers.on_flax.layers import (
    FLAX,
    ROWS,
    Params,
    name_leaves,
    to_params,
)
from textmill.trainers.on_flax.optimizers import learning_rate, optimizer_for
from textmill.trainers.run.program import (
    STOP,
    TOKENS,
    Arrays,
    Program,
    Snapshot,
    Tensor,
    TrainingPlan,
    check_state,
)
from textmill.trainers.run.run_directory import PROFILE
from textmill.trainers.tasks.language_models import CORRECT, COUNTED, LOSS

DeviceBatch: TypeAlias = dict[str, jax.Array]  # a batch of the reader on the devices
Rows: TypeAlias = Any  # inputs and labels of a model: a pytree of arrays whose first axis is B
Sums: TypeAlias = dict[str, jax.Array]  # f32, over the tokens that count
_SMALL = 1 << 14  # values of an array that is not worth cutting
LOGITS = 1 << 26  # of a chunk on a CPU; 256 MiB
PIECES = 16  # of a row in which few tokens count
_DROPOUT = 0x64726F70  # "drop"; separates the keys of dropout from others of the seed
_BEFORE = 3  # steps before the trace: the first ones fill queues and caches


def token_sums(logits: jax.Array, labels: jax.Array, weights: jax.Array) -> Sums:
    """Weighted sums over tokens [B, T] with f32 logits [B, T, V]: loss (nats), hits, weights."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    hits = logits.argmax(-1) == labels
    return {
        LOSS: (losses * weights).sum(),
        CORRECT: (hits * weights).sum(),
        COUNTED: weights.sum(),
    }


def sums_in_chunks(
    logits_of: Callable[[jax.Array], jax.Array],
    x_BxTxH: jax.Array,
    labels_BxT: jax.Array,
    weights_BxT: jax.Array,
    chunks: int | None,
    vocab_size: int,
    *,
    sparse: bool = False,
) -> Sums:
    """`token_sums` of `logits_of(x)`, for one chunk of each row's tokens after another.

    With `sparse`, tokens that count come first in each row, at least `PIECES` chunks are made, and
    chunks in which no token counts are skipped: in conversations few tokens count.

    One chunk's logits are in memory, and computed once: the gradients of LOSS, the only ones of all
    sums, follow a chunk's loss at once (Hsu et al., "Liger Kernel: Efficient Triton Kernels for LLM
    Training", 2024, arXiv:2410.10989). The default is as few chunks as keep each below `LOGITS` on
    a CPU, and below 4 times as many on a GPU or TPU, where many small products take longer.
    """
    rows, tokens = labels_BxT.shape
    if chunks is None:
        limit = LOGITS if jax.default_backend() == "cpu" else 4 * LOGITS
        chunks = -(-rows * tokens * vocab_size // (limit * jax.device_count()))
        chunks = max(chunks, PIECES) if sparse else chunks
    size = -(-tokens // min(chunks, tokens))
    if size == tokens:
        return token_sums(logits_of(x_BxTxH), labels_BxT, weights_BxT)

    used: Any = -(-tokens // size)  # chunks
    if sparse:
        order_BxT = jnp.argsort(weights_BxT == 0, axis=1, stable=True)
        labels_BxT = jnp.take_along_axis(labels_BxT, order_BxT, axis=1)
        weights_BxT = jnp.take_along_axis(weights_BxT, order_BxT, axis=1)
        x_BxTxH = jnp.take_along_axis(x_BxTxH, order_BxT[..., None], axis=1)
        used = -(-(weights_BxT != 0).sum(axis=1).max() // size)

    def cut(values: jax.Array) -> jax.Array:
        """[B, T, ...] to [C, B, T / C, ...], with zeros at the end."""
        padding = [(0, 0), (0, -tokens % size)] + [(0, 0)] * (values.ndim - 2)
        pieces = jnp.pad(values, padding).reshape(rows, -1, size, *values.shape[2:])
        return pieces.swapaxes(0, 1)

    x, labels, weights = map(cut, (x_BxTxH, labels_BxT, weights_BxT))
    logits_of, params = jax.closure_convert(logits_of, x[0])

    def sums_of(params, x, labels, weights):
        sums = token_sums(logits_of(x, *params), labels, weights)
        return sums[LOSS], sums

    zeros = {name: jnp.zeros(()) for name in (LOSS, CORRECT, COUNTED)}

    def chunk(x, number):
        return tuple(values[number] for values in (x, labels, weights))

    @jax.custom_vjp
    def sums_of_all(params, x):
        def add(number, sums):
            return jax.tree.map(jnp.add, sums, sums_of(params, *chunk(x, number))[1])

        return jax.lax.fori_loop(0, used, add, zeros)

    def forward(params, x):
        def add(number, before):
            sums, slopes_of_x = before
            of, parts = jax.grad(sums_of, (0, 1), has_aux=True)(params, *chunk(x, number))
            sums = jax.tree.map(jnp.add, sums, (parts, of[0]))
            return sums, slopes_of_x.at[number].set(of[1])

        first = (zeros, jax.tree.map(jnp.zeros_like, params)), jnp.zeros_like(x)
        (sums, of_params), of_x = jax.lax.fori_loop(0, used, add, first)
        return sums, (of_params, of_x)

    def backward(slopes, factors):
        return jax.tree.map(lambda slope: (slope * factors[LOSS]).astype(slope.dtype), slopes)

    sums_of_all.defvjp(forward, backward)
    return sums_of_all(params, x)


class FlaxObjective(Protocol):
    """A model with its loss. All functions are pure, so that they compile."""

    attention: str  # the kind of attention, for the log

    def rows(self, batch: DeviceBatch, *, training: bool) -> Rows:
        """Inputs and labels of the model, from a batch."""
        ...

    def weight(self, rows: Rows) -> jax.Array:
        """The number of tokens that count in the loss, f32."""
        ...

    def sums(self, params: Params, rows: Rows, key: jax.Array | None) -> Sums:
        """LOSS, CORRECT and COUNTED; the loss is differentiable. `key` turns dropout on."""
        ...


class FlaxProgram(Program):
    """A model on all devices, each with its share of the rows.

    Each holds all weights and the whole state of the optimizer, or with --fsdp its share of them
    (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
    2020, stage 3): the compiler gathers weights where a layer needs them.
    """

    def __init__(
        self, plan: TrainingPlan, objective: FlaxObjective, devices: Sequence[Any] | None = None
    ):
        """Compiles nothing; `devices` share each batch, by default all.

        Raises:
          UsageError: the devices cannot share a batch equally, or are not equally many per process.
        """
        devices = devices or sorted(jax.devices(), key=lambda each: (each.process_index, each.id))
        compute = plan.flags.compute
        self._plan, self._objective = plan, objective
        assert isinstance(compute, FlaxComputeFlags)
        self._accumulation, self._fsdp = compute.accumulation or 1, compute.fsdp
        _check_devices(len(devices))
        compute.check_share(len(devices), "devices")
        self.steps, self._profile = plan.steps, _Profile(compute.profile, plan.output)
        self.evaluation_rows = compute.batch_size // self._accumulation
        self._dtype = dtype = compute_dtype(compute.precision)
        self.devices = len(devices)
        self.description = (
            f"{len(devices)} x {devices[0].device_kind}, {dtype}, {objective.attention} attention"
        )
        self.peak = peak_flops(devices[0].device_kind) if dtype == jnp.bfloat16 else None
        self._mesh = mesh = Mesh(np.array(devices), (ROWS,))
        self._replicated = NamedSharding(mesh, PartitionSpec())
        self._by_row = NamedSharding(mesh, PartitionSpec(ROWS))
        self._micro_by_row = NamedSharding(mesh, PartitionSpec(None, ROWS))
        self._quiet = self._put_bytes(0)
        self._gather = jax.jit(lambda leaf: leaf, out_shardings=self._replicated)
        self._rate = learning_rate(plan.flags.optimization, plan.steps)
        self._optimizer = optimizer_for(plan.flags.optimization, self._rate, plan.model.modules)
        self._columns: dict[str, Any] = {  # shape of a row, dtype
            **{feature.name: (feature.shape, feature.dtype) for feature in plan.schema.features},
            "row_index": ((2,), jnp.uint32),
            "epoch": ((), jnp.uint32),
        }

    def load(self, weights: Weights, state: Arrays | None) -> None:
        """Puts weights and the optimizer's state on the devices, one array after another."""
        self._params = jax.tree.map(self._put, to_params(weights, self._plan.model))
        self._state = None if state is None else self._whole_state(state)

    def _whole_state(self, state: Arrays) -> optax.OptState:
        like = jax.eval_shape(self._optimizer.init, self._params)
        check_state(state, name_leaves(like), self._plan.flags.optimization.optimizer)
        values = [state[name] for name in name_leaves(like)]
        return jax.tree.unflatten(jax.tree.structure(like), map(self._put, values))

    def _cut(self, leaf: Any) -> NamedSharding:
        """Where a weight is, or what the optimizer keeps of it: its shape alone decides.

        --fsdp cuts the longest axis that the devices divide; small arrays are on every device.
        """
        count, shape = self._mesh.size, leaf.shape
        axes = [axis for axis, size in enumerate(shape) if size % count == 0]
        if not (self._fsdp and axes and math.prod(shape) >= _SMALL):
            return self._replicated
        axis = max(axes, key=lambda axis: shape[axis])
        return NamedSharding(self._mesh, PartitionSpec(*[None] * axis, ROWS))

    def _put(self, value: Any) -> jax.Array:
        value = np.asarray(value)
        # A copy: JAX on CPUs may use the memory of its argument, here of a file.
        cut = lambda index: np.array(value[index], order="C")  # noqa: E731
        return jax.make_array_from_callback(value.shape, self._cut(value), cut)

    def compile(self, *, trains: bool, evaluates: bool) -> None:
        """Compiles the steps; initializes a new optimizer."""
        params, stop = self._abstract(self._params), self._abstract(self._quiet)
        if trains:
            self._profile.check(self.steps)
            if self._state is None:
                cuts = jax.tree.map(self._cut, jax.eval_shape(self._optimizer.init, self._params))
                self._state = jax.jit(self._optimizer.init, out_shardings=cuts)(self._params)
            cuts = jax.tree.map(self._cut, (self._params, self._state))
            out = (*cuts, self._replicated)
            self._copy_params, self._copy_state = (
                jax.jit(lambda tree: jax.tree.map(jnp.copy, tree), out_shardings=cut)
                .lower(self._abstract(tree))
                .compile()
                for cut, tree in zip(cuts, (self._params, self._state), strict=True)
            )
            jitted = jax.jit(self._step, donate_argnums=(0, 1), out_shardings=out)
            batch = self._abstract_batch(self._plan.flags.compute.batch_size)
            done = jax.ShapeDtypeStruct((), np.uint32, sharding=self._replicated)
            state = self._abstract(self._state)
            with jax.set_mesh(self._mesh), products(self._dtype):
                self._train = jitted.lower(params, state, batch, done, stop).compile()
        if evaluates:
            jitted = jax.jit(self._sums, out_shardings=self._replicated)
            batch = self._abstract_batch(self.evaluation_rows)
            with jax.set_mesh(self._mesh), products(self._dtype):
                self._evaluate = jitted.lower(params, batch, stop).compile()

    def _abstract(self, tree: Any) -> Any:
        shape_of = lambda leaf: jax.ShapeDtypeStruct(  # noqa: E731
            leaf.shape, leaf.dtype, sharding=leaf.sharding
        )
        return jax.tree.map(shape_of, tree)

    def _abstract_batch(self, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
        shape_of = partial(jax.ShapeDtypeStruct, sharding=self._by_row)
        return {
            name: shape_of((rows, *shape), dtype) for name, (shape, dtype) in self._columns.items()
        }

    def put(self, rows: Batch) -> DeviceBatch:
        """Puts rows on the devices in their stored dtypes; 64-bit indices as two uint32."""
        words = np.ascontiguousarray(rows["row_index"], "<i8").view("<u4").reshape(-1, 2)
        rows = dict(rows, row_index=words, epoch=rows["epoch"].astype(np.uint32))
        columns = {name: rows[name] for name in self._columns}
        return jax.make_array_from_process_local_data(self._by_row, columns)

    def _put_stop(self) -> jax.Array:
        """One byte for each device: the signal that its process got."""
        return self._put_bytes(number) if (number := self.asked_to_stop()) else self._quiet

    def _put_bytes(self, number: int) -> jax.Array:
        here = np.full(len(self._mesh.local_devices), number, np.uint8)
        return jax.make_array_from_process_local_data(self._by_row, here)

    def train(self, placed: DeviceBatch, step: int) -> Callable[[], list[dict[str, float]]]:
        """Starts a step, which reuses the buffers of weights and state."""
        self._profile.begin_step(self._params)
        self._params, self._state, metrics = self._train(
            self._params, self._state, placed, np.uint32(step), self._put_stop()
        )
        return lambda: [{name: float(x) for name, x in jax.device_get(metrics).items()}]

    def evaluate(self, placed: DeviceBatch) -> Callable[[], Arrays]:
        """Starts an evaluation; its outputs are sums, to which padding rows add 0."""
        sums = self._evaluate(self._params, placed, self._put_stop())
        return lambda: jax.device_get(sums)

    def snapshot(self, *, weights_only: bool = False) -> Snapshot:
        """Copies on the devices, which are freed as they are written.

        Optax's state is {"1.0.count": ..., "1.0.mu.layers.0.qkv.kernel": ...}.
        """
        self._profile.stop(self._params)
        leaves, due = name_leaves(self._copy_params(self._params)), shapes(self._plan.model)
        weights = {
            ours: self._tensor(leaves[theirs], due[ours], is_turned)
            for ours, theirs, is_turned in layout_names(self._plan.model, FLAX)
        }
        state = {} if weights_only else name_leaves(self._copy_state(self._state))
        return weights, {name: self._tensor(leaf, leaf.shape) for name, leaf in state.items()}

    def _tensor(self, leaf: jax.Array, shape: tuple[int, ...], is_turned: bool = False) -> Tensor:
        def fetch() -> Callable[[], np.ndarray]:
            whole = leaf if leaf.is_fully_addressable else self._gather(leaf)
            return lambda: np.asarray(whole).T if is_turned else np.asarray(whole)

        return Tensor(shape, leaf.dtype, fetch)

    # The functions below are compiled. They are pure: attributes that they read never change.

    def _sums(self, params: Params, batch: DeviceBatch, stop: jax.Array) -> Sums:
        sums = self._objective.sums(params, self._objective.rows(batch, training=False), None)
        return {**sums, **_count(batch, stop)}

    def _step(
        self,
        params: Params,
        state: optax.OptState,
        batch: DeviceBatch,
        done: jax.Array,
        stop: jax.Array,
    ) -> tuple[Params, optax.OptState, Sums]:
        """Weights and state after step `done` + 1, and its metrics.

        The loss is the mean over the tokens that count in the whole batch: each microbatch adds its
        sum, divided by the weight of the batch.
        """
        rows = self._objective.rows(batch, training=True)
        counted = self._objective.weight(rows)
        total, key = jnp.maximum(counted, 1.0), dropout_key(self._plan.flags.compute.seed, done)
        differentiate = self._gradients if self._accumulation == 1 else self._accumulate
        loss, gradients = differentiate(params, rows, total, key)
        updates, state = self._optimizer.update(gradients, state, params)
        metrics = {
            "loss": loss,
            "counted": counted,
            "gradient_norm": optax.tree.norm(gradients),  # before clipping
            "learning_rate": self._rate(done),
            **_count(batch, stop),
        }
        return optax.apply_updates(params, updates), state, metrics

    def _gradients(self, params: Params, rows: Rows, total: jax.Array, key: jax.Array):
        mean_loss = lambda params: self._objective.sums(params, rows, key)[LOSS] / total  # noqa: E731
        return jax.value_and_grad(mean_loss)(params)

    def _accumulate(self, params: Params, rows: Rows, total: jax.Array, key: jax.Array):
        """As `_gradients`, one microbatch after another."""

        def add(sums, numbered):
            number, rows = numbered
            part = self._gradients(params, rows, total, jax.random.fold_in(key, number))
            return jax.tree.map(jnp.add, sums, part), None

        zeros = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
        numbered = (jnp.arange(self._accumulation), jax.tree.map(self._deal, rows))
        return jax.lax.scan(add, zeros, numbered)[0]

    def _deal(self, column: jax.Array) -> jax.Array:
        """[B, ...] to [A, B / A, ...]: row i goes to microbatch i % A.

        This keeps every row on its device; consecutive rows would have to move.
        """
        micro = column.reshape(-1, self._accumulation, *column.shape[1:]).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(micro, self._micro_by_row)


def _count(batch: DeviceBatch, stop: jax.Array) -> Sums:
    """Tokens of the whole batch, and the signal that any process got."""
    return {TOKENS: (batch["segment_ids"] != 0).sum(), STOP: stop.max()}


def _check_devices(devices: int) -> None:
    here, processes = jax.local_device_count(), jax.process_count()
    if processes > 1 and here * processes != devices:
        raise UsageError(
            f"this process has {here} of the {devices} devices of {processes} processes: give each "
            "the same number of devices"
        )


def compute_dtype(precision: str) -> jnp.dtype:
    """The dtype of the computation: that of `--precision`, by default bfloat16 but on CPUs."""
    if precision != "auto":
        return jnp.dtype(precision)
    platform = jax.local_devices()[0].platform
    return jnp.dtype(jnp.float32 if platform == "cpu" else jnp.bfloat16)


def products(dtype: jnp.dtype) -> AbstractContextManager[None]:
    """Compiles products of float32 in float32: GPUs and TPUs by default round their factors."""
    return jax.default_matmul_precision("float32" if dtype == jnp.float32 else "default")


def dropout_key(seed: int, step: jax.Array | int) -> jax.Array:
    """The key of dropout in the step after `step`."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), _DROPOUT), step)


class _Profile:
    """--profile: traces the steps after the first three of this process into OUTPUT/profile."""

    def __init__(self, steps: int | None, output: Path):
        """Takes the steps to trace; None traces nothing."""
        self._steps, self._directory = steps, str(output / PROFILE)
        self._begun, self._is_on = 0, False

    def check(self, steps: int) -> None:
        """Refuses with a UsageError a run of so few steps that no trace begins."""
        if self._steps is not None and steps <= _BEFORE:
            raise UsageError(
                f"{flag('profile', self._steps)}: the trace begins after step {_BEFORE}, but the "
                f"run has {steps} steps: give more {flag('steps')}"
            )

    def begin_step(self, params: Params) -> None:
        """Starts or stops the trace, when the devices have made these weights."""
        if self._steps is None or jax.process_index():
            return
        if self._begun == _BEFORE:
            jax.block_until_ready(params)
            jax.profiler.start_trace(self._directory, create_perfetto_trace=True)
            self._is_on = True
        elif self._begun == _BEFORE + self._steps:
            self.stop(params)
        self._begun += 1

    def stop(self, params: Params) -> None:
        """Writes a trace that is not written yet."""
        if self._is_on:
            jax.block_until_ready(params)
            jax.profiler.stop_trace()
            self._is_on = False
