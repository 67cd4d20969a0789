"""Trains one GPT-2 with the Flax trainer and with plain PyTorch, and compares the results.

    python -m tests.benchmarks.compare_flax_clm --work=DIR

WikiText-2 (../shared/data), a vocabulary of 8,000, the same rows in the same order, the same first
weights, the same schedule: the validation perplexities differ by rounding only. Then greedy texts
of the trained, exported model: ours token by token beside `transformers`' `generate`. DIR keeps
everything, and what is there is not made again.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from pipelines import build_shards, train_tokenizer
from tests.tools.places import DATA
from tests.tools.run_reading import read_metrics
from tests.tools.torch_gpt2 import PlainLoop, greedy, open_model, perplexity
from trainers import flax_clm
from trainers.data.shard_set import ShardSet
from trainers.flags.command_line import make_flags
from trainers.flax_clm import FlaxClmFlags
from trainers.models.hf_files import write_directory
from trainers.models.plan_model import plan_model
from trainers.models.weights import fresh, to_published
from trainers.on_flax.clm_text import Sampling, generator, row_keys
from trainers.on_flax.flax_decoder import DecoderForCausalLM
from trainers.on_flax.layers import graph_of, to_params
from trainers.run.trained import find_trained

PROMPT, NEW = 16, 64  # tokens


@dataclass(frozen=True)
class Comparison:
    """What is trained."""

    work: Path
    """Directory for tokenizer, shards and runs."""
    text: Path = DATA / "wikitext-2"
    """Directory with train, valid and test files of WikiText-2."""
    model: Literal["tiny", "small", "base"] = "tiny"
    """Preset of the trainer."""
    vocab_size: int = 8000
    """Of the tokenizer."""
    steps: int = 600
    """Optimizer steps."""
    batch_size: int = 16
    """Rows of 128 tokens a step."""
    learning_rate: float = 2e-3
    """Highest."""
    prompts: int = 20
    """Beginnings of validation rows that both go on with."""

    @property
    def shards(self) -> str:
        """The set."""
        return str(self.work / "shards")


def make_shards(options: Comparison) -> None:
    """Tokenizer and set, unless they are there."""
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


def train_ours(options: Comparison) -> tuple[float, float]:
    """Validation perplexity, and seconds a step, of the trainer's run."""
    run, trained = options.work / "run", options.work / "trained"
    if not trained.exists():
        flax_clm.main(
            [
                f"--shards={options.shards}",
                f"--output={run}",
                f"--export={trained}",
                f"--model={options.model}",
                f"--steps={options.steps}",
                f"--batch_size={options.batch_size}",
                f"--learning_rate={options.learning_rate}",
                "--evaluate_every=100000",
            ]
        )
    lines = read_metrics(str(run / "metrics.jsonl"))
    steps = [line for line in lines if line["kind"] == "train"]
    seconds = float(np.median([line["tokens"] / line["tokens_per_second"] for line in steps]))
    return lines[-1]["perplexity"], seconds


def train_theirs(options: Comparison) -> tuple[float, float]:
    """The same in PyTorch, from the weights that ours began with."""
    done = options.work / "pytorch.json"
    if not done.exists():
        done.write_text(json.dumps(_train_theirs(options)))
    found, seconds = json.loads(done.read_text())
    return found, seconds


def _train_theirs(options: Comparison) -> tuple[float, float]:
    shards, first = ShardSet(options.shards), options.work / "first"
    flags = make_flags(
        FlaxClmFlags, shards=options.shards, model=options.model, steps=options.steps
    )
    if not first.exists():
        config = plan_model(flags, shards.schema).config
        settings = config.to_json(shards.schema.special_ids)
        write_directory(
            str(first), settings, to_published(fresh(config, flags.compute.seed), config)
        )
    model, seconds = open_model(str(first)), []
    loop = PlainLoop(model, steps=options.steps, learning_rate=options.learning_rate)
    batches = shards.batches(
        "train", batch_size=options.batch_size, seed=flags.compute.seed, stop_step=options.steps
    )
    for step, batch in enumerate(batches, 1):
        began = time.perf_counter()
        loss = loop.step(batch)
        seconds.append(time.perf_counter() - began)
        if step % 50 == 0:
            print(f"PyTorch: step {step}/{options.steps}  loss {loss:.4f}", flush=True)
    found = perplexity(model, shards.in_order("validation", batch_size=32))
    return found, float(np.median(seconds))


def equal_texts(options: Comparison) -> tuple[int, int]:
    """How many greedy texts are `generate`'s token by token, and the number of their tokens."""
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
    """Everything, and the table."""
    make_shards(options)
    ours, our_seconds = train_ours(options)
    theirs, their_seconds = train_theirs(options)
    equal, tokens = equal_texts(options)
    print(f"\n{options.model}, {options.steps} steps of {options.batch_size} rows of 128 tokens:")
    print(f"  flax_clm  validation perplexity {ours:.3f}, {our_seconds * 1e3:.0f} ms a step")
    print(f"  PyTorch   validation perplexity {theirs:.3f}, {their_seconds * 1e3:.0f} ms a step")
    print(f"  apart by {abs(ours / theirs - 1):.3%}")
    print(f"  greedy texts equal to generate's: {equal} of {options.prompts}, {tokens} tokens")


if __name__ == "__main__":
    main(tyro.cli(Comparison, use_underscores=True))
