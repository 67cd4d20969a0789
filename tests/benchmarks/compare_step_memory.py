"""Memory of a training step of flax_clm; no weight is allocated.

    python -m tests.benchmarks.compare_step_memory --model=llama_1b --lengths 2048 8192
    python -m tests.benchmarks.compare_step_memory --devices=8

A row of the table adds one flag to the row before it; the batch has a row for each device. Figures
are for one device, in 1e9 bytes, and the computation is bfloat16. Arguments are weights, AdamW's
state and the batch; temporaries are what the step needs besides. Both are XLA's own analysis of a
program for CPUs, where XLA undoes --remat. Kept is what JAX keeps of the forward pass for the
backward pass, weights included: it shows --remat.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from textmill.schemas.commands.entry import run_entry
from textmill.schemas.commands.terminal import say


@dataclass(frozen=True)
class MemoryFlags:
    """The model and the steps to compile."""

    model: str = "llama_1b"
    layers: int | None = None
    """Layers, fewer than the model's for a faster compilation."""
    vocab_size: int = 50304
    lengths: tuple[int, ...] = (2048, 8192)
    compiled: bool = True
    """Also compile the step; else only `kept` is known, within seconds."""
    devices: int = 1


def main(argv: list[str]) -> None:
    """Compiles the step with every flag and prints a line for each."""
    flags = tyro.cli(MemoryFlags, args=argv, use_underscores=True)
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={flags.devices}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    added: list[dict[str, Any]] = [
        {"attention": "dense", "loss_chunks": 1},
        {"attention": "blockwise"},
        {"loss_chunks": None},
        {"remat": True},
        *([{"fsdp": True}] if flags.devices > 1 else []),
    ]
    say(f"{'length':>6}  {'added':<32}{'arguments':>10}{'temporaries':>12}{'kept':>8}")
    for length in flags.lengths:
        values: dict[str, Any] = {}
        for change in added:
            values.update(change)
            found = "".join(f"{size / 1e9:>10.2f}" for size in step_memory(flags, length, values))
            name = " ".join(f"{name}={value}" for name, value in change.items())
            say(f"{length:>6}  {name:<32}{found}")
            sys.stdout.flush()


def step_memory(flags: MemoryFlags, length: int, values: dict[str, Any]) -> tuple[float, ...]:
    """Bytes of a step's arguments and temporaries and of what is kept, on one device."""
    # The number of devices must be set before JAX is imported.
    import jax
    import jax.numpy as jnp
    from flax import nnx

    from tests.tools.clm_factory import clm_schema
    from textmill.trainers.flags.command_line import make_flags
    from textmill.trainers.flax_clm import FlaxClmFlags
    from textmill.trainers.models.plan_model import plan_model
    from textmill.trainers.on_flax.flax_decoder import DecoderForCausalLM, make_program
    from textmill.trainers.run.plan import TrainingPlan

    sizes: dict[str, Any] = {"family": "llama", "model": flags.model, "layers": flags.layers}
    run = make_flags(
        FlaxClmFlags,
        shards="set",
        batch_size=flags.devices,
        precision="bfloat16",
        **sizes,
        **values,
    )
    schema = clm_schema(max_length=length, vocab_size=flags.vocab_size)
    plan = TrainingPlan(run, schema, plan_model(run, schema).config, 1000, Path("run"))
    program: Any = make_program(plan, None)  # type: ignore[arg-type]

    def place(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=program._cut(leaf))

    make = lambda: DecoderForCausalLM(plan.model, jnp.dtype("bfloat16"), nnx.Rngs(0))  # noqa: E731
    params = nnx.to_pure_dict(nnx.split(nnx.eval_shape(make))[1])
    program._params = jax.tree.map(place, params)
    objective, batch = program._objective, program._abstract_batch(flags.devices)

    def pull_back(params: Any, batch: Any) -> Any:
        def loss(params: Any) -> jax.Array:
            return objective.sums(params, objective.rows(batch, training=True), None)["loss"]

        return jax.vjp(loss, params)[1]  # a pytree of all that it keeps

    leaves = jax.tree.leaves(jax.eval_shape(pull_back, params, batch))
    kept = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) / flags.devices
    if not flags.compiled:
        return 0, 0, kept
    program._state = jax.tree.map(place, jax.eval_shape(program._optimizer.init, program._params))
    program.compile(trains=True, evaluates=False)
    found = program._train.memory_analysis()
    return found.argument_size_in_bytes, found.temp_size_in_bytes, kept


if __name__ == "__main__":
    run_entry(main)
