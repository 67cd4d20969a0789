"""Which device a classifier is on, and the program for it."""

from types import ModuleType
from typing import Optional

from schemas.errors import UsageError
from trainers.on_poptorch.classifier import ClassificationObjective
from trainers.on_poptorch.ipu_program import IpuProgram
from trainers.on_poptorch.module_program import ModuleProgram
from trainers.on_poptorch.placement import place_on_ipus
from trainers.run.program import Plan, Program
from trainers.tasks.classification import ClassificationTask


def make_classifier_program(plan: Plan, task: ClassificationTask) -> Program:
    """The classifier on IPUs where they are asked for or found, else on a GPU or the CPU.

    Raises:
      UsageError: what was asked for is not there, or flags do not suit it.
    """
    flags = plan.flags
    poptorch = find_poptorch() if flags.device in ("auto", "ipu") else None
    if poptorch is None:
        if flags.device == "ipu":
            raise UsageError(
                "--device=ipu: no IPU was found. PopTorch comes with Graphcore's Poplar SDK (it is "
                "on no package index) and must see an IPU; --device=cpu trains the same model "
                "without"
            )
        return ModuleProgram(plan, ClassificationObjective(plan.model, task.weights))
    if any(weight != 1.0 for weight in task.weights):
        raise UsageError(
            f"--class_weights={flags.class_weights}: IPUs weigh all microbatches alike, whatever "
            "classes are in them; leave it out, or give --device=cpu"
        )
    return IpuProgram(plan, place_on_ipus(flags, layers=plan.model.layers), poptorch)


def find_poptorch() -> Optional[ModuleType]:
    """PopTorch, if it is installed and finds an IPU."""
    try:
        import poptorch  # pyright: ignore[reportMissingImports]  # few hosts have it
    except ImportError:
        return None
    return poptorch if poptorch.ipuHardwareIsAvailable() else None
