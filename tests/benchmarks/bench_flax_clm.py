"""A step of flax_clm beside the plainest JAX loop and the plainest PyTorch loop.

    python -m tests.benchmarks.bench_flax_clm --model=tiny --steps=12

flax_clm  as a user runs it: shards read, batches placed, measurements written, a progress line
plain     one jitted step of the same model and optimizer, called on batches that lie in memory
PyTorch   transformers' GPT2LMHeadModel with fused AdamW, on the same batches in memory

All three begin with the same weights and take the same batches, so that their losses must agree;
the note of each says its last one. Rows are random; compiling, checkpoints and evaluations are not
part of the time.
"""

import contextlib
import io
import shlex
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from tests.benchmarks.clock import Seconds
from tests.benchmarks.measure import Options, Record, alternated, entry
from tests.benchmarks.steps import TrainerRounds, step_records
from tests.tools.clm_factory import write_clm_set
from tests.tools.compile_cache import compiled_once
from tests.tools.run_reading import read_metrics
from tests.tools.torch_gpt2 import PlainLoop, open_model
from trainers import flax_clm
from trainers.data.batches import Batch
from trainers.data.shard_set import ShardSet
from trainers.flags.command_line import command, make_flags
from trainers.flax_clm import FlaxClmFlags
from trainers.models.hf_files import write_directory
from trainers.models.plan_model import plan_model
from trainers.models.weights import fresh, to_published
from trainers.on_flax.flax_decoder import ClmObjective
from trainers.on_flax.layers import to_params
from trainers.on_flax.optimizers import learning_rate, optimizer_for
from trainers.run.program import Plan


@dataclass(frozen=True)
class Bench(Options):
    """What to measure."""

    model: Literal["tiny", "small", "base"] = "tiny"
    """Preset."""
    vocab_size: int = 8000
    """Of the rows."""
    max_length: int = 128
    """Tokens a row."""
    batch_size: int = 16
    """Rows a step."""
    steps: int = 12
    """Of a round."""


def measure(options: Bench) -> Iterator[Record]:
    """Three rows."""
    with tempfile.TemporaryDirectory() as scratch, compiled_once(Path(scratch, "compiled")):
        losses: dict[str, float] = {}
        trainer, others = _loops(options, Path(scratch), losses)
        contestants: dict[str, Callable[[], Seconds]] = {"trainer": trainer, **others}
        alternated(contestants, 1)  # compiles, and makes threads and buffers
        trainer.waiting.clear()
        found = alternated(contestants, options.runs)
    note = (
        f"{options.model}, {options.batch_size} rows of {options.max_length} tokens; last losses "
    )
    note += ", ".join(f"{name} {loss:.5f}" for name, loss in losses.items())
    yield from step_records("flax_clm", found, trainer, "jax", "flax", "torch", note=note)


def _loops(
    options: Bench, scratch: Path, losses: dict[str, float]
) -> tuple[TrainerRounds, dict[str, Callable[[], Seconds]]]:
    """The trainer and the two others, which all leave their last loss in `losses`."""
    directory, first = scratch / "set", scratch / "first"
    sizes: dict[str, Any] = dict(vocab_size=options.vocab_size, max_length=options.max_length)
    write_clm_set(directory, train=2000, validation=16, file_formats=("array_record",), **sizes)
    shards = ShardSet(str(directory))
    total = options.steps * (options.runs + 1)
    flags = make_flags(
        FlaxClmFlags,
        shards=str(directory),
        output=str(scratch / "run"),
        model=options.model,
        steps=total,
        batch_size=options.batch_size,
    )
    model = plan_model(flags, shards.schema).config
    plan = Plan(flags, shards.schema, model, total, scratch / "run")
    weights = fresh(model, flags.compute.seed)
    settings = model.to_json(shards.schema.special_ids)
    write_directory(str(first), settings, to_published(weights, model))
    batches = list(
        shards.batches(
            "train", batch_size=options.batch_size, seed=flags.compute.seed, stop_step=total
        )
    )
    torch_loop = PlainLoop(
        open_model(str(first)), steps=total, learning_rate=flags.optimization.learning_rate
    )
    objective = ClmObjective(plan)
    rows = [objective.rows(batch, training=True) for batch in _placed(batches)]
    plain = _jax_step(plan, objective, jax.device_put(to_params(weights, model)))
    return _trainer(options, flags, losses), {
        "plain": _in_memory("plain", options, plain, rows, losses),
        "torch": _in_memory("torch", options, torch_loop.step, batches, losses),
    }


def _placed(batches: list[Batch]) -> list[dict[str, jax.Array]]:
    names = ("input_ids", "segment_ids", "loss_weights")
    return [{name: jnp.asarray(batch[name]) for name in names} for batch in batches]


def _trainer(options: Bench, flags: FlaxClmFlags, losses: dict[str, float]) -> TrainerRounds:
    """Each round goes on where the last one stopped."""
    stops = count(options.steps, options.steps)

    def run() -> None:
        stop = next(stops)
        words = command(flags, stop_after=stop, resume=stop > options.steps)
        quiet = io.StringIO()
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            flax_clm.main(shlex.split(words)[3:])
        lines = read_metrics(f"{flags.files.output}/metrics.jsonl")
        losses["trainer"] = [line["loss"] for line in lines if line["kind"] == "train"][-1]

    return TrainerRounds(run)


def _jax_step(plan: Plan, objective: ClmObjective, params: Any) -> Callable[[Any], jax.Array]:
    """Takes rows, changes its own weights, returns the loss."""
    rates = plan.flags.optimization
    optimizer = optimizer_for(rates, learning_rate(rates, plan.steps), plan.model.modules)

    def changed(params, state, rows):
        def loss_of(params):
            sums = objective.sums(params, rows, None)
            return sums["loss"] / sums["counted"]

        loss, gradients = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    jitted = jax.jit(changed, donate_argnums=(0, 1))
    state = [params, optimizer.init(params)]

    def step(rows: Any) -> jax.Array:
        state[0], state[1], loss = jitted(*state, rows)
        return loss

    return step


def _in_memory(
    name: str,
    options: Bench,
    step: Callable[[Any], Any],
    batches: list[Any],
    losses: dict[str, float],
) -> Callable[[], Seconds]:
    """Each round takes the next batches; it waits for the last step alone."""
    coming = iter(batches)

    def run() -> Seconds:
        began, loss = Seconds.now(), None
        for _ in range(options.steps):
            loss = step(next(coming))
        losses[name] = float(jax.block_until_ready(loss))  # type: ignore[arg-type]
        return Seconds.now().since(began, options.steps)

    return run


if __name__ == "__main__":
    entry(measure, Bench)
