"""What the loop asks of a framework: a model on its devices, with its optimizer.

program.load(weights, None)                   # a new run; or what a checkpoint holds
program.compile(trains=True, evaluates=True)
read = program.train(program.place(rows), 0)  # starts step 1 and waits for nothing
read()                                        # [{"loss": 10.8, "counted": 210.0, ...}]
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from schemas.commands.entry import want_addresses
from schemas.sidecar import Schema
from trainers.data.batches import Batch, BatchReader
from trainers.models.model_config import ModelConfig
from trainers.run.interruption import Interruption

Arrays = Dict[str, np.ndarray]


@dataclass(frozen=True)
class Plan:
    """A run, once its flags have met the contract."""

    flags: Any  # RunFlags, and the task's, the model's and the framework's
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
    def place(self, rows: Batch) -> Any:
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

        Asked for where the flags' `exports_program` is true, after `load` of the weights.
        """
        raise TypeError(f"{type(self).__name__} writes no files of its own")


def only_whole_state(state: Mapping[str, Any], due: Mapping[str, Any]) -> None:
    """Refuses with a ValueError an optimizer's state of other names, shapes or dtypes than due."""
    for name in sorted(set(state) | set(due)):
        if name not in state or name not in due:
            raise ValueError(f"{name} is {'left over' if name in state else 'missing'}")
        if tuple(state[name].shape) != tuple(due[name].shape):
            raise ValueError(f"{name} has shape {state[name].shape}, not {due[name].shape}")
        kinds = [str(values[name].dtype).split(".")[-1] for values in (state, due)]  # torch.float32
        if kinds[0] != kinds[1]:
            raise ValueError(f"{name} is {kinds[0]}, not {kinds[1]}")


Measures = Dict[str, float]


class Task(ABC):
    """What is learned, told of a split once a program has run over it."""

    unit: str  # of the loss, on the picture: "nats a masked token"
    counts: str  # what metrics.jsonl calls the weight that a step's loss is the mean over: "masked"
    best_by: Optional[str] = None  # the measure that the best weights are chosen by

    @property
    def best_is_highest(self) -> bool:
        """Whether more of it is better: of a loss less is."""
        return self.best_by != "loss"

    @abstractmethod
    def measure(self, found: Iterator[Tuple[Batch, Arrays]]) -> Optional[Measures]:
        """Measures of a whole split, `loss` among them; None where nothing in it counts.

        Takes each batch as the reader gave it, with what `Program.evaluate` found of it.
        """

    @abstractmethod
    def describe(self, measures: Mapping[str, float]) -> str:
        """The measures in a few words: "loss 2.1234, accuracy 51.20%"."""

    def notes(self) -> List[str]:
        """What a user should know before the first step."""
        return []

    def check_same_rows(self, place: str, schema: Schema, trained: Schema) -> None:
        """Refuses rows of a `schema` that mean something else than those a model was trained on.

        Raises:
          UsageError: names the place of the rows and what differs.
        """
        return

    @property
    def is_asked(self) -> bool:
        """Whether the flags ask for something that `answer` does."""
        return False

    def answer(self, program: Program, schema: Schema, tokenizer_json: bytes) -> None:
        """Does with a trained model what the flags ask for, such as --predict."""
        return

    def write_files(self, folder: Path) -> None:
        """Writes what people look at of the split measured last; each replaces the one before."""
        return

    def report(self, folder: Path, rows: List[Measures], title: str) -> List[str]:
        """Writes what compares checkpoints, whose measures have their "step"; lines to print."""
        return []


class Trainer(NamedTuple):
    """What an entry is made of; the functions take its flags, or the plan made of them."""

    make_task: Callable[[Any, Schema, Optional[BatchReader]], Task]  # with the set if there is one
    import_program: Callable[[Plan, Any], Program]  # imports the framework
    framework: str  # its name, for people
    gigabytes: float  # of addresses that it takes at least

    def make_program(self, plan: Plan, task: Task) -> Program:
        """The program of a plan; refuses where the framework could not be loaded."""
        want_addresses(self.gigabytes, self.framework)
        with Interruption() as interruption:  # a library whose import was cut off fails otherwise
            program = self.import_program(plan, task)
        interruption.deliver()
        return program
