"""The compiled steps: one that trains, one that evaluates, over all devices of a strategy.

Legend: B rows of a batch, R devices (replicas); each takes B / R consecutive rows.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np

from trainers.data.batches import Batch, BatchReader
from trainers.on_tf.backend import keras, tf

Tensors: TypeAlias = dict[str, tf.Tensor]
LOSS, WEIGHT, TOKENS = "loss", "weight", "tokens"
_DATA_AHEAD = 2  # batches that are read before their step


class Learner(Protocol):
    """A model with what is learned: what a trainer gives the loop."""

    @property
    def model(self) -> keras.Model:
        """Built, its weights filled."""
        ...

    @property
    def features(self) -> tuple[str, ...]:
        """Of a row, those the model needs."""
        ...

    @property
    def unit(self) -> str:
        """Of the loss, for the curve."""
        ...

    @property
    def best_by(self) -> str:
        """The measure of an evaluation that the best checkpoint is chosen by."""
        ...

    @property
    def best_is_highest(self) -> bool:
        """Whether the best is the highest, or the lowest."""
        ...

    def loss_sums(self, batch: Tensors, seed: tf.Tensor) -> Tensors:
        """Sums over a device's rows.

        Args:
          batch: the features.
          seed: int32 [2] for dropout; another for each step and device.

        Returns:
          f32 scalars: "loss"; "weight", what it is a mean over; "tokens" that are not padding.
          Others are reported divided by the weight.
        """
        ...

    def outputs(self, batch: Tensors) -> Tensors:
        """What an evaluation needs to know of each row: tensors whose first dimension is rows."""
        ...

    def measures(self, outputs: Iterator[tuple[Batch, Batch]]) -> dict[str, float]:
        """Measures of a whole split, "loss" among them.

        Args:
          outputs: each batch as the reader gave it, and `outputs` of it; filling rows are cut off.
        """
        ...

    def said(self, measures: dict[str, float]) -> str:
        """The measures in a few words."""
        ...


class Steps:
    """The steps of a learner, compiled once for one batch size.

    Attributes:
      traces: how often a step was traced, by its name; a test holds it to one each.
    """

    def __init__(
        self,
        learner: Learner,
        optimizer: keras.optimizers.Optimizer | None,
        strategy: tf.distribute.Strategy,
        *,
        batch_size: int,
        clip_norm: float = 0.0,
        seed: int = 0,
        jit_compile: bool = True,
    ):
        """Compiles nothing yet; `optimizer` is None where nothing is trained."""
        self._learner, self._optimizer, self._strategy = learner, optimizer, strategy
        self._batch_size, self._clip_norm, self._seed = batch_size, clip_norm, seed
        self._variables = learner.model.trainable_variables
        self._jit = jit_compile and not isinstance(strategy, tf.distribute.TPUStrategy)
        self._alone = strategy.num_replicas_in_sync == 1
        self.traces = {"train": 0, "evaluate": 0}
        self._gradients = tf.function(self._sums_and_gradients, jit_compile=self._jit)
        # One device: gradients and update are one program. Several: only the gradients are, since
        # they are added up between devices, which XLA on one device cannot do.
        self._train = tf.function(self._train_step, jit_compile=self._jit and self._alone)
        self._outputs = tf.function(self._evaluate_rows, jit_compile=self._jit)
        self._evaluate = tf.function(self._evaluate_step)

    def train(self, batch: Tensors) -> Tensors:
        """One optimizer step; returns its measurements, f32 scalars that may not be ready yet."""
        return self._train(batch)

    def evaluate(self, batch: Tensors) -> Batch:
        """The learner's outputs of a batch, on the host: arrays [B, ...]."""
        found = self._evaluate(batch)
        return {name: np.concatenate(self._local(value)) for name, value in found.items()}

    def train_batches(
        self, shards: BatchReader, split: str, *, seed: int, start: int, stop: int
    ) -> Iterator[Tensors]:
        """The batches of the steps from `start` to before `stop`, on the devices."""

        def read() -> Iterator[Batch]:
            batches = shards.batches(
                split,
                batch_size=self._batch_size,
                seed=seed,
                start_step=start,
                stop_step=stop,
                prefetch=0,
            )
            return self._only_features(batches)

        return iter(self._strategy.experimental_distribute_dataset(self._dataset(shards, read)))

    def evaluated(self, shards: BatchReader, split: str) -> Iterator[tuple[Batch, Batch]]:
        """Every row of a split once: (batch, outputs), filling rows cut off."""
        return self.outputs(shards.in_order(split, batch_size=self._batch_size))

    def outputs(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Batch]]:
        """(batch, outputs) of batches of this size, cut to rows with a weight in `row_weights`."""
        for batch in batches:
            outputs = self.evaluate(self._placed(batch))
            real = batch["row_weights"] > 0
            yield (
                {name: column[real] for name, column in batch.items()},
                {name: column[real] for name, column in outputs.items()},
            )

    def _placed(self, batch: Batch) -> Tensors:
        """A batch on the devices, each with its consecutive rows."""
        share = self._batch_size // self._strategy.num_replicas_in_sync
        names = [name for name in self._learner.features if name in batch]

        def part(context: Any) -> Tensors:
            first = share * context.replica_id_in_sync_group
            return {name: tf.constant(batch[name][first : first + share]) for name in names}

        return self._strategy.experimental_distribute_values_from_function(part)

    def _dataset(self, shards: BatchReader, read) -> tf.data.Dataset:
        signature = {
            feature.name: tf.TensorSpec((self._batch_size, *feature.shape), feature.dtype)
            for feature in shards.schema.features
            if feature.name in self._learner.features
        }
        dataset = tf.data.Dataset.from_generator(read, output_signature=signature)
        options = tf.data.Options()
        # Each batch is cut into the devices' parts; a file-wise split would change the batches.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        options.deterministic = True
        return dataset.prefetch(_DATA_AHEAD).with_options(options)

    def _only_features(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            yield {name: batch[name] for name in self._learner.features if name in batch}

    def _local(self, value: tf.Tensor) -> list[np.ndarray]:
        return [part.numpy() for part in self._strategy.experimental_local_results(value)]

    def _train_step(self, batch: Tensors) -> Tensors:
        self.traces["train"] += 1
        if self._alone:
            sums, gradients = self._sums_and_gradients(batch)
            return self._update(sums, gradients)
        metrics = self._strategy.run(self._replica_step, args=(batch,))
        # Equal on all devices.
        return {
            name: self._strategy.experimental_local_results(value)[0]
            for name, value in metrics.items()
        }

    def _replica_step(self, batch: Tensors) -> Tensors:
        context = tf.distribute.get_replica_context()
        sums, gradients = self._gradients(batch)
        sums, gradients = context.all_reduce("sum", (sums, gradients))
        return self._update(sums, gradients, replicas=context.num_replicas_in_sync)

    def _sums_and_gradients(self, batch: Tensors) -> tuple[Tensors, list[tf.Tensor]]:
        assert self._optimizer is not None
        context = tf.distribute.get_replica_context()
        replica = 0 if self._alone or context is None else context.replica_id_in_sync_group
        fold: Any = tf.random.fold_in
        seed = tf.constant([self._seed, 0], tf.int32)
        done = tf.convert_to_tensor(self._optimizer.iterations)
        seed = fold(fold(seed, tf.cast(done, tf.int32)), replica)
        with tf.GradientTape() as tape:
            sums = self._learner.loss_sums(batch, seed)
        gradients = tape.gradient(sums[LOSS], [variable.value for variable in self._variables])
        # Of tables of embeddings they come as the rows that were looked up.
        return sums, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _update(self, sums: Tensors, gradients: list[tf.Tensor], replicas: int = 1) -> Tensors:
        """Applies gradients of the batch's mean loss, whatever the devices' shares of it."""
        assert self._optimizer is not None
        weight = tf.maximum(sums[WEIGHT], 1e-9)
        gradients = [gradient / weight for gradient in gradients]
        norm = tf.linalg.global_norm(gradients)
        rate = self._optimizer.learning_rate  # of this step, before it counts as done
        metrics = {
            name: value if name in (WEIGHT, TOKENS) else value / weight
            for name, value in sums.items()
        }
        metrics.update(gradient_norm=norm, learning_rate=tf.convert_to_tensor(rate, tf.float32))
        if self._clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, self._clip_norm, use_norm=norm)
        if replicas > 1:  # Keras adds up what replicas apply, and clipping needed the sum before
            gradients = [gradient / replicas for gradient in gradients]
        self._optimizer.apply(gradients, self._variables)
        return metrics

    def _evaluate_step(self, batch: Tensors) -> Tensors:
        self.traces["evaluate"] += 1
        # Not `self._outputs` itself: a strategy compiles a tf.function whole, on the first device.
        return self._strategy.run(lambda rows: self._outputs(rows), args=(batch,))

    def _evaluate_rows(self, batch: Tensors) -> Tensors:
        return self._learner.outputs(batch)
