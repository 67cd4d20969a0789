"""Times the Flax trainer: its loop against its bare step, PyTorch's step, and the reader alone.

    python -m tests.benchmarks.bench_trainer --model=tiny --steps=20

bare   the compiled step called again and again with one batch that lies on the device: what no
       loop can beat
loop   `trainers.flax_mlm` as a user runs it: shards read, batches placed, measurements written
torch  `transformers`' RobertaForMaskedLM of the same dimensions with fused AdamW and clipping, on
       one batch, f32; it computes the head at every position, ours at the masked ones
Rounds are interleaved and the fastest of each counts, since other work may share the cores. Rows
are random.
"""

import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import numpy as np
import tyro

from schemas.sidecar import Schema
from tests.shard_factory import mlm_schema, packed_rows, write_set
from trainers.flax_mlm import main as train
from trainers.on_flax.config import PRESETS, TrainConfig, plan_run
from trainers.on_flax.mlm_task import MlmTask
from trainers.on_flax.programs import compile_programs
from trainers.reader import ShardSet
from trainers.run_log import read_metrics

ROWS = 20_000
READ_ROWS = 40_000


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
    steps: int = 20
    """Of a round."""
    rounds: int = 4
    """Interleaved."""
    torch: bool = True
    """Measure PyTorch too."""


def write_rows(directory: Path, options: Options, file_format: str) -> Schema:
    """A set of random packed rows, 2,000 different ones repeated."""
    schema = mlm_schema(
        max_length=options.max_length,
        vocab_size=options.vocab_size,
        shards={"train": 8, "validation": 1},
        file_formats=(file_format,),
    )
    columns = packed_rows(schema, 2000, seed=1)
    train_rows = {name: np.resize(c, (ROWS, c.shape[1])) for name, c in columns.items()}
    few = {name: column[:32] for name, column in columns.items()}
    write_set(directory, schema, {"train": train_rows, "validation": few})
    return schema


def bare_seconds(options: Options, shards: ShardSet) -> float:
    """Seconds of one step without a loop around it."""
    config = TrainConfig(
        shards="", model=options.model, batch_size=options.batch_size, steps=options.steps
    )
    plan = plan_run(config, shards.schema, train_rows=ROWS)
    programs = compile_programs(plan, MlmTask(plan))
    batch = programs.place(next(shards.batches("train", batch_size=options.batch_size, seed=0)))
    state, metrics = programs.train(programs.first(), batch)
    jax.block_until_ready(metrics)
    began = time.perf_counter()
    for _ in range(options.steps):
        state, metrics = programs.train(state, batch)
    jax.block_until_ready(metrics)
    return (time.perf_counter() - began) / options.steps


def loop_seconds(options: Options, directory: Path, output: Path) -> tuple[float, float]:
    """Seconds of one step of the whole trainer, and the share of them spent waiting for data."""
    train(
        [
            f"--shards={directory}",
            f"--output={output}",
            f"--model={options.model}",
            f"--batch_size={options.batch_size}",
            f"--steps={options.steps}",
        ]
    )
    lines = read_metrics(str(output / "metrics.jsonl"))
    last = [line for line in lines if line["kind"] == "train"][-1]
    return last["tokens"] / last["tokens_per_second"], last["waiting"]


def torch_seconds(options: Options) -> float:
    """Seconds of one step of the same model in PyTorch, in f32."""
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
    ids = torch.randint(5, options.vocab_size, (options.batch_size, options.max_length))
    labels = torch.where(torch.rand(ids.shape) < 0.15, ids, -100)

    def step() -> None:
        model(ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    step()
    steps = max(2, options.steps // 4)
    began = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - began) / steps


def reader_speed(shards: ShardSet, batch_size: int) -> float:
    """Rows a second in shuffled order."""
    steps = READ_ROWS // batch_size
    began = time.perf_counter()
    for _ in shards.batches("train", batch_size=batch_size, seed=0, stop_step=steps):
        pass
    return steps * batch_size / (time.perf_counter() - began)


def main(options: Options) -> None:
    """Runs all rounds and prints the fastest."""
    bare, loop, waiting, torch_times = [], [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "array_record"
        write_rows(directory, options, "array_record")
        shards = ShardSet(str(directory))
        for number in range(options.rounds):
            bare.append(bare_seconds(options, shards))
            seconds, share = loop_seconds(options, directory, Path(scratch) / str(number))
            loop.append(seconds)
            waiting.append(share)
            if options.torch:
                torch_times.append(torch_seconds(options))
        tokens = options.batch_size * options.max_length
        print(f"\n{options.model}, {options.batch_size} rows of {options.max_length} tokens:")
        timings = [("bare step", bare), ("whole loop", loop), ("PyTorch step", torch_times)]
        for name, times in timings:
            if times:
                best = min(times)
                ratio = best / min(bare)
                print(f"  {name:13} {best * 1e3:8.1f} ms  {tokens / best:10,.0f} tokens/s", end="")
                print(f"  {ratio:5.2f} x bare")
        print(f"  waiting for data: {min(waiting):.2%} of the loop")
        write_rows(Path(scratch) / "tfrecord", options, "tfrecord")
        for file_format in ("array_record", "tfrecord"):
            shards = ShardSet(str(Path(scratch) / file_format))
            speeds = {size: reader_speed(shards, size) for size in (32, 1024)}
            said = ", ".join(f"{speed:,.0f} in batches of {size}" for size, speed in speeds.items())
            print(f"  reader, {file_format}: rows/s {said}")


if __name__ == "__main__":
    main(tyro.cli(Options, use_underscores=True))
