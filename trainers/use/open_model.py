"""A trained model that is opened for use, with the flags of its use."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, NamedTuple

from textmill.schemas.commands.options import Given
from textmill.schemas.errors import UsageError
from textmill.schemas.format.metadata import Schema
from textmill.trainers.flags.run_flags import RunFlags
from textmill.trainers.run.journal import ProgressLine
from textmill.trainers.run.memory import memory_errors
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.program import Program
from textmill.trainers.run.run_directory import as_data_errors
from textmill.trainers.run.tensors import Arrays
from textmill.trainers.run.trained import Trained, find_trained
from textmill.trainers.run.trainer import Trainer
from textmill.trainers.run.training_task import TrainingTask
from textmill.trainers.use import use_flags
from textmill.trainers.use.verbs import Verb


class OpenModel(NamedTuple):
    """A trained model, its trainer, and the flags of its use."""

    use: Any  # the flags of the verb
    flags: RunFlags
    trained: Trained
    trainer: Trainer

    def plan(self, schema: Schema) -> TrainingPlan:
        """A plan of no training, for a program on rows of this schema."""
        return TrainingPlan(self.flags, schema, self.trained.config, 1, self.trained.directory)

    def of_run(self) -> tuple[TrainingPlan, bytes]:
        """A plan with the schema of the run's dataset, and its tokenizer.

        Raises:
          UsageError: the weights are published ones.
        """
        trained = self.trained
        if trained.schema is None or trained.tokenizer_json is None:
            raise UsageError(f"{trained.directory} is not a run: give the output directory of one")
        return self.plan(trained.schema), trained.tokenizer_json

    def task(self, plan: TrainingPlan) -> TrainingTask:
        """The task of the trainer, without rows."""
        return self.trainer.make_task(self.flags, plan.schema, None)

    def weights(self) -> tuple[str, Callable[[], Arrays]]:
        """The name of the one checkpoint in use, and what reads it."""
        [named] = self.trained.weights
        return named

    def load(self, plan: TrainingPlan, task: TrainingTask) -> Program:
        """A program with the weights, not compiled."""
        program = self.trainer.make_program(plan, task)
        program.load(self.weights()[1](), None)
        return program


@contextmanager
def open_model(
    argv: list[str], verb: Verb, given: Mapping[str, Given] | None = None
) -> Iterator[OpenModel]:
    """The model of a command line; in the block, errors name the run.

    Args:
      argv: of the command.
      verb: which command it is.
      given: values of Python by name of the flag.

    Raises:
      SystemExit: 0, after help.
      UsageError: there is no such model, or a flag is wrong.
      DataError: a file cannot be read or written.
    """
    own = use_flags.parse_own(argv, verb, given)
    with as_data_errors(Path(own.run), "Repair that, then run again"):
        trained = find_trained(own.run, own.checkpoint)
        trainer = use_flags.trainer_of(trained, own.trainer)
        use, flags = use_flags.parse_all(argv, verb, trained, trainer, given)
        for note in trained.notes:
            ProgressLine().say(f"note: {note}")
        with memory_errors(str(trained.directory), flags, "lower it, or give another device"):
            yield OpenModel(use, flags, trained, trainer)
