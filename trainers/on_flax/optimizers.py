"""Optimizers of the Flax trainers, by --optimizer, with the learning rate of each step.

Legend: I inputs and O outputs of a layer; O may join several matrices (query, key, value).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from textmill.trainers.flags.run_flags import OptimizationFlags
from textmill.trainers.models.families import LEAVES, NORMAL, Module
from textmill.trainers.on_flax.layers import modules_of_leaves, name_leaves
from textmill.trainers.run.schedule import Schedule

Rate = Callable[[Any], Any]  # steps done -> learning rate
MUON_MOMENTUM = 0.95  # this and the coefficients: Jordan et al.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
MUON_RMS = 0.2  # of an update's elements, about that of AdamW: Liu et al.


def learning_rate(flags: OptimizationFlags, steps: int) -> Rate:
    """The learning rate as a pure function of steps done, see `Schedule`."""
    schedule = Schedule(steps, flags)
    return lambda done: flags.learning_rate * schedule.share(done, jnp)


def optimizer_for(
    flags: OptimizationFlags, rate: Rate, modules: Sequence[Module]
) -> optax.GradientTransformation:
    """Clipping and the optimizer; matrices and tables decay, biases and norms do not."""
    leaves = modules_of_leaves(modules)
    decays = {name: LEAVES[module.kind][leaf] is NORMAL for name, (module, leaf) in leaves.items()}
    betas: Any = {"b1": flags.beta1, "b2": flags.beta2}
    decay: Any = {"weight_decay": flags.weight_decay, "mask": lambda tree: _label(tree, decays)}
    if flags.optimizer in ("adamw", "muon"):
        optimizer = optax.adamw(rate, eps=flags.epsilon, **betas, **decay)
        if flags.optimizer == "muon":
            optimizer = _beside_muon(optimizer, rate, flags.weight_decay, modules)
    elif flags.optimizer == "lion":
        optimizer = optax.lion(rate, **betas, **decay)
    elif flags.optimizer == "sgd_momentum":
        momentum = optax.sgd(rate, momentum=flags.beta1)
        optimizer = optax.chain(optax.add_decayed_weights(**decay), momentum)
    else:
        # optax's adafactor does not multiply weight_decay_rate by the learning rate; --weight_decay
        # is multiplied by it, as with the other optimizers.
        optimizer = optax.adafactor(
            rate,
            weight_decay_rate=lambda done: flags.weight_decay * rate(done),
            weight_decay_mask=decay["mask"],
        )
    if not flags.clip_norm:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(flags.clip_norm), optimizer)


def _label(tree: Any, labels: Mapping[str, Any]) -> Any:
    """A tree of the labels of its leaves, by their names."""
    return jax.tree.unflatten(
        jax.tree.structure(tree), [labels[name] for name in name_leaves(tree)]
    )


def _beside_muon(
    adamw: optax.GradientTransformation, rate: Rate, decay: float, modules: Sequence[Module]
) -> optax.GradientTransformation:
    """Muon for the matrices of layers, `adamw` for tables, heads, norms and biases.

    Muon: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024. The size
    of its updates, which lets both take one learning rate and decay: Liu et al., "Muon is scalable
    for LLM training", arXiv:2502.16982.
    """
    parts = {
        name: module.joined or module.rows
        for name, (module, leaf) in modules_of_leaves(modules).items()
        if module.ours.startswith("layers.") and module.width and leaf == "weight"
    }
    labels = {n: "muon" if n in parts else "adamw" for n in modules_of_leaves(modules)}

    def orthogonalize_all(updates: Any, _: Any) -> Any:
        return jax.tree.map(orthogonalize, updates, _label(updates, parts))

    muon = optax.chain(
        optax.trace(MUON_MOMENTUM, nesterov=True),
        optax.stateless(orthogonalize_all),
        optax.add_decayed_weights(decay),
        optax.scale_by_learning_rate(rate),
    )
    return optax.partition({"muon": muon, "adamw": adamw}, lambda tree: _label(tree, labels))


def orthogonalize(update_IxO: jax.Array, parts: Sequence[int]) -> jax.Array:
    """Orthogonalizes each matrix [I, part] of an update alone; elements then have MUON_RMS."""
    matrices = jnp.split(update_IxO, np.cumsum(parts)[:-1], axis=1)
    return jnp.concatenate(
        [MUON_RMS * math.sqrt(max(each.shape)) * newton_schulz(each) for each in matrices], axis=1
    )


def newton_schulz(matrix: jax.Array) -> jax.Array:
    """U V^T of a matrix U S V^T, roughly: five iterations bring singular values near 1."""
    a, b, c = NEWTON_SCHULZ
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if is_tall else matrix
    x = x / (jnp.linalg.norm(x) + 1e-7)

    def iterate(_: Any, x: jax.Array) -> jax.Array:
        gram = x @ x.T
        return a * x + (b * gram + c * gram @ gram) @ x

    x = jax.lax.fori_loop(0, 5, iterate, x)
    return x.T if is_tall else x
