"""A step of tf_classifier beside the plainest loops of TensorFlow and PyTorch with the same model.

    python -m tests.benchmarks.bench_tf_classifier --model=tiny --steps=40

plain     a tf.function with XLA over the same Keras model: loss, gradients, clipping, AdamW;
          batches are slices of numpy arrays, nothing is written, only the last loss is waited for
trainer   `trainers.tf_classifier` as a user runs it: rows read, batches placed, metrics written
torch     `transformers`' BertForSequenceClassification, fused AdamW and clipping on such slices
No dropout; rows are random and full.
"""

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification  # before TensorFlow: LLVM

from tests.benchmarks.clock import Seconds
from tests.benchmarks.measure import Options, Record, alternated, entry
from tests.benchmarks.steps import TrainerRounds, step_records
from tests.tools.class_factory import class_rows, class_schema
from tests.tools.shard_factory import write_set
from trainers.data.shard_set import ShardSet
from trainers.flags.command_line import make_flags
from trainers.models.plan_model import SIZES, plan_model
from trainers.models.weights import fresh
from trainers.on_tf.backend import tf
from trainers.on_tf.tf_encoder import Encoder
from trainers.on_tf.tf_layers import fill
from trainers.on_tf.tf_program import make_optimizer
from trainers.tf_classifier import TfClassifierFlags
from trainers.tf_classifier import main as train

Step = Callable[..., Any]
ROWS, FIRST = 2048, 5


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
    steps: int = 40
    """Of a round; the first five do not count."""


def write_rows(directory: Path, options: Bench) -> dict[str, np.ndarray]:
    """A set of random rows without padding, and its columns."""
    schema = class_schema(max_length=options.max_length, vocab_size=options.vocab_size)
    columns = class_rows(schema, ROWS, seed=1)
    shape = columns["input_ids"].shape
    columns["segment_ids"][:] = 1
    columns["input_ids"][:] = np.random.default_rng(0).integers(5, options.vocab_size, shape)
    few = {name: column[:32] for name, column in columns.items()}
    write_set(directory, schema, {"train": columns, "validation": few})
    return columns


def plain_round(
    options: Bench, columns: dict[str, np.ndarray], directory: Path
) -> Callable[[], Seconds]:
    """The plainest TensorFlow loop, compiled once."""
    flags = make_flags(TfClassifierFlags, shards=str(directory), model=options.model, dropout=0.0)
    config = plan_model(flags, ShardSet(str(directory)).schema).config
    model = Encoder(config)
    fill(model, fresh(config, 0))
    variables = model.trainable_variables
    optimizer = make_optimizer(flags.optimization, variables)

    @tf.function(jit_compile=True)
    def step(ids: Any, segments: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(ids, segments)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                tf.cast(labels, "int32"), logits
            )
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
        optimizer.apply(gradients, variables)
        return loss

    return _round(options, columns, step, np.uint16)


def torch_round(options: Bench, columns: dict[str, np.ndarray]) -> Callable[[], Seconds]:
    """The plainest PyTorch loop."""
    sizes = SIZES[options.model]
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=options.vocab_size,
            hidden_size=sizes["hidden_size"],
            num_hidden_layers=sizes["layers"],
            num_attention_heads=sizes["heads"],
            intermediate_size=sizes["intermediate_size"],
            max_position_embeddings=options.max_length,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), 5e-5, fused=True)

    def step(ids: Any, segments: Any, labels: Any) -> Any:
        ids, segments, labels = map(torch.from_numpy, (ids, segments, labels))
        loss = model(ids, attention_mask=segments, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return _round(options, columns, step, np.int64)


def _round(
    options: Bench, columns: dict[str, np.ndarray], step: Step, dtype: Any
) -> Callable[[], Seconds]:
    """Steps one after another; a step's loss is waited for once the next has begun."""
    names, size = ("input_ids", "segment_ids", "label"), options.batch_size
    arrays = [columns[name].astype(dtype) for name in names]

    def run() -> Seconds:
        began, running = Seconds.now(), None
        for number in range(options.steps):
            first = number * size % (ROWS - size)
            started = step(*(array[first : first + size] for array in arrays))
            if running is not None:
                float(running)
            running = started
            if number == FIRST - 1:
                float(running)
                began = Seconds.now()
        float(running)  # type: ignore[arg-type]
        return Seconds.now().since(began, options.steps - FIRST)

    return run


def trainer_rounds(options: Bench, directory: Path, scratch: Path) -> TrainerRounds:
    """The whole trainer."""
    flags = [f"--shards={directory}", f"--model={options.model}", "--dropout=0", "--device=cpu"]
    flags += [f"--batch_size={options.batch_size}", f"--steps={options.steps}"]

    def run() -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            train([*flags, f"--output={tempfile.mkdtemp(dir=scratch)}/run"])

    return TrainerRounds(run, first=FIRST)


def measure(options: Bench) -> Iterator[Record]:
    """Three rows."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "set"
        columns = write_rows(directory, options)
        trainer = trainer_rounds(options, directory, Path(scratch))
        contestants: dict[str, Callable[[], Seconds]] = {
            "trainer": trainer,
            "plain": plain_round(options, columns, directory),
            "torch": torch_round(options, columns),
        }
        found = alternated(contestants, options.runs)
    note = f"{options.model}, {options.batch_size} rows of {options.max_length} tokens"
    yield from step_records("tf_classifier", found, trainer, "tensorflow", "torch", note=note)


if __name__ == "__main__":
    entry(measure, Bench)
