"""A step of flax_mlm beside the plainest loops of its model: what streaming and logging cost.

    python -m tests.benchmarks.bench_flax_mlm --model=tiny --steps=20

trainer   `trainers.flax_mlm` as a user runs it: shards read, batches placed, measurements written
plain     the same model in a dozen lines of JAX and optax, on batches that lie on the device
all       the same with logits at every token instead of the masked ones, as run_mlm does
torch     RobertaForMaskedLM of `transformers` with AdamW and clipping, f32, on tensors in memory;
          logits at every token
"""

import contextlib
import io
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from tests.benchmarks.clock import Seconds
from tests.benchmarks.measure import Options, Record, Side, alternated, entry, versions
from tests.benchmarks.steps import TrainerRounds, step_records
from tests.tools.compile_cache import compiled_once
from tests.tools.shard_factory import mlm_schema, packed_rows, write_set
from trainers.data.shard_set import ShardSet
from trainers.flags.command_line import make_flags
from trainers.flax_mlm import FlaxMlmFlags
from trainers.flax_mlm import main as train
from trainers.models.plan_model import SIZES, plan_model
from trainers.models.weights import fresh
from trainers.on_flax.flax_encoder import EncoderForMaskedLM
from trainers.on_flax.flax_program import compute_dtype
from trainers.on_flax.layers import graph_of, to_params

ROWS = 20_000
IN_MEMORY = 8  # batches of the loops beside the trainer's, used in turn


@dataclass(frozen=True)
class Bench(Options):
    """What to measure."""

    model: Literal["tiny", "small", "base"] = "tiny"
    """Preset."""
    vocab_size: int = 8000
    """Of the rows."""
    max_length: int = 128
    """Tokens a row."""
    batch_size: int = 32
    """Rows a step."""
    steps: int = 20
    """Of a round; half as many where logits are computed at every token."""


def write_rows(directory: Path, options: Bench) -> ShardSet:
    """A set of random packed rows, 2,000 different ones repeated."""
    schema = mlm_schema(
        max_length=options.max_length,
        vocab_size=options.vocab_size,
        splits={"train": 1.0},
        shards={"train": 8},
        file_formats=("array_record",),
    )
    columns = packed_rows(schema, 2000, seed=1)
    write_set(
        directory,
        schema,
        {"train": {n: np.resize(c, (ROWS, c.shape[1])) for n, c in columns.items()}},
    )
    return ShardSet(str(directory))


def trainer_rounds(options: Bench, directory: str, scratch: Path) -> TrainerRounds:
    """Runs the trainer anew each time, with what it compiled before."""

    def run() -> None:
        output = Path(tempfile.mkdtemp(dir=scratch))
        flags = [f"--shards={directory}", f"--output={output}", f"--model={options.model}"]
        flags += [f"--batch_size={options.batch_size}", "--steps=1000", "--no_verify"]
        quiet = io.StringIO()
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            train([*flags, f"--stop_after={options.steps + 1}"])

    return TrainerRounds(run)


def plain_round(options: Bench, shards: ShardSet, *, everywhere: bool) -> Callable[[], Seconds]:
    """Runs the plainest loop in JAX, logits at the masked tokens or everywhere."""
    flags = make_flags(FlaxMlmFlags, shards="set", model=options.model)
    model = plan_model(flags, shards.schema).config
    weights = fresh(model, seed=0)
    graph = graph_of(EncoderForMaskedLM, model, compute_dtype("auto"))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(5e-4, 0.9, 0.98, 1e-6))

    def loss_of(params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        places, labels = batch["masked_positions"].astype(int), batch["masked_ids"].astype(int)
        weights = batch["masked_weights"].astype(jnp.float32)
        if everywhere:
            shape = batch["input_ids"].shape
            rows = jnp.arange(shape[0])[:, None]
            # Added up, since empty slots all point to token 0.
            labels = jnp.zeros(shape, int).at[rows, places].add(labels * (weights > 0))
            weights = jnp.zeros(shape).at[rows, places].add(weights)
            places = jnp.broadcast_to(jnp.arange(shape[1]), shape)
        ids, segments = batch["input_ids"].astype(int), batch["segment_ids"].astype(int)
        logits = nnx.merge(graph, params)(ids, segments, places)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return (losses * weights).sum() / weights.sum()

    def step(params: Any, state: Any, batch: dict[str, jax.Array]):
        loss, gradients = jax.value_and_grad(loss_of)(params, batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    batches = [
        {name: jax.device_put(batch[name]) for name in batch if name not in ("row_index", "epoch")}
        for batch in shards.batches(
            "train", batch_size=options.batch_size, seed=0, stop_step=IN_MEMORY
        )
    ]
    jitted = jax.jit(step, donate_argnums=(0, 1))

    def run() -> Seconds:
        params = jax.device_put(to_params(weights, model))
        state = optimizer.init(params)
        params, state, loss = jitted(params, state, batches[0])
        jax.block_until_ready(loss)
        steps = max(1, options.steps // (2 if everywhere else 1))
        began = Seconds.now()
        for number in range(steps):
            params, state, loss = jitted(params, state, batches[number % IN_MEMORY])
        jax.block_until_ready((params, loss))
        return Seconds.now().since(began, steps)

    return run


def torch_round(options: Bench, shards: ShardSet) -> Callable[[], Seconds]:
    """Runs the same model in PyTorch, in f32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from transformers import RobertaConfig, RobertaForMaskedLM
    sizes = SIZES[options.model]
    model = RobertaForMaskedLM(
        RobertaConfig(
            vocab_size=options.vocab_size,
            hidden_size=sizes["hidden_size"],
            num_hidden_layers=sizes["layers"],
            num_attention_heads=sizes["heads"],
            intermediate_size=sizes["intermediate_size"],
            max_position_embeddings=options.max_length + 2,
            type_vocab_size=1,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4, fused=True)
    batches = []
    for batch in shards.batches(
        "train", batch_size=options.batch_size, seed=0, stop_step=IN_MEMORY
    ):
        labels = np.full(batch["input_ids"].shape, -100)
        for row, slot in zip(*np.nonzero(batch["masked_weights"]), strict=True):
            labels[row, batch["masked_positions"][row, slot]] = batch["masked_ids"][row, slot]
        ids = batch["input_ids"].astype(np.int64)
        batches.append((torch.from_numpy(ids), torch.from_numpy(labels)))

    def one(number: int) -> None:
        ids, labels = batches[number % IN_MEMORY]
        model(ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    def run() -> Seconds:
        one(0)
        steps = max(1, options.steps // 2)
        began = Seconds.now()
        for number in range(steps):
            one(number)
        return Seconds.now().since(began, steps)

    return run


def measure(options: Bench) -> Iterator[Record]:
    """Four rows."""
    with tempfile.TemporaryDirectory() as scratch, compiled_once(Path(scratch, "compiled")):
        shards = write_rows(Path(scratch, "set"), options)
        trainer = trainer_rounds(options, shards.directory, Path(scratch))
        contestants: dict[str, Callable[[], Seconds]] = {
            "trainer": trainer,
            "plain": plain_round(options, shards, everywhere=False),
            "all": plain_round(options, shards, everywhere=True),
            "torch": torch_round(options, shards),
        }
        found = alternated(contestants, options.runs)
    note = f"{options.model}, {options.batch_size} rows of {options.max_length} tokens"
    yield from step_records("flax_mlm", found, trainer, "jax", "flax", "torch", note=note)
    gathered, everywhere = (
        Side.rate(called, found[name], 1, "steps", workers="all cores", note=note)
        for called, name in (("logits where masked", "plain"), ("at every token", "all"))
    )
    yield Record("MLM head", gathered, everywhere, versions=versions("jax", "flax"))


if __name__ == "__main__":
    entry(measure, Bench)
