"""`--generate`: a text in, its continuations out."""

import sys
import time
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from schemas.commands.terminal import say
from schemas.errors import UsageError
from trainers.models.set_tokenizer import open_tokenizer
from trainers.on_flax.flax_decoder import DecoderForCausalLM
from trainers.on_flax.flax_program import compute_dtype
from trainers.on_flax.generation import Generated, generator, row_keys
from trainers.on_flax.layers import graph_of, to_params
from trainers.run.use import Trained, find_trained

WIDTH = 16  # prompts are filled up to a multiple of this: few programs serve all lengths


def write_text(flags: Any) -> None:
    """Prints the text of --generate with its continuation, or several of them.

    Args:
      flags: GenerationFlags.

    Raises:
      UsageError: the checkpoint, the text or the settings do not do.
      DataError: a file is broken.
    """
    trained = find_trained(flags)
    if trained.tokenizer_json is None:
        raise UsageError(f"--checkpoint={trained.directory} has no tokenizer.json: put one there")
    tokenizer = open_tokenizer(trained.tokenizer_json)
    prompt = _prompt(flags.generate, trained, tokenizer)
    found, said = _generate(flags, trained, prompt)
    for row in range(flags.samples):
        if flags.samples > 1:
            say(f"--- {row + 1} of {flags.samples}")
        ids = found.ids[row, : found.lengths[row]].tolist()
        say(tokenizer.decode(prompt[len(trained.prefix_ids) :] + ids))
    _note(said)


def _prompt(text: str, trained: Trained, tokenizer: Any) -> list[int]:
    """The ids that training rows would have: no specials but what documents begin with."""
    model = trained.config
    prompt = [*trained.prefix_ids, *tokenizer.encode(text, add_special_tokens=False).ids]
    if not prompt:
        raise UsageError(
            "--generate= is empty, and this model's documents begin with no token of their own: "
            "give at least a word (sets built with --bos teach a model how to begin)"
        )
    if max(prompt) >= model.vocab_size:
        raise UsageError(
            f"--checkpoint={trained.directory}: its tokenizer gives id {max(prompt)}, and the "
            f"model has {model.vocab_size:,}: put the model's own tokenizer there"
        )
    if len(prompt) >= model.max_positions:
        raise UsageError(
            f"--generate: the text is {len(prompt):,} tokens, and the model places "
            f"{model.max_positions:,}: give a shorter one"
        )
    return prompt


def _generate(flags: Any, trained: Trained, prompt: list[int]) -> tuple[Generated, str]:
    """New tokens of every sample, on the host, and a line for people on how fast they came."""
    model, [(name, read)] = trained.config, trained.weights
    new = min(flags.max_new_tokens, model.max_positions - len(prompt))
    if new < flags.max_new_tokens:
        _note(f"the model places {model.max_positions} tokens: at most {new} new ones")
    width = min(-(-len(prompt) // WIDTH) * WIDTH, model.max_positions - new)
    prompts = np.zeros((flags.samples, width), np.int32)
    prompts[:, : len(prompt)] = prompt
    lengths = np.full(flags.samples, len(prompt), np.int32)
    rule = replace(flags.sampling(trained.eos_ids), max_new_tokens=new)
    graph = graph_of(DecoderForCausalLM, model, compute_dtype(flags.precision))
    params = jax.tree.map(jnp.asarray, to_params(read(), model))
    arguments = (params, prompts, lengths, row_keys(flags.seed, flags.samples))

    began = time.perf_counter()
    program: Any = generator(graph, rule)
    program = program.lower(*arguments).compile()
    compiled = time.perf_counter()
    found = jax.device_get(program(*arguments))
    seconds = time.perf_counter() - compiled
    tokens = int(found.lengths.sum())
    place = f"{trained.directory}, step {name}" if trained.schema else str(trained.directory)
    return found, (
        f"{place}: {tokens} tokens in {seconds:.2f} s ({tokens / seconds:,.0f} a second), "
        f"after compiling for {compiled - began:.1f} s"
    )


def _note(text: str) -> None:
    say(text, sys.stderr)
