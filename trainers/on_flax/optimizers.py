"""Optimizers of the Flax trainers, by --optimizer, with the learning rate of each step."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from trainers.flags.run_flags import OptimizationFlags
from trainers.run.program import Schedule

Rate = Callable[[Any], Any]  # steps done -> learning rate


def learning_rate(flags: OptimizationFlags, steps: int) -> Rate:
    """The learning rate as a pure function of steps done, see `Schedule`."""
    schedule = Schedule(steps, flags)
    return lambda done: flags.learning_rate * schedule.share(done, jnp)


def optimizer_for(flags: OptimizationFlags, rate: Rate) -> optax.GradientTransformation:
    """Clipping and the optimizer; matrices decay, vectors (biases and norms) do not."""
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
        # optax's adafactor does not multiply weight_decay_rate by the learning rate; --weight_decay
        # is multiplied by it, as with the other optimizers.
        decay_rate = lambda done: flags.weight_decay * rate(done)  # noqa: E731
        optimizer = optax.adafactor(rate, weight_decay_rate=decay_rate, weight_decay_mask=_matrices)
    if not flags.clip_norm:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(flags.clip_norm), optimizer)


def _matrices(params: Any) -> Any:
    return jax.tree.map(lambda value: value.ndim > 1, params)
