"""Generation: equal to transformers' `generate`, and keyed by seed."""

import warnings
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tools.flax_weights import to_weights
from tests.tools.small_decoders import CONFIGS, large_weights
from textmill.trainers.models.weights import to_published
from textmill.trainers.on_flax.flax_decoder import DecoderForCausalLM
from textmill.trainers.on_flax.generation import (
    Sampling,
    allowed_logits,
    choose,
    generator,
    row_keys,
)
from textmill.trainers.on_flax.layers import graph_of, to_params

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.generation.logits_process import (
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

torch.set_num_threads(1)  # on a busy machine, several threads take longer
PROMPTS = [[7, 8, 9, 10, 11], [12], [13, 14, 15]]
NEW = 12


@cache
def weights_of(config):
    return jax.tree.map(jnp.asarray, to_params(large_weights(config), config))


def padded(prompts):
    width = max(map(len, prompts))
    ids = np.full((len(prompts), width), 59, np.int32)  # anything
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = prompt
    return ids, np.array([len(prompt) for prompt in prompts], np.int32)


@cache
def generator_of(config, sampling, dtype=jnp.float32) -> Any:
    """One for each rule: compiling is what these tests would spend their time on."""
    return generator(graph_of(DecoderForCausalLM, config, jnp.dtype(dtype)), sampling)


def generate(config, sampling, prompts=PROMPTS, *, seed=0):
    """New tokens of each prompt, as lists."""
    run = generator_of(config, sampling)
    found = run(weights_of(config), *padded(prompts), row_keys(seed, len(prompts)))
    return [ids[:n].tolist() for ids, n in zip(np.asarray(found.ids), found.lengths, strict=True)]


def arguments(config):
    return weights_of(config), *padded(PROMPTS), row_keys(0, len(PROMPTS))


PROMPTS_OF_ANY_LENGTH = [
    np.random.default_rng(row).integers(3, 60, 1 + row).tolist() for row in range(13)
]


# Their caches are llama's and gemma3's.
SLOW = ("mistral", "qwen2", "qwen3", "olmo2")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CONFIGS],
)
def test_greedy_equals_transformers(name):
    config = CONFIGS[name]
    greedy = generate(config, Sampling(NEW), PROMPTS_OF_ANY_LENGTH)
    theirs = AutoConfig.for_model(**config.to_json({}, []))
    model = AutoModelForCausalLM.from_config(theirs, attn_implementation="eager").eval()
    weights = to_published(to_weights(weights_of(config), config), config)
    tensors = {name: torch.tensor(value) for name, value in weights.items()}
    assert not model.load_state_dict(tensors, strict=False).unexpected_keys
    model.tie_weights()
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
    for prompt, ours in zip(PROMPTS_OF_ANY_LENGTH, greedy, strict=True):
        ids = torch.tensor([prompt])
        mask = torch.ones_like(ids)
        theirs = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=NEW)
        assert ours == theirs[0, len(prompt) :].tolist()
    assert len({tuple(ours) for ours in greedy}) > 10
    assert max(len(set(ours)) for ours in greedy) > 3  # no loop of one token


def test_stops_at_eos():
    """Each row at its own end; the eos is its last token."""
    config = CONFIGS["gpt2"]
    greedy = generate(config, Sampling(NEW))
    eos = greedy[0][4]
    stopped = generate(config, Sampling(NEW, eos_ids=(eos,)))
    for before, after in zip(greedy, stopped, strict=True):
        end = before.index(eos) + 1 if eos in before else NEW
        assert after == before[:end]
    assert len(stopped[0]) <= 5


def test_samples_are_keyed_by_seed_and_by_row():
    """Three prompts of one shape and one program, compiled once."""
    config, rule = CONFIGS["gpt2"], Sampling(NEW, temperature=1.5)
    one = generate(config, rule)
    assert one == generate(config, rule)
    assert one != generate(config, rule, seed=1)
    others = [PROMPTS[0], [20, 21, 22, 23, 24], [25]]
    assert generate(config, rule, others)[0] == one[0]  # whatever else is in the batch
    same = generate(config, rule, [PROMPTS[0]] * 3)
    assert same[0] == one[0] and len({tuple(row) for row in same}) == 3
    assert generator_of(config, rule)._cache_size() == 1
    greedy = generator_of(config, Sampling(NEW))
    program = str(greedy.lower(*arguments(config)).as_text())
    assert program.count("stablehlo.while") == 1  # a loop on the device: no call a token


LIKELIEST = [(1, 1.0), (0, 1e-6)]  # alone


@pytest.mark.parametrize("temperature", [0.7, 2.0])
@pytest.mark.parametrize(
    ("top_k", "top_p"), [(0, 1.0), (5, 1.0), (0, 0.8), (7, 0.6), (200, 0.05), *LIKELIEST]
)
def test_what_may_be_drawn_is_what_transformers_draws(temperature, top_k, top_p):
    logits = np.random.default_rng(0).normal(0, 3, (4, 60)).astype(np.float32)
    unread: Any = None  # the ids before
    theirs: Any = TemperatureLogitsWarper(temperature)(unread, torch.from_numpy(logits))
    if top_k:
        theirs = TopKLogitsWarper(top_k)(unread, theirs)
    if top_p < 1:
        theirs = TopPLogitsWarper(top_p)(unread, theirs)
    ours = allowed_logits(jnp.asarray(logits), Sampling(1, temperature, top_k, top_p))
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6)


def test_draws_have_the_softmax_s_shares():
    """20,000 first tokens of one prompt: chi-square over the tokens drawn often enough."""
    rows, rule = 20_000, Sampling(1, temperature=3.0, top_k=8)
    logits = jnp.asarray(np.random.default_rng(2).normal(0, 3, (1, 60)), jnp.float32)
    drawn = jax.jit(choose, static_argnames="rule")(
        jnp.tile(logits, (rows, 1)), row_keys(0, rows), jnp.asarray(0), rule=rule
    )
    counts = np.bincount(np.asarray(drawn), minlength=60)
    expected = np.asarray(jax.nn.softmax(allowed_logits(logits, rule)))[0] * rows
    assert set(np.flatnonzero(counts)) <= set(np.flatnonzero(expected))
    often = expected > 20
    assert often.sum() > 4
    assert ((counts - expected)[often] ** 2 / expected[often]).sum() < 30  # 7 degrees: p < 1e-4


def test_more_tokens_than_positions_are_refused():
    with pytest.raises(ValueError, match="5 \\+ 36 tokens for 40 positions"):
        generate(CONFIGS["gpt2"], Sampling(36))
