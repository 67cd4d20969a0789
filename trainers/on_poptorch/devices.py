"""Which device a run is on, and the runner for it."""

from typing import List, Tuple

import torch

from schemas.errors import UsageError
from trainers.models.hf_files import read_directory
from trainers.on_poptorch import weights
from trainers.on_poptorch.config import Plan
from trainers.on_poptorch.ipu import IpuRunner, find_poptorch
from trainers.on_poptorch.model import Classifier
from trainers.on_poptorch.placement import place
from trainers.on_poptorch.plain import PlainRunner
from trainers.on_poptorch.runner import Runner


def choose_device(wanted: str) -> str:
    """ipu, cuda or cpu for `--device`.

    Raises:
      UsageError: what was asked for is not there.
    """
    if wanted in ("auto", "ipu") and find_poptorch() is not None:
        return "ipu"
    if wanted == "ipu":
        raise UsageError(
            "--device=ipu: no IPU was found. PopTorch comes with Graphcore's Poplar SDK (it is on "
            "no package index) and must see an IPU; --device=cpu trains the same model without"
        )
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device=cuda: PyTorch finds no GPU; give --device=cpu")
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return wanted


def first_model(plan: Plan) -> Tuple[Classifier, List[str]]:
    """The model before the first step, and a line for each part of it that is new.

    Raises:
      DataError: published weights do not fit; names the tensors.
    """
    config, notes = plan.config, []
    if config.init_from is None:
        values = weights.fresh(plan.model, config.seed)
    else:
        place = f"--init_from={config.init_from}"
        _, tensors = read_directory(config.init_from)
        values, notes = weights.pretrained(tensors, plan.model, seed=config.seed, place=place)
    model = Classifier(plan.model)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in values.items()})
    return model, notes


def runner_for(plan: Plan) -> Tuple[Runner, int, List[str]]:
    """The model on its device.

    Returns:
      The runner, the steps of the schedule (whole calls), and notes for people.

    Raises:
      UsageError: settings do not suit the device.
    """
    config = plan.config
    placement = place(
        device=choose_device(config.device),
        precision=config.precision,
        blocks_per_ipu=config.blocks_per_ipu,
        layers=plan.model.layers,
        batch_size=config.batch_size,
        accumulation=config.accumulation,
        replication=config.replication,
        device_iterations=config.device_iterations,
    )
    a_call = placement.device_iterations
    for name in ("steps", "stop_after", "evaluate_every", "checkpoint_every"):
        value = getattr(config, name)
        if value is not None and value % a_call:
            raise UsageError(
                f"--{name}={value} is no multiple of --device_iterations={a_call}: the IPUs answer "
                "after so many steps; give a multiple"
            )
    steps = -(-plan.steps // a_call) * a_call
    model, notes = first_model(plan)
    if placement.device != "ipu":
        return PlainRunner(plan, placement, model, steps), steps, notes
    poptorch = find_poptorch()
    assert poptorch is not None  # as choose_device found
    return IpuRunner(plan, placement, model, steps, poptorch), steps, notes
