"""A model, its optimizer and its compiled steps, on all devices of a TensorFlow strategy.

Legend: B rows of a batch, R devices (replicas). Each device takes B / R consecutive rows and cuts
them into microbatches of consecutive rows.
"""

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.format.metadata import Schema
from textmill.schemas.typed_json import to_json
from textmill.trainers.data.batches import Batch
from textmill.trainers.flags.framework_flags import TfComputeFlags
from textmill.trainers.flags.run_flags import OptimizationFlags, refuse_existing
from textmill.trainers.models.set_tokenizer import SCHEMA, TOKENIZER
from textmill.trainers.on_tf.backend import keras, tf
from textmill.trainers.on_tf.tf_layers import Seed, Tensors, fill, fold, read
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.program import Program
from textmill.trainers.run.tensors import Arrays, Snapshot, check_state, to_tensors

_DROPOUT = 0x64726F70  # "drop"; separates the seeds of dropout from others


class Sums(NamedTuple):
    """Float32 sums over rows: of the loss and what it is a mean over, of hits and of tries."""

    loss: Any
    counted: Any
    correct: Any
    tried: Any


class TfObjective(ABC):
    """A model with its loss."""

    model: Any  # an `Encoder` or a `Decoder`
    features: tuple[str, ...]  # put on the devices if the dataset has them

    @abstractmethod
    def sums(self, batch: Tensors, seed: Seed) -> Sums:
        """Sums over a batch's rows; the seed, int32 [2], is for dropout."""

    @abstractmethod
    def outputs(self, batch: Tensors) -> Tensors:
        """The task's outputs: tensors whose first dimension is rows."""

    @abstractmethod
    def serve(self, schema: Schema) -> Any:
        """A concrete function for a SavedModel, for inputs as in rows of this schema."""


class TfProgram(Program):
    """See `Program`."""

    def __init__(self, plan: TrainingPlan, make_objective: Callable[[], TfObjective]):
        """Finds the devices and makes the model on them; compiles nothing.

        Raises:
          UsageError: there are no such devices, or they cannot share the batch equally.
        """
        compute = plan.flags.compute
        assert isinstance(compute, TfComputeFlags)
        self._plan, self._compute, self._rates = plan, compute, plan.flags.optimization
        self._strategy = choose_strategy(compute)
        dtype = set_precision(compute.precision, self._strategy)
        with self._strategy.scope():
            self._objective = make_objective()
        self._variables = self._objective.model.trainable_variables
        self._replicas = self.devices = self._strategy.num_replicas_in_sync
        is_tpu = isinstance(self._strategy, tf.distribute.TPUStrategy)  # it always compiles
        self._jit = compute.jit_compile and not is_tpu
        self._optimizer: Any = None  # of Keras, if the run trains
        self._schedule = plan.schedule
        self._gradients = tf.function(self._sums_and_gradients, jit_compile=self._jit)
        self._outputs = tf.function(self._objective.outputs, jit_compile=self._jit)
        self._evaluate = tf.function(self._evaluate_step)
        self.steps = plan.steps
        self.evaluation_rows = compute.batch_size // (compute.gradient_accumulation_steps or 1)
        self.description = f"{device_name(self._strategy)}, {dtype}{', XLA' if self._jit else ''}"

    def load(self, weights: Arrays, state: Arrays | None) -> None:
        """See `Program`."""
        fill(self._objective.model, weights)
        self._optimizer = None if state is None else self._new_optimizer()
        if state is not None:
            self._fill_state(state)

    def compile(self, *, trains: bool, evaluates: bool) -> None:
        """See `Program`.

        XLA compiles a function on its first call, so this calls each with rows of padding, then
        restores weights and state bit for bit.
        """

        def padding(rows: int) -> Any:
            features = self._plan.schema.features
            return self.put({f.name: np.zeros((rows, *f.shape), f.dtype) for f in features})

        if trains:
            self._optimizer = self._optimizer or self._new_optimizer()
            # On one device, gradients and update are one XLA program. On several only the gradients
            # are, since XLA on one device cannot sum them over devices.
            jit = self._jit and self._replicas == 1
            self._train = tf.function(self._train_step, jit_compile=jit)
            weights, state = read(self._objective.model), self._read_state()
            self.train(padding(self._compute.batch_size), 0)()
            fill(self._objective.model, weights)
            self._fill_state(state)
        if evaluates:
            self.evaluate(padding(self.evaluation_rows))()

    def put(self, rows: Batch) -> Any:
        """See `Program`; each device gets its consecutive rows."""
        names = [name for name in self._objective.features if name in rows]
        share = len(rows[names[0]]) // self._replicas
        devices = self._strategy.extended.worker_devices

        def part(context: Any) -> Tensors:
            replica = context.replica_id_in_sync_group
            own = slice(share * replica, share * (replica + 1))
            with tf.device(devices[replica]):
                return {name: tf.constant(rows[name][own]) for name in names}

        return self._strategy.experimental_distribute_values_from_function(part)

    def train(self, placed: Any, step: int) -> Callable[[], list[dict[str, float]]]:
        """See `Program`."""
        rate = self._rates.learning_rate * self._schedule(step)
        running = self._train(placed, tf.constant(step, tf.int32), tf.constant(rate, tf.float32))
        read = running.items()
        return lambda: [{"learning_rate": rate, **{name: float(value) for name, value in read}}]

    def evaluate(self, placed: Any) -> Callable[[], Arrays]:
        """See `Program`."""
        running = self._evaluate(placed)
        local = self._strategy.experimental_local_results
        return lambda: {
            name: np.concatenate([part.numpy() for part in local(value)])
            for name, value in running.items()
        }

    def snapshot(self, *, weights_only: bool = False) -> Snapshot:
        """See `Program`; copies on the host."""
        state = {} if weights_only else self._read_state()
        return to_tensors(read(self._objective.model)), to_tensors(state)

    def _read_state(self) -> Arrays:
        return {name: variable.numpy() for name, variable in name_state(self._optimizer).items()}

    def export(self, schema: Schema, tokenizer_json: bytes) -> str:
        """See `Program`; writes a SavedModel of the current weights."""
        path, serve = self._compute.export_saved_model, self._objective.serve(schema)
        assert path is not None  # else nothing is exported
        extra = {SCHEMA: to_json(schema), TOKENIZER: tokenizer_json}
        write_saved_model(path, self._objective.model, serve, extra)
        return f"SavedModel: {path}"

    def _new_optimizer(self) -> keras.optimizers.Optimizer:
        with self._strategy.scope():
            return make_optimizer(self._rates, self._variables)

    def _fill_state(self, state: Arrays) -> None:
        variables = name_state(self._optimizer)
        check_state(state, variables, self._rates.optimizer)
        for name, variable in variables.items():
            variable.assign(state[name])

    def _train_step(self, batch: Any, step: tf.Tensor, rate: tf.Tensor) -> Tensors:
        if self._replicas == 1:
            return self._update(*self._sums_and_gradients(batch, step, 0), rate)
        metrics = self._strategy.run(self._replica_step, args=(batch, step, rate))
        local = self._strategy.experimental_local_results  # equal on all devices
        return {name: local(value)[0] for name, value in metrics.items()}

    def _replica_step(self, batch: Tensors, step: tf.Tensor, rate: tf.Tensor) -> Tensors:
        context: Any = tf.distribute.get_replica_context()
        own = self._gradients(batch, step, context.replica_id_in_sync_group)
        sums, gradients = context.all_reduce("sum", own)
        return self._update(sums, gradients, rate)

    def _sums_and_gradients(
        self, batch: Tensors, step: tf.Tensor, replica: Any
    ) -> tuple[Sums, list[tf.Tensor]]:
        """Sums and gradients over a device's rows, one microbatch after another."""
        seed = tf.constant([_DROPOUT, self._compute.seed], tf.int32)
        seed, count = (
            fold(fold(seed, step), replica),
            self._compute.gradient_accumulation_steps or 1,
        )
        rows = self._compute.batch_size // self._replicas // count
        parts = {
            name: tf.reshape(column, (count, rows, *column.shape[1:]))
            for name, column in batch.items()
        }

        def differentiate(number: Any) -> tuple[Sums, list[tf.Tensor]]:
            part = {name: column[number] for name, column in parts.items()}
            with tf.GradientTape() as tape:
                sums = self._objective.sums(part, fold(seed, number))
            gradients = tape.gradient(sums.loss, [each.value for each in self._variables])
            # Gradients of embeddings are sparse: the rows that were looked up.
            return sums, [tf.convert_to_tensor(gradient) for gradient in gradients]

        def add(number: Any, *before: Any) -> tuple[Any, ...]:
            return number + 1, *tf.nest.map_structure(tf.add, before, differentiate(number))

        if count == 1:
            return differentiate(0)
        sums = Sums(*[tf.zeros(()) for _ in Sums._fields])
        begin = (tf.constant(0), sums, [tf.zeros(each.shape) for each in self._variables])
        return tf.while_loop(lambda number, *_: number < count, add, begin)[1:]

    def _update(self, sums: Sums, gradients: list[tf.Tensor], rate: tf.Tensor) -> Tensors:
        """Applies the gradients of the batch's mean loss."""
        counted = tf.maximum(sums.counted, 1e-9)
        gradients = [gradient / counted for gradient in gradients]
        norm = tf.linalg.global_norm(gradients)
        if self._rates.clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, self._rates.clip_norm, use_norm=norm)
        if self._replicas > 1:  # Keras sums over devices again, but clipping needed the sum
            gradients = [gradient / self._replicas for gradient in gradients]
        self._optimizer.learning_rate.assign(rate)
        self._optimizer.apply(gradients, self._variables)
        return {
            "loss": sums.loss / counted,
            "accuracy": sums.correct / tf.maximum(sums.tried, 1e-9),
            "counted": sums.counted,
            "gradient_norm": norm,
        }

    def _evaluate_step(self, batch: Any) -> Tensors:
        # Not `self._outputs` itself: a strategy would run all of a tf.function on the first device.
        return self._strategy.run(lambda rows: self._outputs(rows), args=(batch,))


def choose_strategy(flags: TfComputeFlags) -> tf.distribute.Strategy:
    """TPUStrategy, MirroredStrategy for several devices of one kind, else OneDeviceStrategy.

    Call it before anything else in TensorFlow: devices cannot be split later.

    Raises:
      UsageError: there is no such device, the devices cannot share the batch equally, or TF_CONFIG
        names several workers.
    """
    _refuse_workers(os.environ.get("TF_CONFIG", "{}"))
    strategy = _strategy(flags)
    flags.check_share(strategy.num_replicas_in_sync, "devices")
    return strategy


def _refuse_workers(tf_config: str) -> None:
    try:
        cluster = json.loads(tf_config).get("cluster", {})
        workers = sum(len(cluster.get(job, ())) for job in ("chief", "worker"))
    except (ValueError, AttributeError, TypeError) as error:
        raise UsageError(f"TF_CONFIG={tf_config} is not a cluster ({error}): unset it") from error
    if workers > 1:
        raise UsageError(
            f"TF_CONFIG names {workers} workers, but TensorFlow's trainers run in one process, on "
            "all GPUs of one machine: unset TF_CONFIG; trainers.poptorch_classifier supports "
            "several machines"
        )


def _strategy(flags: TfComputeFlags) -> tf.distribute.Strategy:
    device = flags.device
    has_tpu = "TPU_NAME" in os.environ or tf.config.list_physical_devices("TPU")
    if device == "tpu" or (device == "auto" and has_tpu):
        return _tpu()
    gpus = tf.config.list_physical_devices("GPU") if device in ("auto", "gpu") else []
    if len(gpus) > 1:
        return tf.distribute.MirroredStrategy()
    if gpus:
        return tf.distribute.OneDeviceStrategy("/gpu:0")
    if device == "gpu":
        raise UsageError(
            f"{flag('device', 'gpu')}: TensorFlow finds no GPU; install tensorflow[and-cuda]"
        )
    if flags.cpu_devices > 1:
        return tf.distribute.MirroredStrategy(_logical_cpus(flags.cpu_devices))
    return tf.distribute.OneDeviceStrategy("/cpu:0")


def _tpu() -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=os.environ.get("TPU_NAME", "local")
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        raise UsageError(
            f"{flag('device', 'tpu')}: TensorFlow cannot reach a TPU ({error})"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def _logical_cpus(count: int) -> list[str]:
    [cpu] = tf.config.list_physical_devices("CPU")
    parts = tf.config.get_logical_device_configuration(cpu)
    if parts is None or len(parts) < count:
        try:
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration()] * count
            )
        except RuntimeError as error:
            raise UsageError(
                f"{flag('cpu_devices', count)}: this process has started with {len(parts or [0])} "
                "already"
            ) from error
    return [f"/cpu:{number}" for number in range(count)]


def device_name(strategy: tf.distribute.Strategy) -> str:
    """Description of the devices: "OneDeviceStrategy on CPU:0", "MirroredStrategy on 2 x GPU:0"."""
    workers = strategy.extended.worker_devices
    device = workers[0].split("device:")[-1].strip("/").upper()
    count = f"{len(workers)} x " if len(workers) > 1 else ""
    return f"{type(strategy).__name__} on {count}{device}"


def set_precision(precision: str, strategy: tf.distribute.Strategy) -> str:
    """Sets Keras' dtype policy for new layers; returns the dtype of the computation."""
    dtype = precision
    if dtype == "auto":
        dtype = "float32" if "CPU" in device_name(strategy) else "bfloat16"
    keras.config.set_dtype_policy("mixed_bfloat16" if dtype == "bfloat16" else "float32")
    return dtype


class Momentum(keras.optimizers.SGD):
    """Gradient descent with momentum as in PyTorch and optax.

    Weight decay is part of the gradient, and momentum sums gradients, so each step multiplies it by
    the current learning rate. Keras' own sums updates with former rates, and decays apart.
    """

    decay = 0.0  # for matrices

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Adds decay to the gradient and the gradient to the momentum; steps along it."""
        if len(variable.shape) > 1:
            gradient = gradient + self.decay * variable
        if self.momentum:
            velocity = self.momentums[self._get_variable_index(variable)]
            gradient = gradient + self.momentum * velocity
            self.assign(velocity, gradient)
        self.assign_sub(variable, learning_rate * gradient)


def make_optimizer(
    flags: OptimizationFlags, variables: list[keras.Variable]
) -> keras.optimizers.Optimizer:
    """Keras' optimizer, built; biases and norms (vectors) do not decay.

    Call it in the strategy's scope; `_update` does schedule and clipping. Keras' adamw adds epsilon
    before the bias correction, as in section 2 of Kingma and Ba, "Adam", 2014: step t is PyTorch's
    with an epsilon of epsilon / sqrt(1 - beta2**t).
    """
    # A fixed name: Keras numbers optimizers, and checkpoints contain the names of variables.
    common: dict[str, Any] = {"learning_rate": flags.learning_rate, "name": flags.optimizer}
    if flags.optimizer == "sgd_momentum":
        optimizer = Momentum(**common, momentum=flags.beta1)
        optimizer.decay = flags.weight_decay
    else:
        optimizer = keras.optimizers.AdamW(
            **common,
            weight_decay=flags.weight_decay,
            beta_1=flags.beta1,
            beta_2=flags.beta2,
            epsilon=flags.epsilon,
        )
        vectors = [variable for variable in variables if len(variable.shape) < 2]
        optimizer.exclude_from_weight_decay(var_list=vectors)
    optimizer.build(variables)
    return optimizer


def name_state(optimizer: keras.optimizers.Optimizer) -> dict[str, keras.Variable]:
    """The optimizer's variables by path."""
    return {variable.path: variable for variable in optimizer.variables}


NAME = "serving_default"
EXTRA = "assets.extra"  # TensorFlow's directory for files of others


class _Served(tf.Module):
    def __init__(self, model: keras.Model):
        super().__init__(name="served")
        self.weights = [variable.value for variable in model.variables]


def write_saved_model(
    path: str, model: keras.Model, serve: Any, extra: Mapping[str, bytes]
) -> None:
    """Writes a model with one signature, a concrete function that calls it; atomically.

    `extra` has the content of further files by name.

    Raises:
      UsageError: the path exists already.
      DataError: it cannot be written.
    """
    refuse_existing(path, field="export_saved_model")
    partial = os.path.abspath(path) + ".partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        tf.saved_model.save(_Served(model), partial, signatures={NAME: serve})
        for name, content in extra.items():
            file = Path(partial, EXTRA, name)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
        os.rename(partial, path)
    except (OSError, tf.errors.OpError) as error:
        raise DataError(f"{flag('export_saved_model', path)} cannot be written: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
