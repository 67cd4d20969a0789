"""A model on JAX's devices: compiled steps, weights, the optimizer's state.

Training and evaluation steps are compiled from the schema's shapes before the first row is read; a
batch of a different shape is an error, never a recompilation. A `FlaxObjective` defines the loss.

Legend: B rows of a batch or microbatch, A microbatches.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

from textmill.trainers.data.batches import Batch
from textmill.trainers.flags.framework_flags import FlaxComputeFlags
from textmill.trainers.models.plan_model import peak_flops
from textmill.trainers.models.weights import layout_names, shapes
from textmill.trainers.on_flax.device_mesh import DeviceMesh, abstract
from textmill.trainers.on_flax.layers import FLAX, Params, name_leaves, to_params
from textmill.trainers.on_flax.optimizers import learning_rate, optimizer_for
from textmill.trainers.on_flax.precision import compute_dtype, products
from textmill.trainers.on_flax.step_profile import Profile
from textmill.trainers.on_flax.token_loss import Sums
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.program import STOP, TOKENS, Program
from textmill.trainers.run.tensors import Arrays, Snapshot, check_state
from textmill.trainers.tasks.language_models import LOSS

DeviceBatch: TypeAlias = dict[str, jax.Array]  # a batch of the reader on the devices
Rows: TypeAlias = Any  # inputs and labels of a model: a pytree of arrays whose first axis is B
_DROPOUT = 0x64726F70  # "drop"; separates the keys of dropout from others of the seed


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

    Each holds all weights and the whole state of the optimizer, or with --fsdp its share of them.
    """

    def __init__(
        self, plan: TrainingPlan, objective: FlaxObjective, devices: Sequence[Any] | None = None
    ):
        """Compiles nothing; `devices` share each batch, by default all.

        Raises:
          UsageError: the devices cannot share a batch equally, or are not equally many per process.
        """
        compute = plan.flags.compute
        self._plan, self._objective = plan, objective
        assert isinstance(compute, FlaxComputeFlags)
        self._accumulation = compute.gradient_accumulation_steps or 1
        self._mesh = mesh = DeviceMesh(devices, fsdp=compute.fsdp)
        self.devices = mesh.count
        compute.check_share(self.devices, "devices")
        self.steps, self._profile = plan.steps, Profile(compute.profile, plan.output)
        self.evaluation_rows = compute.batch_size // self._accumulation
        self._dtype = dtype = compute_dtype(compute.precision)
        self.description = f"{self.devices} x {mesh.kind}, {dtype}, {objective.attention} attention"
        self.peak = peak_flops(mesh.kind) if dtype == jnp.bfloat16 else None
        self._quiet = mesh.put_byte(0)
        self._rate = learning_rate(plan.flags.optimization, plan.steps)
        self._optimizer = optimizer_for(plan.flags.optimization, self._rate, plan.model.modules)
        self._columns: dict[str, Any] = {  # shape of a row, dtype
            **{feature.name: (feature.shape, feature.dtype) for feature in plan.schema.features},
            "row_index": ((2,), jnp.uint32),
            "epoch": ((), jnp.uint32),
        }

    def load(self, weights: Arrays, state: Arrays | None) -> None:
        """Puts weights and the optimizer's state on the devices, one array after another."""
        self._params = jax.tree.map(self._mesh.put_weight, to_params(weights, self._plan.model))
        self._state = None if state is None else self._whole_state(state)

    def _whole_state(self, state: Arrays) -> optax.OptState:
        like = jax.eval_shape(self._optimizer.init, self._params)
        check_state(state, name_leaves(like), self._plan.flags.optimization.optimizer)
        values = [state[name] for name in name_leaves(like)]
        return jax.tree.unflatten(jax.tree.structure(like), map(self._mesh.put_weight, values))

    def compile(self, *, trains: bool, evaluates: bool) -> None:
        """Compiles the steps; initializes a new optimizer."""
        mesh, params, stop = self._mesh, abstract(self._params), abstract(self._quiet)
        if trains:
            self._profile.check(self.steps)
            if self._state is None:
                cuts = jax.tree.map(
                    mesh.of_weight, jax.eval_shape(self._optimizer.init, self._params)
                )
                self._state = jax.jit(self._optimizer.init, out_shardings=cuts)(self._params)
            cuts = jax.tree.map(mesh.of_weight, (self._params, self._state))
            out = (*cuts, mesh.replicated)
            self._copy_params, self._copy_state = (
                jax.jit(lambda tree: jax.tree.map(jnp.copy, tree), out_shardings=cut)
                .lower(abstract(tree))
                .compile()
                for cut, tree in zip(cuts, (self._params, self._state), strict=True)
            )
            jitted = jax.jit(self._step, donate_argnums=(0, 1), out_shardings=out)
            batch = mesh.abstract_rows(self._plan.flags.compute.batch_size, self._columns)
            done = jax.ShapeDtypeStruct((), np.uint32, sharding=mesh.replicated)
            state = abstract(self._state)
            with jax.set_mesh(mesh.of_jax), products(self._dtype):
                self._train = jitted.lower(params, state, batch, done, stop).compile()
        if evaluates:
            jitted = jax.jit(self._sums, out_shardings=mesh.replicated)
            batch = mesh.abstract_rows(self.evaluation_rows, self._columns)
            with jax.set_mesh(mesh.of_jax), products(self._dtype):
                self._evaluate = jitted.lower(params, batch, stop).compile()

    def put(self, rows: Batch) -> DeviceBatch:
        """Puts rows on the devices in their stored dtypes; 64-bit indices as two uint32."""
        words = np.ascontiguousarray(rows["row_index"], "<i8").view("<u4").reshape(-1, 2)
        rows = dict(rows, row_index=words, epoch=rows["epoch"].astype(np.uint32))
        return self._mesh.put_rows({name: rows[name] for name in self._columns})

    def _put_stop(self) -> jax.Array:
        """One byte for each device: the signal that its process got."""
        number = self.asked_to_stop()
        return self._mesh.put_byte(number) if number else self._quiet

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
        tensor, due = self._mesh.tensor, shapes(self._plan.model)
        leaves = name_leaves(self._copy_params(self._params))
        weights = {
            ours: tensor(leaves[theirs], due[ours], is_turned)
            for ours, theirs, is_turned in layout_names(self._plan.model, FLAX)
        }
        state = {} if weights_only else name_leaves(self._copy_state(self._state))
        return weights, {name: tensor(leaf, leaf.shape) for name, leaf in state.items()}

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
        """Like `_gradients`, one microbatch after another."""

        def add(sums, numbered):
            number, rows = numbered
            part = self._gradients(params, rows, total, jax.random.fold_in(key, number))
            return jax.tree.map(jnp.add, sums, part), None

        deal = lambda column: self._mesh.deal(column, self._accumulation)  # noqa: E731
        zeros = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
        numbered = (jnp.arange(self._accumulation), jax.tree.map(deal, rows))
        return jax.lax.scan(add, zeros, numbered)[0]


def _count(batch: DeviceBatch, stop: jax.Array) -> Sums:
    """Tokens of the whole batch, and the signal that any process got."""
    return {TOKENS: (batch["segment_ids"] != 0).sum(), STOP: stop.max()}


def dropout_key(seed: int, step: jax.Array | int) -> jax.Array:
    """The key of dropout in the step after `step`."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), _DROPOUT), step)
