"""Optimizers and the schedule of the learning rate, put together from optax's parts."""

from collections.abc import Callable
from typing import Any

import jax
import optax

from trainers.on_flax.run_config import RunConfig

Rate = Callable[[Any], Any]  # steps done -> learning rate


def learning_rate(config: RunConfig, steps: int) -> Rate:
    """Linear up to the highest over the warm-up, then linear down; no step has a rate of 0.

    Of 0.4 with 4 steps of warm-up among 8: 0.1, 0.2, 0.3, 0.4, 0.32, 0.24, 0.16, 0.08.
    """
    warmup = max(1, steps // 10 if config.warmup_steps is None else config.warmup_steps)
    highest = config.learning_rate
    fall = optax.linear_schedule(highest, 0.0, max(1, steps + 1 - warmup))
    if warmup == 1:
        return fall
    rise = optax.linear_schedule(highest / warmup, highest, warmup - 1)
    return optax.join_schedules([rise, fall], [warmup - 1])


def optimizer_for(config: RunConfig, rate: Rate) -> optax.GradientTransformation:
    """Clipping and the optimizer; weights of matrices decay, biases and norms (vectors) do not."""
    optimizer = _OPTIMIZERS[config.optimizer](config, rate)
    if not config.clip_norm:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), optimizer)


def _matrices(params: Any) -> Any:
    return jax.tree.map(lambda value: value.ndim > 1, params)


def _adamw(config: RunConfig, rate: Rate) -> optax.GradientTransformation:
    return optax.adamw(
        rate,
        b1=config.beta1,
        b2=config.beta2,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        mask=_matrices,
    )


def _adafactor(config: RunConfig, rate: Rate) -> optax.GradientTransformation:
    """As `optax.adafactor` with a given rate, but with a decay in proportion to that rate."""
    return optax.chain(
        optax.scale_by_factored_rms(),
        optax.clip_by_block_rms(1.0),
        optax.add_decayed_weights(config.weight_decay, mask=_matrices),
        optax.scale_by_learning_rate(rate),
    )


def _sgd_momentum(config: RunConfig, rate: Rate) -> optax.GradientTransformation:
    return optax.chain(
        optax.add_decayed_weights(config.weight_decay, mask=_matrices),
        optax.sgd(rate, momentum=config.beta1),
    )


def _lion(config: RunConfig, rate: Rate) -> optax.GradientTransformation:
    return optax.lion(
        rate, b1=config.beta1, b2=config.beta2, weight_decay=config.weight_decay, mask=_matrices
    )


_OPTIMIZERS = {
    "adamw": _adamw,
    "adafactor": _adafactor,
    "sgd_momentum": _sgd_momentum,
    "lion": _lion,
}
