"""The interface of frameworks to the loop: a model on its devices with its optimizer.

program.load(weights, None)                   # a new run; else a checkpoint's weights and state
program.compile(trains=True, evaluates=True)
read = program.train(program.put(rows), 0)    # starts step 1 and does not wait
read()                                        # [{"loss": 10.8, "counted": 210.0, ...}]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Generator, Iterator, Tuple

from textmill.schemas.format.metadata import Schema
from textmill.trainers.data.batches import Batch, read_ahead
from textmill.trainers.run.tensors import Arrays, Snapshot

# Among the results of steps and evaluations: the number of a signal, and tokens without padding.
STOP, TOKENS = "stop", "tokens"
_AHEAD = 2  # calls whose rows are on the devices in advance
PlacedBatch = Tuple[Batch, Any]  # the rows of a call: from the reader, and on the devices


class Program(ABC):
    """A model on its devices with its optimizer; weights are named as in `trainers.models`."""

    steps: int  # of the whole schedule, a multiple of `steps_per_call`
    steps_per_call: int = 1  # optimizer steps of one call of `train`
    evaluation_rows: int  # of one call of `evaluate`
    description: str  # devices and precision, one line
    devices: int = 1
    peak: float | None = None  # operations a second of a device at this precision, if known
    asked_to_stop: Callable[[], int] = staticmethod(lambda: 0)  # number of this process's signal

    @abstractmethod
    def load(self, weights: Arrays, state: Arrays | None) -> None:
        """Puts float32 weights on the devices, before `compile`.

        `state` is that of a `snapshot` of the same step; None starts a new optimizer.

        Raises:
          DataError: the state is not of this optimizer.
        """

    @abstractmethod
    def compile(self, *, trains: bool, evaluates: bool) -> None:
        """Compiles from the schema's shapes, before the first row is read."""

    @abstractmethod
    def put(self, rows: Batch) -> Any:
        """Puts a batch from the reader on the devices; called in the reader's thread."""

    @abstractmethod
    def train(self, placed: Any, step: int) -> Callable[[], list[dict[str, float]]]:
        """Starts the `steps_per_call` steps after `step` and does not wait.

        The returned function waits and returns for each step `loss`, `learning_rate`, `counted`
        (what the loss is the mean over) and others such as `gradient_norm`. With several processes
        also TOKENS of the whole batch and STOP, the largest `asked_to_stop` of all processes.
        """

    @abstractmethod
    def evaluate(self, placed: Any) -> Callable[[], Arrays]:
        """Starts the evaluation of a batch; the returned function waits for the task's outputs.

        With several processes also for TOKENS and STOP, like `train`.
        """

    @abstractmethod
    def snapshot(self, *, weights_only: bool = False) -> Snapshot:
        """The float32 weights and the optimizer's state, which later steps do not change.

        They determine the next step. The state is empty with `weights_only`.
        """

    def close(self) -> None:
        """Leaves the devices to others, such as the next run of this process."""
        return

    def export(self, schema: Schema, tokenizer_json: bytes) -> str:
        """Writes files of the framework, such as a SavedModel; returns a line for the log.

        Called after `load` if `ComputeFlags.exports_program`.
        """
        raise TypeError(f"{type(self).__name__} writes no files of its own")


def put_ahead(program: Program, batches: Iterator[Batch]) -> Generator[PlacedBatch, None, None]:
    """Puts batches on the devices in a thread of its own, some calls in advance."""
    return read_ahead(((rows, program.put(rows)) for rows in batches), _AHEAD)
