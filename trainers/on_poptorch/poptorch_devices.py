"""The program of the classifier for the devices that there are: IPUs, else plain PyTorch."""

from __future__ import annotations

import os
from types import ModuleType

from textmill.schemas.errors import UsageError, flag
from textmill.trainers.flags.framework_flags import IpuComputeFlags
from textmill.trainers.on_poptorch.ipu_program import IpuProgram
from textmill.trainers.on_poptorch.module_program import ModuleProgram
from textmill.trainers.on_poptorch.ranks import Ranks
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.program import Program
from textmill.trainers.tasks.classification import ClassificationTask


def make_program(plan: TrainingPlan, task: ClassificationTask) -> Program:
    """A classifier on IPUs if --device finds some, else in plain PyTorch.

    Raises:
      UsageError: torchrun started several processes for IPUs, or for the use of a model.
    """
    compute, processes = plan.flags.compute, os.environ.get("WORLD_SIZE", "1")
    assert isinstance(compute, IpuComputeFlags)
    poptorch = find_poptorch(compute.device)
    if poptorch is not None:
        if processes != "1":
            raise UsageError(
                f"WORLD_SIZE={processes}: a run on IPUs is one process: start it without torchrun; "
                f"{flag('replication')} uses more IPUs"
            )
        return IpuProgram(plan, task.weights, poptorch)
    if processes != "1" and Ranks().count == 1:  # only training joins the others
        raise UsageError(
            f"WORLD_SIZE={processes}: a trained model is used in one process, without torchrun"
        )
    return ModuleProgram(plan, task.weights, compute.device)


def find_poptorch(device: str) -> ModuleType | None:
    """PopTorch if --device is auto or ipu and there are IPUs, else None.

    Raises:
      UsageError: --device=ipu, and there are no IPUs.
    """
    if device not in ("auto", "ipu"):
        return None
    try:
        # Few hosts have it.
        import poptorch  # pyright: ignore[reportMissingImports]
    except ImportError:
        poptorch = None
    if poptorch is not None and poptorch.ipuHardwareIsAvailable():
        return poptorch
    if device == "ipu":
        raise UsageError(
            f"{flag('device', 'ipu')}: PopTorch finds no IPU. Install Graphcore's Poplar SDK, "
            "which contains PopTorch, on a machine with IPUs, or train the same model with "
            f"{flag('device', 'cpu')}"
        )
    return None
