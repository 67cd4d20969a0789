"""A run as planned: its flags, checked against the dataset."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable

from textmill.schemas.commands.terminal import say
from textmill.schemas.errors import flag
from textmill.schemas.files.hub import find_on_hub
from textmill.schemas.format.metadata import Schema
from textmill.trainers.data.batches import BatchReader
from textmill.trainers.data.window_order import WINDOW_PIECES
from textmill.trainers.flags.run_flags import RunFlags
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.models.plan_model import PlannedModel, plan_model
from textmill.trainers.models.set_tokenizer import TOKENIZER, check_same_tokens, set_file
from textmill.trainers.models.weights import shapes
from textmill.trainers.run.schedule import Schedule


@dataclass(frozen=True)
class TrainingPlan:
    """A run: its flags, checked against the dataset's schema."""

    flags: RunFlags
    schema: Schema
    model: ModelConfig
    steps: int  # optimizer steps of the whole schedule
    output: Path  # the run's directory

    @property
    def schedule(self) -> Schedule:
        """The learning rate over the steps."""
        return Schedule(self.steps, self.flags.optimization)

    def describe(self, rows: int, steps: int) -> str:
        """Model, rows of the dataset and steps of the program, one line."""
        model, size = self.model, self.flags.compute.batch_size
        parameters = sum(math.prod(shape) for shape in shapes(model).values())
        return (
            f"{model.family}, {model.layers} layers of {model.hidden_size}, {parameters:,} "
            f"parameters; {rows:,} rows of {self.schema.max_length} tokens, {steps:,} steps of "
            f"{size:,} rows"
        )

    def evaluates(self, shards: BatchReader) -> bool:
        """Whether there are rows to evaluate on."""
        split = self.flags.data.validation_split
        return split in shards.splits and shards.rows(split) > 0

    def describe_data(self, shards: BatchReader, steps: int) -> list[str]:
        """Lines on missing rows, and on the passes over the dataset in the steps of the program."""
        data, size = self.flags.data, self.flags.compute.batch_size
        notes = shards.describe_passes(data.train_split, steps, size)
        if "window" in shards.row_order:
            windows = f"rows are permuted in windows of {WINDOW_PIECES} pieces of the dataset"
            notes = [f"{windows} ({flag('order', 'window')})", *notes]
        if self.evaluates(shards):
            return [*notes]
        missing = (
            f"split {data.validation_split!r} has no rows: no evaluations; "
            f"{flag('validation_split')} names a different split"
        )
        return [missing, *notes]


def plan_run(
    flags: RunFlags, shards: BatchReader, say: Callable[[str], None]
) -> tuple[TrainingPlan, PlannedModel]:
    """The plan of a run on this dataset, and its model; `say` gets notes on --init_from.

    Raises:
      UsageError: flags and dataset do not fit together.
      DataError: published weights are broken, or the training split is empty.
    """
    schema, init_from = shards.schema, flags.files.init_from
    flags.task.check_rows(schema, flags.data.shards)
    model = plan_model(flags, schema)
    if init_from is not None:
        directory = find_on_hub(init_from, field="init_from").path
        for note in check_same_tokens(set_file(shards, TOKENIZER), directory):
            say(f"note: {note}")
    flags.check_splits(shards)
    steps = flags.plan_steps(shards)
    return TrainingPlan(flags, schema, model.config, steps, flags.output), model


def describe_run(flags: RunFlags, make_task: Callable[..., object]) -> None:
    """Prints the model, and how often a run reads each dataset; touches no device and no file.

    Raises like `trainers.run.start.train` does before it compiles; the sums of files are not
    checked.
    """
    shards = replace(flags, data=replace(flags.data, verify=False)).open()
    plan, _ = plan_run(flags, shards, say)
    make_task(flags, plan.schema, shards)
    say(plan.describe(shards.rows(flags.data.train_split), plan.steps))
    for text in [*plan.describe_data(shards, plan.steps), *plan.schedule.notes()]:
        say(text)
