"""Entry: trains an encoder as a classifier on Graphcore IPUs, or in plain PyTorch.

    python -m trainers.poptorch_classifier --shards=DIR --output=RUN --init_from=DIR --epochs=2
    python -m trainers.predict RUN --input=FILE.jsonl

`--help=all` lists every flag. Python 3.8 syntax, and PyTorch 2.0 as PopTorch 3.4 needs it.
"""

import os
from dataclasses import dataclass
from typing import ClassVar

from textmill.schemas.commands.entry import import_later, run_entry
from textmill.trainers.flags.framework_flags import IpuComputeFlags
from textmill.trainers.flags.run_flags import ClassifierFlags, RunFlags
from textmill.trainers.flags.task_flags import ClassificationFlags
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.processes import ALONE, Processes
from textmill.trainers.run.program import Program
from textmill.trainers.run.start import main_of
from textmill.trainers.run.trainer import Trainer
from textmill.trainers.tasks.classification import ClassificationTask


@dataclass(frozen=True)
class PoptorchClassifierFlags(RunFlags):
    """Trains BERT, RoBERTa or ELECTRA as a classifier on Graphcore IPUs, or in plain PyTorch."""

    entry: ClassVar[str] = "poptorch_classifier"

    architecture: ClassifierFlags = ClassifierFlags()
    compute: IpuComputeFlags = IpuComputeFlags()
    task: ClassificationFlags = ClassificationFlags()


def _import_program(plan: TrainingPlan, task: ClassificationTask) -> Program:
    # Threads that spin while they wait slow down other processes: beside four busy ones on two
    # cores a step took three times as long. On an idle machine PASSIVE costs 5 %.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return import_later("textmill.trainers.on_poptorch.poptorch_devices:make_program")(plan, task)


def _join(flags: PoptorchClassifierFlags) -> Processes:
    # A run in one process imports PyTorch after its checks.
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return ALONE
    return import_later("textmill.trainers.on_poptorch.ranks:join_ranks")()


TRAINER = Trainer(
    flags=PoptorchClassifierFlags,
    make_task=ClassificationTask,
    import_program=_import_program,
    framework="PyTorch",
    gigabytes=2.5,
    packages=("torch", "numpy"),
    join=_join,
)
main = main_of(TRAINER)

if __name__ == "__main__":
    run_entry(main)
