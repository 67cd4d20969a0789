"""`--generate`: a text in, its continuations out."""

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from schemas.errors import UsageError
from schemas.terminal import say
from trainers.models.set_tokenizer import open_tokenizer
from trainers.on_flax.clm_config import GenerateConfig
from trainers.on_flax.decoder import graph_of
from trainers.on_flax.decoder_checkpoint import Decoder, load_decoder
from trainers.on_flax.generation import generator, row_keys
from trainers.on_flax.programs import compute_dtype

WIDTH = 16  # prompts are filled up to a multiple of this: few programs serve all lengths


def write_text(config: GenerateConfig) -> None:
    """Prints the text with its continuation, or several of them.

    Raises:
      UsageError: the checkpoint, the text or the settings do not do.
    """
    decoder = load_decoder(config.checkpoint)
    if decoder.tokenizer_json is None:
        raise UsageError(f"--checkpoint={config.checkpoint} has no tokenizer.json: put one there")
    tokenizer = open_tokenizer(decoder.tokenizer_json)
    prompt = _prompt(config, decoder, tokenizer)
    room = decoder.config.max_positions - len(prompt)
    new = min(config.max_new_tokens, room)
    if new < config.max_new_tokens:
        _say(f"the model places {decoder.config.max_positions} tokens: at most {new} new ones")
    width = min(-(-len(prompt) // WIDTH) * WIDTH, decoder.config.max_positions - new)
    prompts = np.zeros((config.samples, width), np.int32)
    prompts[:, : len(prompt)] = prompt
    lengths = np.full(config.samples, len(prompt), np.int32)
    keys = row_keys(config.seed, config.samples)
    sampling = config.sampling(max_new_tokens=new, eos_ids=decoder.eos_ids)
    graph = graph_of(decoder.config, compute_dtype(config.precision))
    arguments: Any = (decoder.params, jnp.asarray(prompts), jnp.asarray(lengths), keys)

    began = time.perf_counter()
    program = generator(graph, sampling).lower(*arguments).compile()
    compiled = time.perf_counter()
    found = jax.device_get(program(*arguments))
    seconds = time.perf_counter() - compiled
    for row in range(config.samples):
        if config.samples > 1:
            say(f"--- {row + 1} of {config.samples}")
        ids = [int(number) for number in found.ids[row, : found.lengths[row]]]
        say(tokenizer.decode(prompt[len(decoder.prefix_ids) :] + ids))
    made = int(found.lengths.sum())
    _say(
        f"{decoder.name}: {made} tokens in {seconds:.2f} s ({made / seconds:,.0f} a second), "
        f"after compiling for {compiled - began:.1f} s"
    )


def _prompt(config: GenerateConfig, decoder: Decoder, tokenizer: Any) -> list[int]:
    """The ids that training rows would have: no specials but what documents begin with."""
    text = tokenizer.encode(config.generate, add_special_tokens=False).ids
    prompt = [*decoder.prefix_ids, *text]
    if not prompt:
        raise UsageError(
            "--generate= is empty, and this model's documents begin with no token of their own: "
            "give at least a word (sets built with --bos teach a model how to begin)"
        )
    if max(prompt) >= decoder.config.vocab_size:
        raise UsageError(
            f"--checkpoint={config.checkpoint}: its tokenizer gives id {max(prompt)}, and the "
            f"model has {decoder.config.vocab_size:,}: put the model's own tokenizer there"
        )
    if len(prompt) >= decoder.config.max_positions:
        raise UsageError(
            f"--generate: the text is {len(prompt):,} tokens, and the model places "
            f"{decoder.config.max_positions:,}: give a shorter one"
        )
    return prompt


def _say(text: str) -> None:
    say(text, sys.stderr)
