"""Programs of poptorch_classifier for tests that drive them without the loop."""

from pathlib import Path
from typing import Any

from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.models.plan_model import plan_model
from textmill.trainers.poptorch_classifier import TRAINER, PoptorchClassifierFlags
from textmill.trainers.reader import ShardSet
from textmill.trainers.run.plan import TrainingPlan


def make_program(shards: Path | str, **settings: Any) -> Any:
    """The program of these flags, with weights before the first step."""
    reader = ShardSet(str(shards))
    flags = make_flags(PoptorchClassifierFlags, shards=str(shards), **settings)
    planned = plan_model(flags, reader.schema)
    plan = TrainingPlan(flags, reader.schema, planned.config, flags.plan_steps(reader), Path("run"))
    task = TRAINER.make_task(plan.flags, plan.schema, reader)
    task.prepare_training(reader)
    program = TRAINER.make_program(plan, task)
    program.load(planned.first_weights(plan.flags.compute.seed)[0], None)
    program.compile(trains=True, evaluates=True)
    return program
