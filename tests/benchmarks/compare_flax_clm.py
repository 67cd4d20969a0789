"""Trains one decoder with the Flax trainer and with plain PyTorch, and compares the results.

    python -m tests.benchmarks.compare_flax_clm --work=DIR --family=llama --steps=1500

WikiText-2 (../shared/data), a vocabulary of 8,000, the same rows in the same order, the same first
weights, the same schedule. The loss of every step and the validation perplexity differ by rounding
only; DIR/loss.jsonl and DIR/loss.png have both curves. Then greedy texts of the trained, exported
model: ours token by token beside `transformers`' `generate`. DIR keeps the results, and the command
does not repeat what is there.
"""

import json
import shlex
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import tyro

from tests.tools.places import DATA
from tests.tools.run_reading import read_metrics
from tests.tools.torch_models import PlainLoop, greedy, open_model, perplexity
from textmill.pipelines import build_shards, train_tokenizer
from textmill.trainers import flax_clm
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.flags.command_line import command, make_flags
from textmill.trainers.flax_clm import FlaxClmFlags
from textmill.trainers.models.hf_files import write_directory
from textmill.trainers.models.plan_model import plan_model
from textmill.trainers.models.weights import init_weights, to_published
from textmill.trainers.on_flax.flax_decoder import DecoderForCausalLM
from textmill.trainers.on_flax.generation import Sampling, generator, row_keys
from textmill.trainers.on_flax.layers import graph_of, to_params
from textmill.trainers.run.trained import find_trained

PROMPT, NEW = 16, 64  # tokens


@dataclass(frozen=True)
class Comparison:
    """Flags of the comparison."""

    work: Path
    """Directory for tokenizer, shards and runs."""
    text: Path = DATA / "wikitext-2"
    """Directory with train, valid and test files of WikiText-2."""
    family: str = "gpt2"
    """Family of the trainer."""
    model: str = "tiny"
    """Size of the trainer; each of the next four replaces a dimension."""
    layers: int | None = None
    hidden_size: int | None = None
    heads: int | None = None
    intermediate_size: int | None = None
    vocab_size: int = 8000
    """Tokens of the tokenizer."""
    steps: int = 600
    """Optimizer steps."""
    batch_size: int = 16
    """Rows of 128 tokens a step."""
    learning_rate: float = 2e-3
    """Highest."""
    prompts: int = 20
    """Starts of validation rows that both continue."""

    @property
    def shards(self) -> str:
        """Directory of the dataset."""
        return str(self.work / "shards")

    @cached_property
    def flags(self) -> FlaxClmFlags:
        """Flags of the trainer."""
        names = ("family", "model", "layers", "hidden_size", "heads", "intermediate_size", "steps")
        return make_flags(
            FlaxClmFlags,
            **{name: getattr(self, name) for name in (*names, "batch_size", "learning_rate")},
            shards=self.shards,
            output=str(self.work / "run"),
            export=str(self.work / "trained"),
            evaluate_every=100_000,
        )


class Result(NamedTuple):
    """Measurements of a training."""

    losses: list[float]  # of each step, before it
    perplexity: float  # of the validation split
    seconds: float  # a step


def make_shards(options: Comparison) -> None:
    """Makes tokenizer and dataset, unless they are there."""
    files = {split: str(options.text / f"*{split}.tokens*") for split in ("train", "valid", "test")}
    tokenizer = str(options.work / "tokenizer")
    train_tokenizer.main(
        [
            f"--input={files['train']}",
            "--input_format=text",
            "--document=line",
            f"--vocab_size={options.vocab_size}",
            f"--output={tokenizer}",
        ]
    )
    build_shards.main(
        [
            "--task=clm",
            f"--train_input={files['train']}",
            f"--validation_input={files['valid']}",
            f"--test_input={files['test']}",
            "--input_format=text",
            "--document=line",
            f"--tokenizer={tokenizer}",
            "--bos",
            "--max_length=128",
            f"--output={options.shards}",
        ]
    )


def train_ours(options: Comparison) -> Result:
    """Trains with the trainer's own program."""
    if not (options.work / "trained").exists():
        flax_clm.main(shlex.split(command(options.flags))[3:])
    lines = read_metrics(str(options.work / "run" / "metrics.jsonl"))
    steps = [line for line in lines if line["kind"] == "train"]
    seconds = float(np.median([line["tokens"] / line["tokens_per_second"] for line in steps]))
    return Result([line["loss"] for line in steps], lines[-1]["perplexity"], seconds)


def train_theirs(options: Comparison) -> Result:
    """Trains in PyTorch, from the weights that ours began with."""
    done = options.work / "pytorch.json"
    if not done.exists():
        done.write_text(json.dumps(_train_theirs(options)))
    return Result(*json.loads(done.read_text()))


def _train_theirs(options: Comparison) -> Result:
    shards, first, flags = ShardSet(options.shards), options.work / "first", options.flags
    if not first.exists():
        config = plan_model(flags, shards.schema).config
        settings = config.to_json(shards.schema.special_ids)
        write_directory(
            str(first), settings, to_published(init_weights(config, flags.compute.seed), config)
        )
    model, losses, seconds = open_model(str(first)), [], []
    loop = PlainLoop(model, steps=options.steps, learning_rate=options.learning_rate)
    batches = shards.batches(
        "train", batch_size=options.batch_size, seed=flags.compute.seed, stop_step=options.steps
    )
    for step, batch in enumerate(batches, 1):
        began = time.perf_counter()
        losses.append(loop.step(batch))
        seconds.append(time.perf_counter() - began)
        if step % 50 == 0:
            print(f"PyTorch: step {step}/{options.steps}  loss {losses[-1]:.4f}", flush=True)
    measured = perplexity(model, shards.sequential_batches("validation", batch_size=32))
    return Result(losses, measured, float(np.median(seconds)))


def write_curves(ours: Result, theirs: Result, work: Path) -> np.ndarray:
    """Writes loss.jsonl and loss.png; returns the differences of the losses, f64 [steps]."""
    pairs = list(zip(ours.losses, theirs.losses, strict=True))
    with open(work / "loss.jsonl", "w") as file:
        for step, (one, other) in enumerate(pairs, 1):
            line = {"step": step, "flax_clm": one, "pytorch": other}
            file.write(json.dumps(line) + "\n")
    differences = np.abs(np.subtract(*np.array(pairs).T))
    figure, (above, below) = plt.subplots(2, sharex=True, figsize=(8, 6))
    above.plot(ours.losses, label="flax_clm")
    above.plot(theirs.losses, "--", label="PyTorch")
    above.set_ylabel("loss")
    above.legend()
    below.semilogy(differences)
    below.set_xlabel("step")
    below.set_ylabel("difference")
    figure.savefig(work / "loss.png")
    return differences


def equal_texts(options: Comparison) -> tuple[int, int]:
    """The number of greedy texts that equal `generate`'s, and of their tokens."""
    trained = str(options.work / "trained")
    model = open_model(trained).eval()
    decoder = find_trained(trained)
    [(_, read)] = decoder.weights
    params = jax.device_put(to_params(read(), decoder.config))
    rows = ShardSet(options.shards).read("validation", np.arange(options.prompts))
    prompts = rows["input_ids"][:, :PROMPT].astype(np.int32)
    run: Any = generator(
        graph_of(DecoderForCausalLM, decoder.config, jnp.dtype(jnp.float32)),
        Sampling(NEW, eos_ids=decoder.eos_ids),
    )
    lengths = np.full(len(prompts), PROMPT, np.int32)
    found = jax.device_get(run(params, prompts, lengths, row_keys(0, len(prompts))))
    equal = tokens = 0
    for prompt, ids, length in zip(prompts, found.ids, found.lengths, strict=True):
        theirs = greedy(model, prompt.tolist(), NEW)
        equal += ids[:length].tolist() == theirs
        tokens += len(theirs)
    return equal, tokens


def main(options: Comparison) -> None:
    """Trains both, and prints the table."""
    make_shards(options)
    ours, theirs = train_ours(options), train_theirs(options)
    differences = write_curves(ours, theirs, options.work)
    equal, tokens = equal_texts(options)
    rows = f"{options.batch_size} rows of 128 tokens"
    print(f"\n{options.family} {options.model}, {options.steps} steps of {rows}:")
    for name, result in (("flax_clm", ours), ("PyTorch ", theirs)):
        print(
            f"  {name}  last loss {result.losses[-1]:.4f}, validation perplexity "
            f"{result.perplexity:.3f}, {result.seconds * 1e3:.0f} ms a step"
        )
    print(
        f"  largest difference of the losses of a step {differences.max():.1e} (after step "
        f"{differences.argmax()}), of perplexity {abs(ours.perplexity / theirs.perplexity - 1):.3%}"
    )
    print(f"  greedy texts equal to generate's: {equal} of {options.prompts}, {tokens} tokens")


if __name__ == "__main__":
    main(tyro.cli(Comparison, use_underscores=True))
