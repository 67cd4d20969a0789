"""Optimizers of optax and their learning rate, as the flags ask for them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from trainers.run.flags import RunFlags
from trainers.run.schedule import Schedule

Rate = Callable[[Any], Any]  # steps done -> learning rate


def learning_rate(flags: RunFlags, steps: int) -> Rate:
    """The rate of each step of a run of so many, see `Schedule`; pure."""
    schedule = Schedule(steps, flags.warmup_steps)

    def rate(done: Any) -> jax.Array:
        share = jnp.where(done < schedule.warmup, schedule.rise(done), schedule.fall(done))
        return flags.learning_rate * jnp.maximum(share, 0.0)

    return rate


def optimizer_for(flags: RunFlags, rate: Rate) -> optax.GradientTransformation:
    """Clipping and the optimizer; weights of matrices decay, biases and norms (vectors) do not."""
    optimizer = _OPTIMIZERS[flags.optimizer](flags, rate)
    if not flags.clip_norm:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(flags.clip_norm), optimizer)


def _matrices(params: Any) -> Any:
    return jax.tree.map(lambda value: value.ndim > 1, params)


def _adamw(flags: RunFlags, rate: Rate) -> optax.GradientTransformation:
    return optax.adamw(
        rate,
        b1=flags.beta1,
        b2=flags.beta2,
        eps=flags.epsilon,
        weight_decay=flags.weight_decay,
        mask=_matrices,
    )


def _adafactor(flags: RunFlags, rate: Rate) -> optax.GradientTransformation:
    # optax subtracts weight_decay_rate times the weight whatever the rate of the step is; ours is
    # times the rate, as --weight_decay says and as with the other optimizers.
    return optax.adafactor(
        rate,
        weight_decay_rate=lambda done: flags.weight_decay * rate(done),
        weight_decay_mask=_matrices,
    )


def _sgd_momentum(flags: RunFlags, rate: Rate) -> optax.GradientTransformation:
    return optax.chain(
        optax.add_decayed_weights(flags.weight_decay, mask=_matrices),
        optax.sgd(rate, momentum=flags.beta1),
    )


def _lion(flags: RunFlags, rate: Rate) -> optax.GradientTransformation:
    return optax.lion(
        rate, b1=flags.beta1, b2=flags.beta2, weight_decay=flags.weight_decay, mask=_matrices
    )


_OPTIMIZERS = {
    "adamw": _adamw,
    "adafactor": _adafactor,
    "sgd_momentum": _sgd_momentum,
    "lion": _lion,
}
