"""Optimizers and the schedule of the learning rate: PyTorch's own, and PopTorch's on IPUs."""

from types import ModuleType
from typing import Any, Dict, List

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from schemas.errors import UsageError
from trainers.on_poptorch.config import TrainConfig


def groups(model: nn.Module, weight_decay: float) -> List[Dict[str, Any]]:
    """Two groups of weights: matrices, which decay, and vectors (biases, norms), which do not."""
    weights = list(model.parameters())
    return [
        {"params": [w for w in weights if w.ndim > 1], "weight_decay": weight_decay},
        {"params": [w for w in weights if w.ndim <= 1], "weight_decay": 0.0},
    ]


def torch_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer where there is no IPU.

    Raises:
      UsageError: this version of PyTorch has no such optimizer.
    """
    weights, rate = groups(model, config.weight_decay), config.learning_rate
    if config.optimizer == "adamw":
        betas = (config.beta1, config.beta2)
        return torch.optim.AdamW(weights, lr=rate, betas=betas, eps=config.epsilon)
    if config.optimizer == "sgd_momentum":
        return torch.optim.SGD(weights, lr=rate, momentum=config.beta1)
    name = {"adafactor": "Adafactor", "lion": "Lion"}[config.optimizer]
    if not hasattr(torch.optim, name):
        hint = "PyTorch 2.5 brought it" if name == "Adafactor" else "no PyTorch known of has it"
        raise UsageError(
            f"--optimizer={config.optimizer}: PyTorch {torch.__version__} has no "
            f"torch.optim.{name} ({hint}); give adamw or sgd_momentum"
        )
    return getattr(torch.optim, name)(weights, lr=rate)


def poptorch_optimizer(
    config: TrainConfig, model: nn.Module, poptorch: ModuleType, *, half: bool
) -> torch.optim.Optimizer:
    """The optimizer that runs on IPUs: moments in float32, gradients as the model has them.

    Args:
      config: the settings.
      model: whose weights it changes.
      poptorch: the module.
      half: whether the model is in float16.

    Raises:
      UsageError: PopTorch has no such optimizer.
    """
    limit = config.clip_norm or float("inf")
    shared = {
        "lr": config.learning_rate,
        "loss_scaling": config.loss_scaling if half else 1.0,
        "accum_type": torch.float16 if half else torch.float32,
        "max_grad_norm": limit,
    }
    weights = groups(model, config.weight_decay)
    if config.optimizer == "adamw":
        return poptorch.optim.AdamW(
            weights,
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            bias_correction=True,
            first_order_momentum_accum_type=torch.float32,
            second_order_momentum_accum_type=torch.float32,
            **shared,
        )
    if config.optimizer == "sgd_momentum":
        return poptorch.optim.SGD(
            weights,
            momentum=config.beta1,
            use_combined_accum=False,  # gradients and velocity apart, each of its own type
            velocity_accum_type=torch.float32,
            **shared,
        )
    raise UsageError(
        f"--optimizer={config.optimizer}: PopTorch has SGD, Adam, AdamW, RMSprop and LAMB for "
        "IPUs; give adamw or sgd_momentum"
    )


class Rate:
    """Share of the highest learning rate after so many steps; no step has a rate of 0.

    With 4 steps of warm-up among 8: 1/4, 2/4, 3/4, 1, 4/5, 3/5, 2/5, 1/5.
    """

    def __init__(self, steps: int, warmup: int):
        """Linear up over the warm-up, then linear down."""
        self.steps, self.warmup = steps, max(1, warmup)

    def __call__(self, done: int) -> float:
        """The share for the step after `done`."""
        if done < self.warmup:
            return (done + 1) / self.warmup
        return max(0.0, (self.steps - done) / max(1, self.steps + 1 - self.warmup))


def schedule_for(config: TrainConfig, optimizer: torch.optim.Optimizer, steps: int) -> LambdaLR:
    """PyTorch's scheduler with this trainer's line; its state goes into checkpoints."""
    warmup = steps // 10 if config.warmup_steps is None else config.warmup_steps
    return LambdaLR(optimizer, Rate(steps, warmup))
