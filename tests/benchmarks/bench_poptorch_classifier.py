"""Steps a second of poptorch_classifier on plain PyTorch, beside the plainest loop of its model.

    python -m tests.benchmarks.bench_poptorch_classifier --steps=40

plain   the same module, optimizer, clipping and schedule, on batches that lie in memory as tensors
loop    `trainers.poptorch_classifier` as a user runs it: rows read, checked, measured and logged
Both run in one process with the same threads, in interleaved rounds. A step counts as the time from
its end to the next one's, and of all steps the first quartile is shown: other work may share the
cores. Rows are random.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import tyro

from tests.class_factory import class_rows, class_schema
from tests.shard_factory import write_set
from trainers.on_poptorch.config import Plan, TrainConfig, plan_run
from trainers.on_poptorch.devices import first_model
from trainers.on_poptorch.optimizer import schedule_for, torch_optimizer
from trainers.on_poptorch.runner import tensors_of
from trainers.poptorch_classifier import main as train
from trainers.reader import ShardSet
from trainers.run_log import read_metrics

WARM = 4  # steps of a round that are not timed


@dataclass(frozen=True)
class Options:
    """What to measure."""

    model: Literal["tiny", "small", "base", "electra_small"] = "tiny"
    """Preset."""
    vocab_size: int = 8000
    """Of the rows."""
    max_length: int = 128
    """Tokens a row."""
    batch_size: int = 32
    """Rows a step."""
    steps: int = 40
    """Of a round; the first few are not timed."""
    rounds: int = 4
    """Interleaved."""
    threads: int = 1
    """Of PyTorch; two on shared cores wait for each other."""


def plain_seconds(plan: Plan, shards: ShardSet, steps: int) -> np.ndarray:
    """Seconds of each step of the plainest loop, whose batches are tensors before it starts."""
    config = plan.config
    model, _ = first_model(plan)
    optimizer = torch_optimizer(config, model)
    schedule = schedule_for(config, optimizer, steps)
    batches = [
        tensors_of(batch, length=plan.schema.max_length)
        for batch in shards.batches(
            "train", batch_size=config.batch_size, seed=0, stop_step=steps, prefetch=0
        )
    ]
    model.train()
    ends = []
    for tensors in batches:
        optimizer.zero_grad(set_to_none=True)
        model(*tensors).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        optimizer.step()
        schedule.step()
        ends.append(time.perf_counter())
    return np.diff(ends)[WARM:]


def loop_seconds(config: TrainConfig, output: Path) -> np.ndarray:
    """Seconds of each step of the trainer, by the ends of its optimizer's steps."""
    ends: list[float] = []
    write = torch.optim.AdamW.step

    def timed(self, *args, **kwargs):
        found = write(self, *args, **kwargs)
        ends.append(time.perf_counter())
        return found

    torch.optim.AdamW.step = timed  # type: ignore[method-assign]
    try:
        train(config.command(output=output).split()[3:])
    finally:
        torch.optim.AdamW.step = write  # type: ignore[method-assign]
    return np.diff(ends)[WARM:]


def main(options: Options) -> None:
    """Prints both and their ratio."""
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as work:
        schema = class_schema(max_length=options.max_length, vocab_size=options.vocab_size)
        columns = class_rows(schema, options.steps * options.batch_size, seed=1)
        directory = Path(work) / "shards"
        none = {name: column[:0] for name, column in columns.items()}
        write_set(directory, schema, {"train": columns, "validation": none})
        shards = ShardSet(str(directory))
        config = TrainConfig(
            shards=str(directory),
            model=options.model,
            batch_size=options.batch_size,
            steps=options.steps,
            device="cpu",
        )
        plan = plan_run(config, schema, train_rows=shards.rows("train"))
        plain, loop, waiting = np.zeros(0), np.zeros(0), []
        for number in range(options.rounds):
            plain = np.append(plain, plain_seconds(plan, shards, options.steps))
            output = Path(work) / str(number)
            loop = np.append(loop, loop_seconds(config, output))
            lines = read_metrics(str(output / "metrics.jsonl"))
            waiting.append(np.mean([line["waiting"] for line in lines]))
    tokens = options.batch_size * options.max_length
    print(f"\n{options.model}, {options.batch_size} rows of {options.max_length} tokens a step")
    quartiles = [float(np.quantile(seconds, 0.25)) for seconds in (plain, loop)]
    for name, seconds in zip(("plain", "loop"), quartiles, strict=True):
        print(f"{name:8}{1 / seconds:8.2f} steps/s {tokens / seconds:12,.0f} tokens/s")
    print(f"ratio   {quartiles[0] / quartiles[1]:8.3f}   waiting for data {min(waiting):.2%}")


if __name__ == "__main__":
    main(tyro.cli(Options, use_underscores=True))
