"""Times flax_mlm beside the plainest loops with the same model: what streaming and logging cost.

    python -m tests.benchmarks.bench_flax_mlm --model=tiny --steps=30 --rounds=8

trainer   `trainers.flax_mlm` as a user runs it: shards read, batches placed, measurements written
plain     the same model in a dozen lines of JAX and optax, on batches that lie on the device
all       the same with logits at every token instead of the masked ones, as run_mlm does
torch     RobertaForMaskedLM of `transformers` with AdamW and clipping, f32, on tensors in memory;
          logits at every token
Rounds alternate, so that other work on the cores falls on all alike; a ratio is the median of the
rounds' ratios, with the fastest rounds' beside it. Where others keep the cores busy, CPU seconds a
step (of all threads) tell more than the clock.
"""

import contextlib
import io
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from flax import nnx

from tests.compile_cache import compiled_once
from tests.shard_factory import mlm_schema, packed_rows, write_set
from trainers.encoder_config import PRESETS
from trainers.flax_mlm import main as train
from trainers.on_flax.config import TrainConfig, model_for
from trainers.on_flax.model import graph_of, init_params
from trainers.on_flax.programs import compute_dtype
from trainers.reader import ShardSet
from trainers.run_log import Rates

ROWS = 20_000
IN_MEMORY = 8  # batches of the loops beside the trainer's, used in turn


class Seconds(NamedTuple):
    """Of a step, or at a moment: by the clock, and of the process's CPU time."""

    clock: float
    cpu: float

    @staticmethod
    def now() -> "Seconds":
        """Both, at this moment."""
        return Seconds(time.perf_counter(), time.process_time())

    def since(self, before: "Seconds", steps: int) -> "Seconds":
        """A step's share of what went by."""
        return Seconds((self.clock - before.clock) / steps, (self.cpu - before.cpu) / steps)


@dataclass(frozen=True)
class Options:
    """What to measure."""

    model: Literal["tiny", "small", "base"] = "tiny"
    """Preset."""
    vocab_size: int = 8000
    """Of the rows."""
    max_length: int = 128
    """Tokens a row."""
    batch_size: int = 32
    """Rows a step."""
    steps: int = 30
    """Of a round; fewer where a round would take longer than 10 s."""
    rounds: int = 8
    """Of each contestant, alternating."""
    torch: bool = True
    """Measure PyTorch too."""


def write_rows(directory: Path, options: Options) -> ShardSet:
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


def trainer_round(options: Options, directory: str, scratch: Path) -> Callable[[int], Seconds]:
    """Runs the trainer: of a step, once the first one is done and written."""

    def run(steps: int) -> Seconds:
        output = Path(tempfile.mkdtemp(dir=scratch))
        flags = [f"--shards={directory}", f"--output={output}", f"--model={options.model}"]
        flags += [f"--batch_size={options.batch_size}", "--steps=1000", f"--stop_after={steps + 1}"]
        marks: list[Seconds] = []

        class Marked(Rates):
            def step_done(self, tokens: float) -> tuple[float, float]:
                marks.append(Seconds.now())
                return super().step_done(tokens)

        quiet = io.StringIO()
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            with patch("trainers.on_flax.loop.Rates", Marked):
                train([*flags, "--no_verify"])
        return marks[-1].since(marks[0], steps)

    return run


def plain_round(
    options: Options, shards: ShardSet, *, everywhere: bool
) -> Callable[[int], Seconds]:
    """Runs the plainest loop in JAX, logits at the masked tokens or everywhere."""
    config = TrainConfig(shards="", model=options.model)
    model = model_for(config, shards.schema)
    graph = graph_of(model, compute_dtype("auto"))
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

    def run(steps: int) -> Seconds:
        params = init_params(model, jax.random.key(0))
        state = optimizer.init(params)
        params, state, loss = jitted(params, state, batches[0])
        jax.block_until_ready(loss)
        began = Seconds.now()
        for number in range(steps):
            params, state, loss = jitted(params, state, batches[number % IN_MEMORY])
        jax.block_until_ready((params, loss))
        return Seconds.now().since(began, steps)

    return run


def torch_round(options: Options, shards: ShardSet) -> Callable[[int], Seconds]:
    """Runs the same model in PyTorch, in f32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from transformers import RobertaConfig, RobertaForMaskedLM
    sizes = PRESETS[options.model]
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

    def run(steps: int) -> Seconds:
        one(0)
        began = Seconds.now()
        for number in range(steps):
            one(number)
        return Seconds.now().since(began, steps)

    return run


def main(options: Options) -> None:
    """Runs all rounds and prints times and ratios."""
    with tempfile.TemporaryDirectory() as scratch, compiled_once(Path(scratch, "compiled")):
        shards = write_rows(Path(scratch, "set"), options)
        contestants = {
            "trainer": trainer_round(options, shards.directory, Path(scratch)),
            "plain": plain_round(options, shards, everywhere=False),
            "all": plain_round(options, shards, everywhere=True),
        }
        if options.torch:
            contestants["torch"] = torch_round(options, shards)
        steps = {}
        for name, run in contestants.items():  # compiles, and finds how many steps make a round
            steps[name] = max(4, min(options.steps, int(10 / run(4).clock)))
        times: dict[str, list[Seconds]] = {name: [] for name in contestants}
        for _ in range(options.rounds):
            for name, run in contestants.items():
                times[name].append(run(steps[name]))
    tokens = options.batch_size * options.max_length
    print(
        f"{options.model}, {options.batch_size} rows of {options.max_length} tokens, "
        f"{options.vocab_size:,} ids, {options.rounds} rounds"
    )
    plain = times["plain"]
    for name, found in times.items():
        ratios = Seconds(*(median(_ratios(plain, found, of)) for of in Seconds._fields))
        best = min(seconds.clock for seconds in found)
        print(
            f"  {name:8} {1 / best:7.2f} steps/s, {tokens / best:9,.0f} tokens/s, CPU "
            f"{median(seconds.cpu for seconds in found):.3f} s a step; speed to plain "
            f"{ratios.clock:.3f}, of the best rounds {min(plain).clock / best:.3f}, by CPU time "
            f"{ratios.cpu:.3f}"
        )


def _ratios(plain: list[Seconds], found: list[Seconds], of: str) -> list[float]:
    return [getattr(a, of) / getattr(b, of) for a, b in zip(plain, found, strict=True)]


if __name__ == "__main__":
    main(tyro.cli(Options, use_underscores=True))
