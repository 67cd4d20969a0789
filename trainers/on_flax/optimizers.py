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
    betas: Any = {"b1": flags.beta1, "b2": flags.beta2}
    decay: Any = {"weight_decay": flags.weight_decay, "mask": _matrices}
    if flags.optimizer == "adamw":
        optimizer = optax.adamw(rate, eps=flags.epsilon, **betas, **decay)
    elif flags.optimizer == "lion":
        optimizer = optax.lion(rate, **betas, **decay)
    elif flags.optimizer == "sgd_momentum":
        momentum = optax.sgd(rate, momentum=flags.beta1)
        optimizer = optax.chain(optax.add_decayed_weights(**decay), momentum)
    else:
        # optax takes weight_decay_rate times the weight away whatever the rate of the step is;
        # here it is times the rate too, as --weight_decay says and as with the others.
        decay_rate = lambda done: flags.weight_decay * rate(done)  # noqa: E731
        optimizer = optax.adafactor(rate, weight_decay_rate=decay_rate, weight_decay_mask=_matrices)
    if not flags.clip_norm:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(flags.clip_norm), optimizer)


def _matrices(params: Any) -> Any:
    return jax.tree.map(lambda value: value.ndim > 1, params)
