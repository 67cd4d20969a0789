"""Muon against the papers in float64; which weights it takes, and names of its state."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import optax
import pytest

from tests.tools.clm_factory import clm_schema
from tests.tools.flax_weights import to_weights
from tests.tools.shard_factory import mlm_schema
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.flags.run_flags import PretrainingFlags
from textmill.trainers.flax_clm import FlaxClmFlags
from textmill.trainers.flax_mlm import FlaxMlmFlags
from textmill.trainers.models.families import FAMILIES, Module
from textmill.trainers.models.plan_model import plan_model
from textmill.trainers.models.weights import init_weights, shapes
from textmill.trainers.on_flax.layers import name_leaves, to_params
from textmill.trainers.on_flax.optimizers import optimizer_for

RATE, DECAY = 0.02, 0.1
SIZES = {"hidden_size": 16, "heads": 2, "intermediate_size": 24}
MODEL: Any = SimpleNamespace(
    modules=[
        Module("embeddings.tokens", ("wte",), "table", (12,), 8),
        Module("layers.0.norm", ("ln",), "norm", (8,)),
        Module("layers.0.qkv", ("q", "k", "v"), "linear", (8, 4, 4), 8),  # grouped queries
        Module("layers.0.mlp_in", ("gate", "up"), "matrix", (20, 20), 8),
        Module("layers.0.mlp_out", ("down",), "matrix", (8,), 20),
        Module("layers.0.fused", ("c_attn",), "linear", (24,), 8, joined=(8, 8, 8)),
        Module("head", ("lm_head",), "matrix", (12,), 8),
    ]
)
# Where the rows of those that Muon takes are cut; the others are AdamW's.
CUTS = {"qkv": [8, 12], "mlp_in": [20], "mlp_out": [], "fused": [8, 16]}


def reference_muon(weight, momentum, gradient):
    """One matrix in float64, after Jordan et al. 2024 and Liu et al., arXiv:2502.16982."""
    momentum = 0.95 * momentum + gradient
    x = gradient + 0.95 * momentum  # Nesterov
    x = x / np.sqrt((x * x).sum())
    if x.shape[0] > x.shape[1]:
        x = x.T
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    x = x if x.shape == weight.shape else x.T
    update = 0.2 * np.sqrt(max(weight.shape)) * x
    return weight - RATE * (update + DECAY * weight), momentum


def reference_adamw(weight, moments, gradient, step, decay):
    """One step in float64 (Loshchilov and Hutter, arXiv:1711.05101)."""
    first, second = moments
    first, second = 0.9 * first + 0.1 * gradient, 0.98 * second + 0.02 * gradient**2
    update = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.98**step)) + 1e-6)
    return weight - RATE * (update + decay * weight), (first, second)


def test_three_steps_are_those_of_the_papers():
    random, memory = np.random.default_rng(0), {}
    due = {name: random.standard_normal(shape) for name, shape in shapes(MODEL).items()}
    flags = PretrainingFlags(optimizer="muon", weight_decay=DECAY, clip_norm=0.0)
    optimizer = optimizer_for(flags, lambda done: RATE, MODEL.modules)
    to_float32 = lambda values: {n: v.astype(np.float32) for n, v in values.items()}  # noqa: E731
    params = to_params(to_float32(due), MODEL)
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for step in (1, 2, 3):
        gradients = {name: random.standard_normal(value.shape) for name, value in due.items()}
        updates, state = update(to_params(to_float32(gradients), MODEL), state, params)
        params = optax.apply_updates(params, updates)
        for name, gradient in gradients.items():
            *_, module, leaf = name.split(".")
            if module in CUTS and leaf == "weight":
                moved = []
                parts = [np.split(each, CUTS[module]) for each in (due[name], gradient)]
                for number, (part, slope) in enumerate(zip(*parts, strict=True)):
                    key = name, number
                    part, memory[key] = reference_muon(part, memory.get(key, 0.0), slope)
                    moved.append(part)
                due[name] = np.concatenate(moved)
            else:
                decay = DECAY if leaf == "weight" and module != "norm" else 0.0
                before = memory.get(name, (0.0, 0.0))
                due[name], memory[name] = reference_adamw(due[name], before, gradient, step, decay)
    for name, value in to_weights(params, MODEL).items():
        np.testing.assert_allclose(value, due[name], atol=1e-5, err_msg=name)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_names_the_matrices_that_it_joins(family):
    """Query, key and value are three, gate and up two, whatever the published files join."""
    is_decoder = FAMILIES[family].eos_ids is not None
    kind, schema = (FlaxClmFlags, clm_schema()) if is_decoder else (FlaxMlmFlags, mlm_schema())
    config = plan_model(make_flags(kind, shards="set", family=family, **SIZES), schema).config
    matrices = {module.ours: module.joined or module.rows for module in config.modules}
    assert len(matrices["layers.0.qkv"]) == 3
    assert len(matrices["layers.0.mlp_in"]) == 1 + getattr(config, "is_gated", False)
    assert all(sum(matrices[module.ours]) == sum(module.rows) for module in config.modules)


def test_names_of_the_state():
    """Checkpoints have them: with other names no run could be resumed."""
    flags = make_flags(FlaxClmFlags, shards="set", layers=1, optimizer="muon", **SIZES)
    config = plan_model(flags, clm_schema(max_length=16)).config
    optimizer = optimizer_for(flags.optimization, lambda done: RATE, config.modules)
    state = name_leaves(jax.eval_shape(optimizer.init, to_params(init_weights(config, 0), config)))
    muon, adamw = "1.inner_states.muon.inner_state.", "1.inner_states.adamw.inner_state."
    kernels = [f"layers.0.{n}.kernel" for n in ("attention_out", "mlp_in", "mlp_out", "qkv")]
    others = [
        *("embeddings.tokens.embedding", "embeddings.positions.embedding"),
        *("final_norm.bias", "final_norm.scale"),
        *(f"layers.0.{n}_norm.{leaf}" for n in ("attention", "mlp") for leaf in ("bias", "scale")),
        *(f"layers.0.{n}.bias" for n in ("attention_out", "mlp_in", "mlp_out", "qkv")),
    ]
    assert set(state) == {
        *(f"{muon}0.trace.{name}" for name in kernels),
        f"{muon}3.count",
        *(f"{adamw}0.{moment}.{name}" for moment in ("mu", "nu") for name in others),
        *(f"{adamw}0.count", f"{adamw}2.count"),
    }
