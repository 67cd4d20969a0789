"""Optimizers: PyTorch's own on the CPU and GPUs, PopTorch's on IPUs."""

from types import ModuleType
from typing import Any, Dict, List, Mapping

import torch
from torch import nn

from schemas.errors import DataError, UsageError
from trainers.run.program import Arrays, only_whole_state

RANDOM = "random"  # a checkpoint's random numbers, which only IPUs keep


def parameter_groups(module: nn.Module, weight_decay: float) -> List[Dict[str, Any]]:
    """Two groups of weights: matrices, which decay, and vectors (biases, norms), which do not."""
    weights = list(module.parameters())
    return [
        {"params": [w for w in weights if w.ndim > 1], "weight_decay": weight_decay},
        {"params": [w for w in weights if w.ndim <= 1], "weight_decay": 0.0},
    ]


def torch_optimizer(flags: Any, module: nn.Module) -> torch.optim.Optimizer:
    """The optimizer where there is no IPU.

    Raises:
      UsageError: this version of PyTorch has no such optimizer.
    """
    betas = (flags.beta1, flags.beta2)
    name, own = {
        "adamw": ("AdamW", {"betas": betas, "eps": flags.epsilon}),
        "sgd_momentum": ("SGD", {"momentum": flags.beta1}),
        "adafactor": ("Adafactor", {}),
        "lion": ("Lion", {"betas": betas}),
    }[flags.optimizer]
    if not hasattr(torch.optim, name):
        raise UsageError(
            f"--optimizer={flags.optimizer}: PyTorch {torch.__version__} has no torch.optim.{name} "
            "(2.5 brought Adafactor, and none known of has Lion); give adamw or sgd_momentum"
        )
    groups = parameter_groups(module, flags.weight_decay)
    return getattr(torch.optim, name)(groups, lr=flags.learning_rate, **own)


def poptorch_optimizer(
    flags: Any, module: nn.Module, poptorch: ModuleType, *, is_half: bool
) -> torch.optim.Optimizer:
    """The optimizer that runs on IPUs: moments in float32, gradients as the model has them.

    Raises:
      UsageError: PopTorch has no such optimizer.
    """
    groups = parameter_groups(module, flags.weight_decay)
    shared = {
        "lr": flags.learning_rate,
        "loss_scaling": flags.loss_scaling if is_half else 1.0,
        "accum_type": torch.float16 if is_half else torch.float32,
        "max_grad_norm": flags.clip_norm or float("inf"),
    }
    if flags.optimizer == "adamw":
        return poptorch.optim.AdamW(
            groups,
            betas=(flags.beta1, flags.beta2),
            eps=flags.epsilon,
            bias_correction=True,
            first_order_momentum_accum_type=torch.float32,
            second_order_momentum_accum_type=torch.float32,
            **shared,
        )
    if flags.optimizer == "sgd_momentum":
        return poptorch.optim.SGD(
            groups,
            momentum=flags.beta1,
            use_combined_accum=False,  # gradients and velocity apart, each of its own type
            velocity_accum_type=torch.float32,
            **shared,
        )
    raise UsageError(
        f"--optimizer={flags.optimizer}: PopTorch has SGD, Adam, AdamW, RMSprop and LAMB for "
        "IPUs; give adamw or sgd_momentum"
    )


def check_state(state: Arrays, due: Mapping[str, Any], *, on_ipus: bool) -> None:
    """Refuses a checkpoint of another kind of device, whose optimizer keeps another state.

    Raises:
      DataError: names both devices, or what differs from the state that is due.
    """
    here, there = ("IPUs", "plain PyTorch") if on_ipus else ("plain PyTorch", "IPUs")
    if (RANDOM in state) != on_ipus:
        raise DataError(
            f"the checkpoint is of a run on {there}, and this one is on {here}: their optimizers "
            "keep different states. Resume there, or start anew with --init_from an exported model"
        )
    try:
        only_whole_state({name: state[name] for name in state if name != RANDOM}, due)
    except ValueError as error:
        raise DataError(f"the checkpoint's optimizer is another: {error}") from error
