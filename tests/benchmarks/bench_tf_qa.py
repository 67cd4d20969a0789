"""A step of tf_qa beside the plainest loops of TensorFlow and PyTorch with the same model.

    python -m tests.benchmarks.bench_tf_qa --model=tiny --steps=30

plain     a tf.function compiled by XLA with a tape and Keras' optimizer in it, called in a `for`
          with arrays that lie in memory: no shards, no measurements, nothing written
trainer   `trainers.tf_qa` as a user runs it: shards read in shuffled order, placed, each step's
          measurements taken and written
torch     `transformers`' GPT2LMHeadModel with fused AdamW and clipping, on the same rows
"""

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from transformers import GPT2Config, GPT2LMHeadModel  # before TensorFlow: LLVM

from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.tasks.qa import Qa
from tests.benchmarks.clock import Seconds
from tests.benchmarks.measure import Options, Record, alternated, entry
from tests.benchmarks.steps import TrainerRounds, step_records
from tests.tools.question_factory import write_qa_set
from tests.tools.shard_factory import tokenizer_json
from tests.tools.torch_gpt2 import PlainLoop
from trainers.data.shard_set import ShardSet
from trainers.flags.command_line import make_flags
from trainers.models.plan_model import plan_model
from trainers.models.weights import fresh
from trainers.on_tf.backend import tf
from trainers.on_tf.tf_decoder import Decoder
from trainers.on_tf.tf_layers import fill
from trainers.on_tf.tf_program import make_optimizer
from trainers.tf_qa import TfQaFlags
from trainers.tf_qa import main as train

TASK = Qa(qa_template="w5 {question} w6 {context} w7 {answer}")
FIRST = 5  # steps of a round that do not count
Step = Callable[[dict[str, np.ndarray]], Any]


@dataclass(frozen=True)
class Bench(Options):
    """What to measure."""

    model: Literal["tiny", "small", "gpt2"] = "tiny"
    """Preset."""
    vocab_size: int = 4000
    """Of the rows."""
    max_length: int = 256
    """Tokens a row."""
    batch_size: int = 8
    """Rows a step."""
    steps: int = 30
    """Of a round."""


def random_questions(options: Bench) -> Iterator[tuple[str, str, list, str]]:
    """As many as fill some hundred rows."""
    random = np.random.default_rng(0)
    for number in range(400):
        words = [f"w{word}" for word in random.integers(10, options.vocab_size, 100)]
        yield " ".join(words[:8]), " ".join(words), [(words[0], 0)], str(number)


def plain_step(options: Bench, shards: ShardSet, flags: TfQaFlags) -> Step:
    """Of the plainest loop."""
    config = plan_model(flags, shards.schema).config
    model = Decoder(config)
    fill(model, fresh(config, 0))
    variables = model.trainable_variables
    optimizer = make_optimizer(flags.optimization, variables)

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

    def run(rows: dict[str, np.ndarray]) -> float:
        arrays = [
            rows[name].astype(dtype)
            for name, dtype in (
                ("input_ids", "int32"),
                ("segment_ids", "int32"),
                ("loss_weights", "float32"),
            )
        ]
        return float(step(*map(tf.constant, arrays)))

    return run


def torch_step(options: Bench, shards: ShardSet, flags: TfQaFlags) -> Step:
    """Of PyTorch."""
    sizes = plan_model(flags, shards.schema).config
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=shards.schema.vocab_size,
            n_positions=options.max_length,
            n_embd=sizes.hidden_size,
            n_layer=sizes.layers,
            n_head=sizes.heads,
            attn_pdrop=0.0,
            embd_pdrop=0.0,
            resid_pdrop=0.0,
        )
    )
    loop = PlainLoop(
        model, steps=options.steps * options.runs, learning_rate=flags.optimization.learning_rate
    )
    return loop.step


def in_memory(options: Bench, shards: ShardSet, step: Step) -> Callable[[], Seconds]:
    """Takes batches that lie in memory, and waits for each."""
    rows = shards.read("train", np.arange(shards.rows("train")))

    def run() -> Seconds:
        began = Seconds.now()
        for number in range(options.steps):
            if number == FIRST:
                began = Seconds.now()
            taken = np.arange(number, number + options.batch_size) % len(rows["input_ids"])
            step({name: column[taken] for name, column in rows.items()})
        return Seconds.now().since(began, options.steps - FIRST)

    return run


def measure(options: Bench) -> Iterator[Record]:
    """Three rows."""
    tokenizer = LoadedTokenizer(tokenizer_json(options.vocab_size))
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "set"
        asked = list(random_questions(options))
        write_qa_set(directory, {"train": asked}, TASK, tokenizer, options.max_length)
        shards = ShardSet(str(directory))
        settings = make_flags(
            TfQaFlags,
            shards=str(directory),
            model=options.model,
            batch_size=options.batch_size,
            steps=options.steps,
            dropout=0.0,
        )
        flags = [f"--shards={directory}", f"--model={options.model}", "--dropout=0"]
        flags += [f"--batch_size={options.batch_size}", f"--steps={options.steps}"]

        def whole() -> None:
            quiet = io.StringIO()
            with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
                train([*flags, f"--output={tempfile.mkdtemp(dir=scratch)}/run"])

        trainer = TrainerRounds(whole, first=FIRST)
        contestants: dict[str, Callable[[], Seconds]] = {
            "trainer": trainer,
            "plain": in_memory(options, shards, plain_step(options, shards, settings)),
            "torch": in_memory(options, shards, torch_step(options, shards, settings)),
        }
        found = alternated(contestants, options.runs)
    note = f"{options.model}, {options.batch_size} rows of {options.max_length} tokens"
    yield from step_records("tf_qa", found, trainer, "tensorflow", "torch", note=note)


if __name__ == "__main__":
    entry(measure, Bench)
