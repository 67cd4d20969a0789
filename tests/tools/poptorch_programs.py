"""Programs of poptorch_classifier for tests that drive them without the loop."""

from pathlib import Path
from typing import Any

from trainers.flags.command_line import make_flags
from trainers.models.plan_model import plan_model
from trainers.poptorch_classifier import TRAINER, PoptorchClassifierFlags
from trainers.reader import ShardSet
from trainers.run.program import Plan


def make_plan(shards: Path | str, **settings: Any) -> Plan:
    """What a command line of these flags plans on a set."""
    reader = ShardSet(str(shards))
    flags = make_flags(PoptorchClassifierFlags, shards=str(shards), **settings)
    model = plan_model(flags, reader.schema).config
    steps = flags.plan_steps(reader)
    return Plan(flags, reader.schema, model, steps, Path("run"))


def make_program(shards: Path | str, **settings: Any) -> Any:
    """The program of these flags, with weights before the first step."""
    plan = make_plan(shards, **settings)
    reader = ShardSet(str(shards))
    task = TRAINER.make_task(plan.flags, plan.schema, reader)
    task.prepare_training(reader)
    program = TRAINER.make_program(plan, task)
    planned = plan_model(plan.flags, plan.schema)
    program.load(planned.first_weights(plan.flags.compute.seed)[0], None)
    return program
