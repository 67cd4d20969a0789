"""Times the TensorFlow classifier: its loop beside the plainest loops on arrays in memory.

    python -m tests.benchmarks.bench_tf_classifier --model=tiny --steps=60

plain   a tf.function with XLA over the same Keras model: loss, gradients, clipping, AdamW; batches
        are slices of numpy arrays, nothing is written, and only the last loss is waited for
loop    `trainers.tf_classifier` as a user runs it: shards read, batches placed, metrics written
torch   `transformers`' BertForSequenceClassification with fused AdamW and clipping on such slices
Times are of the fastest eight steps in a row of interleaved rounds, and processor seconds of the
thriftiest, since other work may share the cores. No dropout; rows are random and full.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np
import torch
import tyro
from transformers import BertConfig, BertForSequenceClassification  # before TensorFlow: LLVM

from tests.class_factory import class_rows, class_schema
from tests.shard_factory import write_set
from trainers.encoder_config import PRESETS
from trainers.on_tf.backend import tf
from trainers.on_tf.classifier_config import ClassifierConfig, model_for
from trainers.on_tf.encoder import build_encoder
from trainers.on_tf.encoder_weights import fill, fresh
from trainers.on_tf.optimizers import make_optimizer
from trainers.reader import ShardSet
from trainers.run_log import MetricsFile
from trainers.tf_classifier import main as train

Step = Callable[..., Any]
Marks = list[tuple[float, float]]  # seconds and processor seconds
ROWS, STRETCH = 2048, 8


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
    steps: int = 60
    """Of a round."""
    rounds: int = 3
    """Interleaved."""
    torch: bool = True
    """Measure PyTorch too."""


def write_rows(directory: Path, options: Options) -> dict[str, np.ndarray]:
    """A set of random rows without padding, and its columns."""
    schema = class_schema(max_length=options.max_length, vocab_size=options.vocab_size)
    columns = class_rows(schema, ROWS, seed=1)
    shape = columns["input_ids"].shape
    columns["segment_ids"][:] = 1
    columns["input_ids"][:] = np.random.default_rng(0).integers(5, options.vocab_size, shape)
    few = {name: column[:32] for name, column in columns.items()}
    write_set(directory, schema, {"train": columns, "validation": few})
    return columns


def plain_marks(options: Options, columns: dict[str, np.ndarray], directory: Path) -> Marks:
    """The plainest TensorFlow loop."""
    config = ClassifierConfig(shards=str(directory), model=options.model, dropout=0.0)
    sizes = model_for(config, ShardSet(str(directory)).schema)
    model = build_encoder(sizes)
    fill(model, fresh(sizes, 0))
    variables = model.trainable_variables
    optimizer = make_optimizer(config, options.steps, variables)

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

    return _marks(options, columns, step, np.uint16)


def torch_marks(options: Options, columns: dict[str, np.ndarray]) -> Marks:
    """The plainest PyTorch loop."""
    sizes = PRESETS[options.model]
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

    return _marks(options, columns, step, np.int64)


def _marks(options: Options, columns: dict[str, np.ndarray], step: Step, dtype: Any) -> Marks:
    """A mark after each step; a step's loss is waited for once the next has begun."""
    names, size = ("input_ids", "segment_ids", "label"), options.batch_size
    arrays = [columns[name].astype(dtype) for name in names]
    marks, running = [], step(*(array[:size] for array in arrays))
    for number in range(options.steps):
        first = number * size % (ROWS - size)
        started = step(*(array[first : first + size] for array in arrays))
        float(running)
        marks.append(_now())
        running = started
    return marks


def loop_marks(options: Options, directory: Path, output: Path) -> Marks:
    """A mark after each step of the whole trainer, when its measurements are written."""
    marks, write = [], MetricsFile.write

    def marked(self: MetricsFile, metrics: dict[str, Any]) -> None:
        write(self, metrics)
        if metrics["kind"] == "train":
            marks.append(_now())

    with mock.patch.object(MetricsFile, "write", marked):
        train(
            [
                f"--shards={directory}",
                f"--output={output}",
                f"--model={options.model}",
                f"--batch_size={options.batch_size}",
                f"--steps={options.steps}",
                "--dropout=0",
                "--device=cpu",
            ]
        )
    return marks[1:-1]  # the first compiles, the last waits for nothing


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def fastest(rounds: list[Marks]) -> np.ndarray:
    """Seconds and processor seconds of a step, each of the best stretch of all rounds."""
    stretches = [np.array(marks) for marks in rounds]
    return np.min(
        [(part[STRETCH:] - part[:-STRETCH]).min(axis=0) / STRETCH for part in stretches], axis=0
    )


def main(options: Options) -> None:
    """Runs all rounds and prints the fastest."""
    rounds: dict[str, list[Marks]] = {"plain": [], "loop": [], "torch": []}
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "set"
        columns = write_rows(directory, options)
        for number in range(options.rounds):
            rounds["plain"].append(plain_marks(options, columns, directory))
            rounds["loop"].append(loop_marks(options, directory, Path(scratch) / str(number)))
            if options.torch:
                rounds["torch"].append(torch_marks(options, columns))
    print(f"\n{options.model}, {options.batch_size} rows of {options.max_length}, by plain's:")
    plain = fastest(rounds["plain"])
    for name, marks in rounds.items():
        if marks:
            seconds, processor = fastest(marks)
            speed, thrift = plain / (seconds, processor)
            print(f"  {name:6}{1 / seconds:8.2f} steps/s {speed:6.3f}", end="")
            print(f"{processor * 1e3:9.1f} processor ms a step {thrift:6.3f}")


if __name__ == "__main__":
    main(tyro.cli(Options, use_underscores=True))
