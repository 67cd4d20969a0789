"""What the loop asks of a framework: a model on its devices, with its optimizer.

program.load(weights, None)                   # a new run; or what a checkpoint holds
program.compile(trains=True, evaluates=True)
read = program.train(program.put(rows), 0)  # starts step 1 and waits for nothing
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

from schemas.commands.entry import want_addresses
from schemas.errors import DataError, UsageError
from schemas.metadata import Schema
from trainers.data.batches import Batch, BatchReader
from trainers.flags.run_flags import RunFlags
from trainers.models.model_config import ModelConfig

Arrays = Dict[str, np.ndarray]


@dataclass(frozen=True)
class Plan:
    """A run, once its flags have met the contract."""

    flags: RunFlags
    schema: Schema  # the contract of the rows
    model: ModelConfig
    steps: int  # optimizer steps of the whole schedule
    output: Path  # the run's directory


class Program(ABC):
    """A model on its devices; weights have the names and shapes of `trainers.models`."""

    steps: int  # of the whole schedule, in whole calls
    steps_a_call: int = 1  # optimizer steps that one call of `train` makes
    evaluation_rows: int  # that one call of `evaluate` takes
    description: str  # of devices and precision, in a line for people

    @abstractmethod
    def load(self, weights: Arrays, state: Optional[Arrays]) -> None:
        """Puts weights, float32, on the devices, before `compile`.

        The state is what `state` gave with them, to go on from; None begins a new optimizer, or
        none where nothing is trained.

        Raises:
          DataError: the state is not of this optimizer.
        """

    @abstractmethod
    def compile(self, *, trains: bool, evaluates: bool) -> None:
        """Compiles what is due from the contract's shapes, before the first row is read."""

    @abstractmethod
    def put(self, rows: Batch) -> Any:
        """Puts a batch of the reader's on the devices; called in the reader's thread."""

    @abstractmethod
    def train(self, placed: Any, step: int) -> Callable[[], List[Dict[str, float]]]:
        """Starts the steps after `step`, as many as a call makes, and waits for none of them.

        The function it gives waits, and tells of each step `loss`, `learning_rate`, `counted` (what
        the loss is the mean over), and what else the framework knows, such as `gradient_norm`.
        """

    @abstractmethod
    def evaluate(self, placed: Any) -> Callable[[], Arrays]:
        """Starts the evaluation of a batch; gives a function that waits for the task's outputs."""

    @abstractmethod
    def weights(self) -> Arrays:
        """The weights after the steps so far, float32 on the host, not to be changed by later."""

    @abstractmethod
    def state(self) -> Arrays:
        """All else that the next step depends on: the optimizer's moments and counts."""

    def export(self, schema: Schema, tokenizer_json: bytes) -> str:
        """Writes what only the framework can, such as a SavedModel; says so in a line for people.

        Asked for where `exports_program` of ComputeFlags is true, after `load` of the weights.
        """
        raise TypeError(f"{type(self).__name__} writes no files of its own")


def check_state(state: Mapping[str, Any], expected: Mapping[str, Any], optimizer: str) -> None:
    """Refuses an optimizer's state of other names, shapes or dtypes than are due.

    Raises:
      DataError: names the first that differs.
    """

    def describe(values: Mapping[str, Any], name: str) -> str:
        if name not in values:
            return "missing"
        value = values[name]
        return f"{str(value.dtype).split('.')[-1]} {tuple(value.shape)}"  # torch.float32

    for name in sorted({*state, *expected}):
        if describe(state, name) != describe(expected, name):
            raise DataError(
                f"the checkpoint is not of --optimizer={optimizer} and this model: of its state "
                f"{name} is {describe(state, name)}, and here {describe(expected, name)}. "
                "Resume with the flags that the run began with"
            )


Metrics = Dict[str, float]


class Task(ABC):
    """What is learned, told of a split once a program has run over it."""

    unit: str  # of the loss, on the plot: "nats a masked token"
    counts: str  # what metrics.jsonl calls the weight that a step's loss is the mean over: "masked"
    best_by: Optional[str] = None  # the measure that the best weights are chosen by

    @property
    def best_is_highest(self) -> bool:
        """Whether more of it is better: of a loss less is."""
        return self.best_by != "loss"

    @abstractmethod
    def measure(self, batches: Iterator[Tuple[Batch, Arrays]]) -> Optional[Metrics]:
        """Metrics of a whole split, `loss` among them; None where nothing in it counts.

        Takes each batch as the reader gave it, with what `Program.evaluate` found of it.
        """

    @abstractmethod
    def describe(self, metrics: Mapping[str, float]) -> str:
        """The metrics in a few words: "loss 2.1234, accuracy 51.20%"."""

    def prepare_training(self, shards: BatchReader) -> List[str]:
        """Reads of the set what only training needs; what a user should know before the first step.

        Raises:
          UsageError: the flags do not go with the set.
        """
        return []

    def export_notes(self) -> List[str]:
        """What a model that is exported loses."""
        return []

    def meaning_of(self, schema: Schema) -> Dict[str, object]:
        """What rows must have in common with those that a model was trained on, by its name."""
        return {}

    def check_same_rows(self, shards: str, schema: Schema, trained: Schema) -> None:
        """Refuses rows of a `schema` that mean something else than those a model was trained on.

        Raises:
          UsageError: names the set and what differs.
        """
        of_rows, of_model = self.meaning_of(schema), self.meaning_of(trained)
        differences = [
            f"its {name} is {of_rows[name]!r}, the model's {of_model[name]!r}"
            for name in of_rows
            if of_rows[name] != of_model[name]
        ]
        if differences:
            raise UsageError(
                f"{shards} does not go with the model: {'; '.join(differences)}. Build it with the "
                "tokenizer and flags of the set that the model was trained on"
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
        """Labels the texts of a file with a trained model, in another file or on standard output.

        Raises:
          UsageError: the task labels no texts.
        """
        raise UsageError(f"--predict={texts}: the model is no classifier, and labels no texts")

    def write_files(self, folder: Path) -> None:
        """Writes what people look at of the split measured last; each replaces the one before."""
        return

    def report(self, folder: Path, rows: List[Metrics], title: str) -> List[str]:
        """Writes what compares checkpoints, whose metrics have their "step"; lines to print."""
        return []


class Trainer(NamedTuple):
    """What an entry is made of.

    Attributes:
      flags: its flags.
      make_task: of the flags, the contract, and the set that is read, if one is.
      import_program: imports the framework, and makes the program of a plan.
      framework: its name, for people.
      gigabytes: of addresses that it takes at least.
      write_text: continues a text, where the model can.
    """

    flags: Type[RunFlags]
    make_task: Callable[[RunFlags, Schema, Optional[BatchReader]], Task]
    import_program: Callable[[Plan, Any], Program]
    framework: str
    gigabytes: float
    write_text: Optional[Callable[..., None]] = None

    def make_program(self, plan: Plan, task: Task) -> Program:
        """The program of a plan; refuses where the framework could not be loaded."""
        want_addresses(self.gigabytes, self.framework)
        with Interruption() as interruption:  # a library whose import was cut off fails otherwise
            program = self.import_program(plan, task)
        interruption.deliver()
        return program


class Schedule:
    """Share of the highest rate after so many steps; no step of the run has a rate of 0.

    With 4 steps of warm-up among 8: 1/4, 2/4, 3/4, 1, 4/5, 3/5, 2/5, 1/5.
    """

    def __init__(self, steps: int, warmup_steps: Optional[int]):
        """Takes the steps of the run and of the warm-up; None is a tenth of the run."""
        self.steps = steps
        self.warmup = max(1, steps // 10 if warmup_steps is None else warmup_steps)

    def rise(self, done: Any) -> Any:
        """The share while warming up; numbers and arrays of any framework alike."""
        return (done + 1.0) / self.warmup

    def fall(self, done: Any) -> Any:
        """The share afterwards; below 0 where `done` is beyond the run."""
        return (self.steps - done) / max(1, self.steps + 1 - self.warmup)

    def __call__(self, done: int) -> float:
        """The share for the step after `done`."""
        return self.rise(done) if done < self.warmup else max(0.0, self.fall(done))


class Interruption:
    """A context in which the first signal only sets `signal`; a second one stops at once.

    Outside of the main thread, where Python lets nobody catch signals, it stays None.
    """

    def __init__(self) -> None:
        self.signal: Optional[int] = None  # the number of the one that came
        self._before: Dict[int, Any] = {}

    @property
    def exit_code(self) -> int:
        """As shells report a signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)

    def __enter__(self) -> "Interruption":
        """Catches the signals."""
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        except ValueError:  # not the main thread
            pass
        return self

    def __exit__(self, *_: object) -> None:
        """Gives the signals back, once more where one comes in the middle of this."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def deliver(self) -> None:
        """Sends on the signal that came; called after the context."""
        if self.signal is not None:
            signal.raise_signal(self.signal)

    def _note(self, number: int, _: Optional[FrameType]) -> None:
        self.signal = number
        self.__exit__()
