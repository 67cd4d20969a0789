"""The interface of frameworks and tasks to the loop.

program.load(weights, None)                   # a new run; else a checkpoint's weights and state
program.compile(trains=True, evaluates=True)
read = program.train(program.put(rows), 0)    # starts step 1 and does not wait
read()                                        # [{"loss": 10.8, "counted": 210.0, ...}]
"""

import signal
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    Type,
)

import numpy as np

from textmill.schemas.commands.entry import import_later, want_addresses
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.format.metadata import Schema
from textmill.trainers.data.batches import Batch, BatchReader
from textmill.trainers.flags.framework_flags import FlaxRunFlags
from textmill.trainers.flags.run_flags import RunFlags
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.run.processes import Processes

Arrays = Dict[str, np.ndarray]
# Among the results of steps and evaluations: the number of a signal, and tokens without padding.
STOP, TOKENS = "stop", "tokens"


class Tensor(NamedTuple):
    """An array of a checkpoint, which is on the host only while it is written.

    Attributes:
      fetch: starts to get it, and returns a function that waits for it. All processes call the
        former, in one order; only the first calls the latter.
    """

    shape: Tuple[int, ...]
    dtype: np.dtype
    fetch: Callable[[], Callable[[], np.ndarray]]


Tensors = Dict[str, Tensor]
Snapshot = Tuple[Tensors, Tensors]  # weights and state


def to_tensors(arrays: Mapping[str, Any]) -> Tensors:
    """Arrays that are on the host already."""

    def tensor(array: np.ndarray) -> Tensor:
        return Tensor(array.shape, array.dtype, lambda: lambda: array)

    return {name: tensor(np.asarray(array)) for name, array in arrays.items()}


@dataclass(frozen=True)
class TrainingPlan:
    """A run: its flags, checked against the dataset's schema."""

    flags: RunFlags
    schema: Schema
    model: ModelConfig
    steps: int  # optimizer steps of the whole schedule
    output: Path  # the run's directory


class Program(ABC):
    """A model on its devices with its optimizer; weights are named as in `trainers.models`."""

    steps: int  # of the whole schedule, a multiple of `steps_a_call`
    steps_a_call: int = 1  # optimizer steps of one call of `train`
    evaluation_rows: int  # of one call of `evaluate`
    description: str  # devices and precision, one line
    devices: int = 1
    peak: Optional[float] = None  # operations a second of a device at this precision, if known
    asked_to_stop: Callable[[], int] = staticmethod(lambda: 0)  # number of this process's signal

    @abstractmethod
    def load(self, weights: Arrays, state: Optional[Arrays]) -> None:
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
    def train(self, placed: Any, step: int) -> Callable[[], List[Dict[str, float]]]:
        """Starts the `steps_a_call` steps after `step` and does not wait.

        The returned function waits and returns for each step `loss`, `learning_rate`, `counted`
        (what the loss is the mean over) and others such as `gradient_norm`. With several processes
        also TOKENS of the whole batch and STOP, the largest `asked_to_stop` of all processes.
        """

    @abstractmethod
    def evaluate(self, placed: Any) -> Callable[[], Arrays]:
        """Starts the evaluation of a batch; the returned function waits for the task's outputs.

        With several processes also for TOKENS and STOP, as `train`.
        """

    @abstractmethod
    def snapshot(self, *, weights_only: bool = False) -> Snapshot:
        """The float32 weights and the optimizer's state, which later steps do not change.

        They determine the next step. The state is empty with `weights_only`.
        """

    def export(self, schema: Schema, tokenizer_json: bytes) -> str:
        """Writes files of the framework, such as a SavedModel; returns a line for the log.

        Called after `load` if `ComputeFlags.exports_program`.
        """
        raise TypeError(f"{type(self).__name__} writes no files of its own")


def first_difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> Optional[str]:
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


Metrics = Dict[str, float]


class TrainingTask(ABC):
    """Metrics, reports and checks of a task; imports no framework."""

    unit: str  # of the loss, on the plot: "nats a masked token"
    counts: str  # name in metrics.jsonl of what a step's loss is the mean over: "masked"
    best_by: Optional[str] = None  # the metric that chooses the best weights
    head_share: float = 1.0  # of positions that the model's head computes

    @abstractmethod
    def measure(self, batches: Iterator[Tuple[Batch, Arrays]]) -> Optional[Metrics]:
        """Metrics of a whole split, `loss` among them; None if all its loss weights are 0.

        Takes each batch from the reader with the outputs of `Program.evaluate`.
        """

    @abstractmethod
    def describe(self, metrics: Mapping[str, float]) -> str:
        """The metrics as a line: "loss 2.1234, accuracy 51.20%"."""

    def prepare_training(self, shards: BatchReader) -> List[str]:
        """Reads what only training needs from the dataset; returns notes for the user.

        Raises:
          UsageError: the flags do not fit the dataset.
        """
        return []

    def export_notes(self) -> List[str]:
        """Notes on what an exported model loses."""
        return []

    def meaning_of(self, schema: Schema) -> Dict[str, object]:
        """Properties in which rows must agree with those that a model was trained on."""
        return {}

    def check_same_rows(self, shards: str, schema: Schema, trained: Schema) -> None:
        """Refuses rows that mean something else than those a model was trained on.

        Raises:
          UsageError: names the dataset and what differs.
        """
        of_rows, of_model = self.meaning_of(schema), self.meaning_of(trained)
        differences = [
            f"its {name} is {of_rows[name]!r}, the model's is {of_model[name]!r}"
            for name in of_rows
            if of_rows[name] != of_model[name]
        ]
        if differences:
            raise UsageError(
                f"{shards} does not fit the model: {'; '.join(differences)}. Build it with the "
                "tokenizer and flags of the dataset that the model was trained on"
            )

    def predict(
        self,
        program: Program,
        schema: Schema,
        tokenizer_json: bytes,
        *,
        texts: str,
        predictions: Optional[str],
    ) -> None:
        """Labels the texts of a file; writes the labels to a file or to standard output.

        Raises:
          UsageError: the task is not classification.
        """
        raise UsageError(
            f"{flag('predict', texts)}: only classifiers label texts; give the run of one"
        )

    def write_files(self, folder: Path) -> None:
        """Writes plots and predictions of the last split; each file replaces the one before."""
        return

    def report(self, folder: Path, rows: List[Metrics], title: str) -> List[str]:
        """Writes a comparison of checkpoints from their metrics and "step"; lines to print."""
        return []


def join_processes(flags: RunFlags) -> Processes:
    """The processes of these flags; raises as `trainers.on_flax.jax_processes.join`."""
    assert isinstance(flags, FlaxRunFlags)
    if flags.processes.num_processes is None:
        return Processes()
    # JAX: seconds that a run of one process pays later, after its checks.
    return import_later("textmill.trainers.on_flax.jax_processes:join")(flags)


class Trainer(NamedTuple):
    """The parts of a trainer."""

    flags: Type[RunFlags]
    # The third is the dataset, if there is one.
    make_task: Callable[[RunFlags, Schema, Optional[BatchReader]], TrainingTask]
    import_program: Callable[[TrainingPlan, Any], Program]  # imports the framework
    framework: str  # its name, for messages
    gigabytes: float  # address space that the framework needs at least
    packages: Tuple[str, ...] = ()  # whose versions the processes of a run must share
    join: Callable[[Any], Processes] = lambda _: Processes()  # meets the other processes of a run
    write_texts: Optional[Callable[..., List[str]]] = None  # continues a text, several times

    def make_program(self, plan: TrainingPlan, task: TrainingTask) -> Program:
        """The program of a plan; a UsageError if the address space is too small."""
        want_addresses(self.gigabytes, self.framework)
        with Interruption() as interruption:  # a signal would break the import of a library
            program = self.import_program(plan, task)
        interruption.deliver()
        return program


class Interruption:
    """A context in which the first signal only sets `signal`; a second one stops at once.

    Outside the main thread, where Python cannot catch signals, it stays None.
    """

    def __init__(self) -> None:
        self.signal: Optional[int] = None  # the number of the signal
        self._before: Dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        """Catches the signals."""
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        except ValueError:  # not the main thread
            pass
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the handlers; `_note` calls it too, so it may run twice."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def deliver(self) -> None:
        """Raises the signal again; called after the context."""
        if self.signal is not None:
            signal.raise_signal(self.signal)

    def _note(self, number: int, _: Optional[FrameType]) -> None:
        self.signal = number
        self.__exit__()
