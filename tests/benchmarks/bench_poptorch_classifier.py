"""A step of poptorch_classifier on plain PyTorch beside the plainest loop of its module.

    python -m tests.benchmarks.bench_poptorch_classifier --steps=20

plain     the same module, optimizer, clipping and schedule, on tensors that lie in memory
trainer   `trainers.poptorch_classifier` as a user runs it: rows read, checked, measured and logged
Both run in one process with the same threads. Rows are random.
"""

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

from tests.benchmarks.clock import Seconds
from tests.benchmarks.measure import Options, Record, alternated, entry
from tests.benchmarks.steps import TrainerRounds, step_records
from tests.tools.class_factory import class_rows, class_schema
from tests.tools.poptorch_programs import make_plan
from tests.tools.shard_factory import write_set
from trainers.flags.command_line import command
from trainers.models.weights import fresh
from trainers.on_poptorch.classifier import Classifier, classifier_arrays
from trainers.on_poptorch.module_program import torch_optimizer
from trainers.poptorch_classifier import main as train
from trainers.reader import ShardSet
from trainers.run.program import Plan, Schedule

FIRST = 5  # steps of a round that do not count


@dataclass(frozen=True)
class Bench(Options):
    """What to measure."""

    model: Literal["tiny", "small", "base", "electra_small"] = "tiny"
    """Preset."""
    vocab_size: int = 8000
    """Of the rows."""
    max_length: int = 128
    """Tokens a row."""
    batch_size: int = 32
    """Rows a step."""
    steps: int = 20
    """Of a round; the first few do not count."""
    threads: int = 2
    """Of PyTorch."""


def plain_seconds(plan: Plan, shards: ShardSet, steps: int) -> Seconds:
    """A step of the plainest loop, whose batches are tensors before it starts."""
    flags, model = plan.flags, Classifier(plan.model)
    weights = fresh(plan.model, flags.compute.seed)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    optimizer = torch_optimizer(flags.optimization, model)
    schedule = LambdaLR(optimizer, Schedule(steps, flags.optimization))
    batches = [
        [torch.from_numpy(array) for array in classifier_arrays(rows).values()]
        for rows in shards.batches(
            "train", batch_size=flags.compute.batch_size, seed=0, stop_step=steps, prefetch=0
        )
    ]
    model.train()
    began = Seconds.now()
    for number, (*inputs, labels) in enumerate(batches):
        if number == FIRST:
            began = Seconds.now()
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(*inputs), labels.long()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), flags.optimization.clip_norm)
        optimizer.step()
        schedule.step()
    return Seconds.now().since(began, steps - FIRST)


def measure(options: Bench) -> Iterator[Record]:
    """Two rows."""
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as work:
        schema = class_schema(max_length=options.max_length, vocab_size=options.vocab_size)
        columns = class_rows(schema, options.steps * options.batch_size, seed=1)
        directory = Path(work) / "shards"
        none = {name: column[:0] for name, column in columns.items()}
        write_set(directory, schema, {"train": columns, "validation": none})
        shards = ShardSet(str(directory))
        plan = make_plan(
            directory,
            model=options.model,
            batch_size=options.batch_size,
            steps=options.steps,
            device="cpu",
        )

        def whole() -> None:
            words = command(plan.flags, output=Path(tempfile.mkdtemp(dir=work)) / "run")
            with contextlib.redirect_stdout(io.StringIO()):
                train(words.split()[3:])

        trainer = TrainerRounds(whole, first=FIRST)
        contestants: dict[str, Callable[[], Seconds]] = {
            "trainer": trainer,
            "plain": lambda: plain_seconds(plan, shards, options.steps),
        }
        found = alternated(contestants, options.runs)
    note = f"{options.model}, {options.batch_size} rows of {options.max_length} tokens"
    yield from step_records("poptorch_classifier", found, trainer, "torch", note=note)


if __name__ == "__main__":
    entry(measure, Bench)
