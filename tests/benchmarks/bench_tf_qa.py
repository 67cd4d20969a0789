"""Times tf_qa: its loop against the plainest loop of TensorFlow with the same model.

    python -m tests.benchmarks.bench_tf_qa --model=tiny --steps=40

plain  a tf.function compiled by XLA with a tape and Keras' optimizer in it, called in a `for` with
       arrays that lie in memory: no shards, no measurements, nothing written
loop   `trainers.tf_qa` as a user runs it: shards read in shuffled order, placed, each step's
       measurements taken and written

Rounds are interleaved, since other work may share the cores. A step's seconds are those between two
ends of steps. Where others compute too, the fastest steps and the processor's time tell more than
the median.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from pipelines.tasks.qa import Qa
from pipelines.tokenization import LoadedTokenizer
from trainers.on_tf import loop
from trainers.on_tf.backend import keras, tf
from trainers.on_tf.gpt2 import build_gpt2
from trainers.on_tf.gpt2_weights import fill, fresh
from trainers.on_tf.optimizers import schedule_for
from trainers.on_tf.qa_config import QaConfig, model_for
from trainers.reader import ShardSet
from trainers.tf_qa import main as train

sys.path.append(str(Path(__file__).parents[1]))
from question_factory import write_qa_set  # noqa: E402  modules beside the tests
from shard_factory import tokenizer_json  # noqa: E402

TASK = Qa(qa_template="w5 {question} w6 {context} w7 {answer}")
FIRST = 5  # steps of a round that do not count


@dataclass(frozen=True)
class Options:
    """What to measure."""

    model: Literal["tiny", "small", "gpt2"] = "tiny"
    """Preset."""
    vocab_size: int = 4000
    """Of the rows."""
    max_length: int = 256
    """Tokens a row."""
    batch_size: int = 8
    """Rows a step."""
    steps: int = 40
    """Of a round."""
    rounds: int = 3
    """Interleaved."""


@dataclass
class Marks:
    """When steps ended: seconds of the clock and of the processor."""

    wall: list[float]
    cpu: list[float]

    def add(self) -> None:
        """A step ends now."""
        self.wall.append(time.perf_counter())
        self.cpu.append(time.process_time())

    def seconds(self) -> tuple[np.ndarray, float]:
        """Of each step that counts; and its processor time on average."""
        wall, cpu = self.wall[FIRST:], self.cpu[FIRST:]
        return np.diff(wall), (cpu[-1] - cpu[0]) / (len(cpu) - 1)


def random_questions(options: Options) -> Iterator[tuple[str, str, list, str]]:
    """As many as fill some hundred rows."""
    random = np.random.default_rng(0)
    for number in range(400):
        words = [f"w{word}" for word in random.integers(10, options.vocab_size, 100)]
        yield " ".join(words[:8]), " ".join(words), [(words[0], 0)], str(number)


def plain(options: Options, shards: ShardSet, config: QaConfig) -> Marks:
    """The plainest loop."""
    sizes = model_for(config, shards.schema)
    model = build_gpt2(sizes)
    fill(model, fresh(sizes, 0))
    variables = model.trainable_variables
    rate: Any = schedule_for(config, options.steps)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=0.01, beta_2=0.999, epsilon=1e-8)
    optimizer.build(variables)

    @tf.function(jit_compile=True)
    def step(ids: Any, segments: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(ids, segments)[:, :-1]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids[:, 1:], logits)
            loss = tf.reduce_sum(losses * weights[:, 1:]) / tf.reduce_sum(weights[:, 1:])
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        gradients, _ = tf.clip_by_global_norm([tf.convert_to_tensor(g) for g in gradients], 1.0)
        optimizer.apply(gradients, variables)
        return loss

    rows = shards.read("train", np.arange(shards.rows("train")))
    batches = []
    for number in range(options.steps):
        taken = np.arange(number, number + options.batch_size) % len(rows["input_ids"])
        batches.append(
            (
                rows["input_ids"][taken].astype(np.int32),
                rows["segment_ids"][taken].astype(np.int32),
                rows["loss_weights"][taken].astype(np.float32),
            )
        )
    marks = Marks([], [])
    for batch in batches:
        float(step(*map(tf.constant, batch)))
        marks.add()
    return marks


def whole(shards: ShardSet, flags: list[str], output: Path) -> Marks:
    """The trainer's own loop."""
    marks = Marks([], [])

    class Marking(loop.MetricsFile):
        def write(self, metrics: dict[str, Any]) -> None:
            super().write(metrics)
            marks.add()

    before, loop.MetricsFile = loop.MetricsFile, Marking
    try:
        train([f"--shards={shards.directory}", f"--output={output}", *flags])
    finally:
        loop.MetricsFile = before
    return marks


def main(options: Options) -> None:
    """Runs all rounds and prints what a step takes."""
    tokenizer = LoadedTokenizer(tokenizer_json(options.vocab_size))
    found: dict[str, list[Marks]] = {"plain": [], "loop": []}
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "set"
        asked = list(random_questions(options))
        write_qa_set(directory, {"train": asked}, TASK, tokenizer, options.max_length)
        shards = ShardSet(str(directory))
        flags = [
            f"--model={options.model}",
            f"--batch_size={options.batch_size}",
            f"--steps={options.steps}",
            "--dropout=0",
        ]
        config = QaConfig(
            shards=str(directory),
            model=options.model,
            batch_size=options.batch_size,
            steps=options.steps,
            dropout=0.0,
        )
        for number in range(options.rounds):
            found["plain"].append(plain(options, shards, config))
            found["loop"].append(whole(shards, flags, Path(scratch) / str(number)))
    print(f"\n{options.model}, {options.batch_size} rows of {options.max_length} tokens:")
    speeds = {name: speeds_of(rounds) for name, rounds in found.items()}
    for what in speeds["plain"]:
        plain_one, loop_one = speeds["plain"][what], speeds["loop"][what]
        print(
            f"  {what:26} plain {plain_one:7.2f}, loop {loop_one:7.2f} steps/s, ratio "
            f"{loop_one / plain_one:.3f}"
        )


def speeds_of(rounds: list[Marks]) -> dict[str, float]:
    """Steps a second of the clock, and of the processor's time."""
    seconds = np.concatenate([marks.seconds()[0] for marks in rounds])
    return {
        "median step": float(1 / np.median(seconds)),
        "fastest tenth of the steps": float(1 / np.quantile(seconds, 0.1)),
        "processor time": 1 / min(marks.seconds()[1] for marks in rounds),
    }


if __name__ == "__main__":
    main(tyro.cli(Options, use_underscores=True))
