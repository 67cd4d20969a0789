"""Arrays by name: those of a checkpoint on the host, and those that are still on devices."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, NamedTuple, Tuple

import numpy as np

from textmill.schemas.errors import DataError, flag

Arrays = Dict[str, np.ndarray]


class Tensor(NamedTuple):
    """An array of a checkpoint, which is on the host only while it is written.

    Attributes:
      fetch: starts to get it, and returns a function that waits for it. All processes call the
        former, in one order; only the first calls the latter.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    fetch: Callable[[], Callable[[], np.ndarray]]


Tensors = Dict[str, Tensor]
Snapshot = Tuple[Tensors, Tensors]  # weights and state


def to_tensors(arrays: Mapping[str, Any]) -> Tensors:
    """Arrays that are on the host already."""

    def tensor(array: np.ndarray) -> Tensor:
        return Tensor(array.shape, array.dtype, lambda: lambda: array)

    return {name: tensor(np.asarray(array)) for name, array in arrays.items()}


def first_difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    """How arrays differ in name, shape or dtype: "a is float32 (2,) instead of missing"."""

    def describe(values: Mapping[str, Any], name: str) -> str:
        if name not in values:
            return "missing"
        value = values[name]
        return f"{str(value.dtype).split('.')[-1]} {tuple(value.shape)}"  # torch.float32

    for name in sorted({*found, *expected}):
        here, due = describe(found, name), describe(expected, name)
        if here != due:
            return f"{name:.200} is {here} instead of {due}"
    return None


def check_state(state: Mapping[str, Any], expected: Mapping[str, Any], optimizer: str) -> None:
    """Refuses an optimizer's state as a DataError, see `first_difference`."""
    difference = first_difference(state, expected)
    if difference is not None:
        raise DataError(
            f"the checkpoint does not fit {flag('optimizer', optimizer)} and this model: "
            f"{difference}. Resume with the flags that the run began with"
        )
