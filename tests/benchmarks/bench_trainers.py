"""A step of each trainer beside its own compiled step in a bare loop, and beside PyTorch.

    python -m tests.benchmarks.bench_trainers --trainers=flax_clm --steps=25
    python -m tests.benchmarks.bench_trainers --trainers=flax_clm --model=gpt2 --vocab_size=50257 \
        --max_length=1024 --batch_size=16 --precision=bfloat16      # on a GPU

trainer  as a user runs it: shards read, batches placed, metrics computed and written
bare     the trainer's compiled step on batches that are on the device, in turn: the rest is what
         reading, placing and logging cost
PyTorch  the model of `transformers` with the same weights, fused AdamW and clipping, on tensors in
         memory; logits at every token. In bfloat16, `torch.compile` and autocast on a GPU, and
         documents attend to those before them in their row, as in the usual script
Rows are random, there is no dropout, and compiling is not part of the time.
"""

import contextlib
import importlib
import io
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import; PyTorch before TensorFlow: LLVM
    import torch
    import transformers

from tests.benchmarks.clock import Seconds
from tests.benchmarks.measure import Options, Record, Runs, Side, alternated, entry, versions
from tests.tools.compile_cache import compiled_once
from tests.tools.torch_models import nats_of
from tests.tools.trainer_list import BY_NAME, ListedTrainer
from textmill.trainers.data.batches import Batch
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.flags.command_line import command, make_flags
from textmill.trainers.models.hf_files import write_directory
from textmill.trainers.models.plan_model import plan_model
from textmill.trainers.models.weights import to_published
from textmill.trainers.run.journal import Rate, Rates
from textmill.trainers.run.plan import TrainingPlan

FIRST = 5  # steps that do not count
IN_MEMORY = 8  # batches of the other loops, used in turn
PACKAGES = {"flax": ("jax", "flax"), "tf": ("tensorflow",), "poptorch": ()}
TASKS = {
    "mlm": "AutoModelForMaskedLM",
    "clm": "AutoModelForCausalLM",
    "qa": "AutoModelForCausalLM",
    "classification": "AutoModelForSequenceClassification",
}
Round = Callable[[], Seconds]


@dataclass(frozen=True)
class Bench(Options):
    """What to measure."""

    trainers: tuple[str, ...] = tuple(BY_NAME)
    """Names of trainers."""
    model: str = "tiny"
    """Size of the model."""
    vocab_size: int = 8000
    """Of the rows."""
    max_length: int = 128
    """Tokens a row."""
    batch_size: int = 32
    """Rows a step."""
    steps: int = 25
    """Of a round; the first five do not count."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the computation; bfloat16 needs a GPU."""


def measure(options: Bench) -> Iterator[Record]:
    """Three rows a trainer."""
    for name in options.trainers:
        with tempfile.TemporaryDirectory() as scratch, compiled_once(Path(scratch, "compiled")):
            yield from _measure(BY_NAME[name], options, Path(scratch))


def _measure(listed: ListedTrainer, options: Bench, scratch: Path) -> Iterator[Record]:
    trainer = importlib.import_module(f"trainers.{listed.name}").TRAINER
    sizes: dict[str, int] = {"vocab_size": options.vocab_size, "max_length": options.max_length}
    if listed.name == "tf_qa":
        sizes["words"] = options.max_length - 10  # rows are as long as those of other tasks
    listed.write_set(scratch / "set", train=options.batch_size * 50, validation=16, **sizes)
    shards = ShardSet(str(scratch / "set"))
    flags = make_flags(
        trainer.flags,
        shards=shards.directory,
        output=str(scratch / "run"),
        model=options.model,
        batch_size=options.batch_size,
        steps=options.steps,
        dropout=0.0,
        precision=options.precision,
    )
    planned = plan_model(flags, shards.schema)
    plan = TrainingPlan(flags, shards.schema, planned.config, options.steps, scratch / "run")
    weights, _ = planned.first_weights(flags.compute.seed)
    batches = [*shards.batches("train", batch_size=options.batch_size, stop_step=IN_MEMORY, seed=0)]
    whole = TrainerRounds(lambda: _train(listed, flags, scratch))
    settings = planned.config.to_json(shards.schema.special_ids)
    write_directory(str(scratch / "first"), settings, to_published(weights, planned.config))
    contestants: dict[str, Round] = {
        "trainer": whole,
        "bare": _bare(trainer, plan, shards, weights, batches),
        "torch": _torch(scratch / "first", plan, batches),
    }
    found = alternated(contestants, options.runs)
    rows = f"{options.model}, {options.batch_size} rows of {options.max_length} tokens"
    more: dict[str, Any] = {"workers": "all cores", "note": rows}
    used = versions(*PACKAGES[listed.name.partition("_")[0]], "torch")
    ours = Side.rate(listed.name, found["trainer"], 1, "steps", **more)
    for name, called, reach in (("bare", "a bare loop", 0.97), ("torch", "PyTorch", 1.0)):
        beside = Side.rate(called, found[name], 1, "steps", **more)
        row = f"{listed.name}, a step beside {called}"
        yield Record(row, ours, beside, reach=reach, versions=used)
    shares = Runs(share * 100 for share in whole.waiting)
    waiting = Side.values(listed.name, "%", shares, **more)
    row = f"{listed.name}, time waiting for data, %"
    yield Record(row, waiting, reach=1, at_most=True, versions=used)


class TrainerRounds:
    """A trainer as a contestant: each call is a run of it and returns the seconds of a step.

    Attributes:
      waiting: share of that time in which the loop waited for a batch, of each run.
    """

    def __init__(self, run: Callable[[], object]):
        """Takes what runs the trainer."""
        self.waiting: Runs[float] = Runs()
        self._run = run

    def __call__(self) -> Seconds:
        """Runs it once."""
        marks: list[tuple[Seconds, float]] = []

        class Marked(Rates):
            def count_step(self, tokens: float) -> Rate:
                marks.append((Seconds.now(), self._waited))
                return super().count_step(tokens)

        with patch("textmill.trainers.run.step_reports.Rates", Marked):
            self._run()
        (began, waited), (ended, waited_in_all) = marks[FIRST - 1], marks[-1]
        whole = ended.since(began)
        self.waiting.append((waited_in_all - waited) / whole.wall)
        return ended.since(began, len(marks) - FIRST)


def _train(listed: ListedTrainer, flags: Any, scratch: Path) -> None:
    on_gpu = flags.compute.precision == "bfloat16"
    words = command(flags, output=f"{tempfile.mkdtemp(dir=scratch)}/run").split()[3:]
    device = [flag for flag in listed.device if flag == "--device=cpu" and not on_gpu]
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        listed.main([*words, *device])


def _bare(
    trainer: Any, plan: TrainingPlan, shards: ShardSet, weights: Any, batches: Sequence[Batch]
) -> Round:
    task = trainer.make_task(plan.flags, plan.schema, shards)
    task.prepare_training(shards)
    program = trainer.make_program(plan, task)
    program.load(weights, None)
    program.compile(trains=True, evaluates=False)
    placed = [program.put(batch) for batch in batches]

    def step(number: int) -> Callable[[], object]:
        return program.train(placed[number % IN_MEMORY], number)

    return lambda: _timed(step, plan.steps)


def _torch(first: Path, plan: TrainingPlan, batches: Sequence[Batch]) -> Round:
    task = plan.schema.task
    transformers.utils.logging.disable_progress_bar()
    model = getattr(transformers, TASKS[task]).from_pretrained(first, dtype=torch.float32).train()
    is_half = plan.flags.compute.precision == "bfloat16"
    device = torch.device("cuda" if is_half else "cpu")
    model.to(device)
    rate = plan.flags.optimization.learning_rate
    optimizer = torch.optim.AdamW(model.parameters(), rate, fused=True)
    losses = [_loss_of(task, batch, device) for batch in batches]
    computed = torch.compile(model) if is_half else model

    def step(number: int) -> Callable[[], object]:
        with torch.autocast(device.type, torch.bfloat16, enabled=is_half):
            loss = losses[number % IN_MEMORY](computed)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item

    return lambda: _timed(step, plan.steps)


def _loss_of(task: str, batch: Batch, device: torch.device) -> Callable[[Any], torch.Tensor]:
    """The loss of a model for a batch, whose tensors are made now."""
    ids = torch.from_numpy(batch["input_ids"].astype(np.int64))
    if task == "mlm":
        labels = np.full(batch["input_ids"].shape, -100)
        row, slot = np.nonzero(batch["masked_weights"])
        labels[row, batch["masked_positions"][row, slot]] = batch["masked_ids"][row, slot]
        given = {"labels": torch.from_numpy(labels)}
    elif task == "classification":
        mask = torch.from_numpy((batch["segment_ids"] > 0).astype(np.int64))
        labels = torch.from_numpy(batch["label"].astype(np.int64))
        given = {"attention_mask": mask, "labels": labels}
    elif device.type == "cuda":
        given = {"labels": ids}
    else:

        def packed(model: Any) -> torch.Tensor:
            nats, counted = nats_of(model, batch)
            return nats / counted

        return packed
    ids, given = ids.to(device), {name: tensor.to(device) for name, tensor in given.items()}
    return lambda model: model(ids, **given).loss


def _timed(step: Callable[[int], Callable[[], object]], steps: int) -> Seconds:
    """Steps one after another; a step's result is waited for once the next has begun."""
    began, running = Seconds.now(), step(0)
    for number in range(1, steps):
        started = step(number)
        running()
        running = started
        if number == FIRST - 1:
            running()
            began = Seconds.now()
    running()
    return Seconds.now().since(began, steps - FIRST)


if __name__ == "__main__":
    entry(measure, Bench)
