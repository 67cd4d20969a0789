"""Where arrays are: rows over all devices, weights on each or with --fsdp in pieces.

--fsdp follows Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", 2020, stage 3: the compiler gathers weights where a layer needs them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from textmill.schemas.errors import UsageError
from textmill.trainers.on_flax.layers import ROWS
from textmill.trainers.run.tensors import Tensor

_SMALL = 1 << 14  # values of an array that is not worth cutting


class DeviceMesh:
    """The devices of a run, and what each of them holds.

    Attributes:
      of_jax: the mesh, of one axis.
      by_row: where rows are: each device has its share of them.
      replicated: where other results are: all devices have all.
    """

    def __init__(self, devices: Sequence[Any] | None, *, fsdp: bool):
        """Takes the devices that share each batch; None takes all.

        Raises:
          UsageError: processes do not have equally many.
        """
        devices = devices or sorted(jax.devices(), key=lambda each: (each.process_index, each.id))
        _check_devices(len(devices))
        self.count, self.kind, self._fsdp = len(devices), devices[0].device_kind, fsdp
        self.of_jax = Mesh(np.array(devices), (ROWS,))
        self.replicated = NamedSharding(self.of_jax, PartitionSpec())
        self.by_row = NamedSharding(self.of_jax, PartitionSpec(ROWS))
        self._micro_by_row = NamedSharding(self.of_jax, PartitionSpec(None, ROWS))
        self._gather = jax.jit(lambda leaf: leaf, out_shardings=self.replicated)

    def of_weight(self, leaf: Any) -> NamedSharding:
        """The sharding of a weight, or of its optimizer state; only its shape decides.

        --fsdp cuts the longest axis that the devices divide; small arrays are on every device.
        """
        count, shape = self.of_jax.size, leaf.shape
        axes = [axis for axis, size in enumerate(shape) if size % count == 0]
        if not (self._fsdp and axes and math.prod(shape) >= _SMALL):
            return self.replicated
        axis = max(axes, key=lambda axis: shape[axis])
        return NamedSharding(self.of_jax, PartitionSpec(*[None] * axis, ROWS))

    def put_weight(self, value: Any) -> jax.Array:
        """Puts a weight, or its optimizer state, on the devices."""
        value = np.asarray(value)
        # A copy: JAX on CPUs may use the memory of its argument, here of a file.
        cut = lambda index: np.array(value[index], order="C")  # noqa: E731
        return jax.make_array_from_callback(value.shape, self.of_weight(value), cut)

    def put_rows(self, columns: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        """Puts this process's rows on its devices."""
        return jax.make_array_from_process_local_data(self.by_row, dict(columns))

    def put_byte(self, number: int) -> jax.Array:
        """Puts a number of this process on its devices, a byte on each."""
        here = np.full(len(self.of_jax.local_devices), number, np.uint8)
        return jax.make_array_from_process_local_data(self.by_row, here)

    def abstract_rows(
        self, rows: int, columns: Mapping[str, tuple[tuple[int, ...], Any]]
    ) -> dict[str, jax.ShapeDtypeStruct]:
        """The result of `put_rows` for `rows` rows of these shapes and dtypes, without values."""
        shape_of = partial(jax.ShapeDtypeStruct, sharding=self.by_row)
        return {name: shape_of((rows, *shape), dtype) for name, (shape, dtype) in columns.items()}

    def deal(self, column: jax.Array, microbatches: int) -> jax.Array:
        """[B, ...] to [A, B / A, ...], inside a jitted function: row i goes to microbatch i % A.

        This keeps every row on its device; consecutive rows would have to move.
        """
        micro = column.reshape(-1, microbatches, *column.shape[1:]).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(micro, self._micro_by_row)

    def tensor(self, leaf: jax.Array, shape: tuple[int, ...], is_turned: bool = False) -> Tensor:
        """An array to be written; `is_turned` transposes it to `shape`."""

        def fetch() -> Callable[[], np.ndarray]:
            whole = leaf if leaf.is_fully_addressable else self._gather(leaf)
            return lambda: np.asarray(whole).T if is_turned else np.asarray(whole)

        return Tensor(shape, leaf.dtype, fetch)


def abstract(tree: Any) -> Any:
    """Shapes, dtypes and places of arrays, without values."""

    def shape_of(leaf: jax.Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)

    return jax.tree.map(shape_of, tree)


def _check_devices(devices: int) -> None:
    here, processes = jax.local_device_count(), jax.process_count()
    if processes > 1 and here * processes != devices:
        raise UsageError(
            f"this process has {here} of the {devices} devices of {processes} processes: give each "
            "the same number of devices"
        )
