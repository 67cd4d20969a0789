"""The decoder equals PyTorch's models in every family and switch; packing changes nothing."""

import json
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from tests.tools.clm_factory import clm_rows, clm_schema
from trainers.data.adapters import one_segment_a_row
from trainers.flags.command_line import make_flags
from trainers.flax_clm import FlaxClmFlags
from trainers.metrics.attention import verify_attention
from trainers.models.model_config import ModelConfig
from trainers.models.weights import from_published, shapes, to_published
from trainers.on_flax.flax_decoder import ClmObjective, DecoderForCausalLM
from trainers.on_flax.layers import graph_of, to_params, to_weights
from trainers.run.program import Plan

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, OPTConfig

torch.set_num_threads(1)  # on a busy machine, several threads take longer
VOCAB, POSITIONS, ROWS = 120, 24, 10
FLAGS = make_flags(FlaxClmFlags, shards="set", precision="float32")
GPT2 = partial(
    GPT2Config,
    vocab_size=VOCAB,
    n_positions=POSITIONS,
    n_embd=32,
    n_layer=2,
    n_head=4,
    bos_token_id=0,
    eos_token_id=2,
)
OPT = partial(
    OPTConfig,
    vocab_size=VOCAB,
    max_position_embeddings=POSITIONS,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    ffn_dim=48,
)
LLAMA = partial(
    AutoConfig.for_model,
    vocab_size=VOCAB,
    max_position_embeddings=POSITIONS,
    hidden_size=36,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=10,
    intermediate_size=52,
    pad_token_id=None,
)


def scaled(kind, **values):
    """Rotary positions of a Llama whose texts were 8 tokens long."""
    parameters = {"rope_theta": 500.0, "rope_type": kind, "factor": 3.0, **values}
    if kind != "linear":
        parameters["original_max_position_embeddings"] = 8
    return {"rope_parameters": parameters}


KINDS = {
    "gpt2": GPT2(),
    "gpt2 untied relu": GPT2(tie_word_embeddings=False, activation_function="relu", n_inner=48),
    "gpt2 gelu, by layer": GPT2(
        activation_function="gelu", scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False
    ),
    "opt": OPT(),
    "opt post-norm": OPT(do_layer_norm_before=False, activation_function="silu"),
    "opt-350m": OPT(do_layer_norm_before=False, word_embed_proj_dim=16),
    "opt wider embedding": OPT(hidden_size=24, word_embed_proj_dim=40, ffn_dim=24),
    "opt untied, no last norm": OPT(
        tie_word_embeddings=False, word_embed_proj_dim=16, _remove_final_layer_norm=True
    ),
    "llama": LLAMA("llama"),
    "llama tied, one kv head": LLAMA(
        "llama", tie_word_embeddings=True, num_key_value_heads=1, rms_norm_eps=1e-3
    ),
    "llama no head_dim, gelu": LLAMA(
        "llama", head_dim=None, num_key_value_heads=None, hidden_act="gelu"
    ),
    "llama linear": LLAMA("llama", **scaled("linear")),
    "llama llama3": LLAMA("llama", **scaled("llama3", low_freq_factor=1.0, high_freq_factor=2.0)),
    "llama yarn": LLAMA("llama", **scaled("yarn")),
    "mistral": LLAMA("mistral", sliding_window=7),
    "mistral no window": LLAMA("mistral", sliding_window=None),
    "qwen2": LLAMA("qwen2"),
    "olmo2": LLAMA("olmo2", hidden_size=24, num_attention_heads=4, head_dim=6),
    "gemma2": LLAMA(
        "gemma2", sliding_window=7, query_pre_attn_scalar=13, attn_logit_softcapping=0.5
    ),
    "gemma2 untied, no caps": LLAMA(
        "gemma2",
        sliding_window=4,
        tie_word_embeddings=False,
        attn_logit_softcapping=None,
        final_logit_softcapping=None,
    ),
    "gemma3": LLAMA(
        "gemma3_text",
        sliding_window=5,
        num_hidden_layers=3,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        final_logit_softcapping=3.0,
    ),
    "gemma3 linear": LLAMA(
        "gemma3_text",
        sliding_window=7,
        layer_types=["full_attention", "sliding_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 700.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 90.0},
        },
    ),
    "qwen3": LLAMA("qwen3", num_attention_heads=3, num_key_value_heads=3),
}


def reference_of(kind):
    """Their model in evaluation mode, its weights far from their start: every term counts."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(KINDS[kind], attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def ours_of(reference):
    """Our configuration and weights of their model."""
    config = ModelConfig.from_json(reference.config.to_dict(), where="test")
    tensors = {name: value.detach().numpy() for name, value in reference.named_parameters()}
    return config, from_published(tensors, config, seed=0, where="test")[0]


def rows_of(seed=0):
    """ROWS rows: ids, one segment each (half of them padded), and which tokens count."""
    random = np.random.default_rng(seed)
    ids = random.integers(5, VOCAB, (ROWS, POSITIONS))
    segments = np.ones_like(ids)
    segments[ROWS // 2 :, 18:] = 0
    ids[segments == 0] = 1
    counts = segments.copy()
    counts[:, 0] = 0  # nothing is before the first
    counts[0, 5:9] = 0
    return ids, segments, counts


@cache
def program_of(config) -> Callable[..., Any]:
    """(weights, ids, segments, counts) -> logits, loss, gradients, weights after a step of AdamW.

    One for each configuration: compiling is what these tests would spend their time on.
    """
    graph = graph_of(DecoderForCausalLM, config, jnp.dtype(jnp.float32))
    optimizer = optax.adamw(1e-3, 0.9, 0.98, 1e-6, weight_decay=0.01)

    objective = ClmObjective(Plan(FLAGS, clm_schema(), config, 1, Path("run")))

    def loss_of(params, rows):
        model: Any = nnx.merge(graph, params)
        sums = objective.sums(params, rows, None)
        return sums["loss"] / sums["counted"], model(rows["input_ids"], rows["segment_ids"])

    @jax.jit
    def run(params, ids, segments, counts):
        value_and_grad = jax.value_and_grad(loss_of, has_aux=True)
        rows = {"input_ids": ids, "segment_ids": segments, "loss_weights": counts}
        (loss, logits), gradients = value_and_grad(params, rows)
        updates, _ = optimizer.update(gradients, optimizer.init(params), params)
        return logits, loss, gradients, optax.apply_updates(params, updates)

    def run_on(weights, *columns):
        logits, loss, gradients, after = run(to_params(weights, config), *columns)
        return logits, loss, to_weights(gradients, config), to_weights(after, config)

    return run_on


def logits_of(config, weights, ids, segments):
    return np.asarray(program_of(config)(weights, ids, segments, segments)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_logits_loss_gradients_and_a_step_equal_transformers(kind, capsys):
    reference = reference_of(kind)
    config, weights = ours_of(reference)
    ids, segments, counts = rows_of()
    labels = torch.from_numpy(np.where(counts > 0, ids, -100))
    rows: Any = dict(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(segments))
    with torch.no_grad():
        exact = deepcopy(reference).double()(rows["input_ids"]).logits.numpy()  # causal: no mask
    theirs = reference(**rows, labels=labels)
    theirs.loss.backward()
    their_gradients = {n: p.grad.numpy().copy() for n, p in reference.named_parameters()}
    step: Any = dict(lr=1e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01)
    torch.optim.AdamW(reference.parameters(), **step).step()

    logits, loss, gradients, after = program_of(config)(weights, ids, segments, counts)
    difference, from_exact = (
        np.abs(np.asarray(logits) - other)[segments > 0].max()
        for other in (theirs.logits.detach().numpy(), exact)
    )
    loss_difference = abs(float(loss) - theirs.loss.item())
    ours = to_published(gradients, config)
    assert set(ours) == set(their_gradients)
    worst = max(np.abs(ours[n] - their_gradients[n]).max() for n in ours)
    stepped = to_published(after, config)
    moved = {n: p.detach().numpy() for n, p in reference.named_parameters()}
    # Adam divides by the gradient's size: where that is next to nothing, its sign is rounding's.
    apart = max(
        np.abs(stepped[n] - moved[n])[np.abs(their_gradients[n]) > 1e-5].max(initial=0)
        for n in stepped
    )
    with capsys.disabled():
        print(
            f"\n{kind:24} logits {difference:.1e} of {np.abs(np.asarray(logits)).max():.1f}, "
            f"from float64 {from_exact:.1e}, "
            f"loss {loss_difference:.1e}, gradients {worst:.1e}, after one step {apart:.1e}",
            end="",
        )
    assert from_exact < 2e-6 and difference < 4e-6  # theirs are as far from float64 as ours
    assert loss_difference < 2e-6 and worst < 2e-6 and apart < 2e-6


@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_model_computes_the_same(kind):
    """Bitwise: transformers makes the same model of our config.json."""
    reference = reference_of(kind)
    config, weights = ours_of(reference)
    theirs = AutoConfig.for_model(**json.loads(json.dumps(config.to_json({}, []))))
    exported = AutoModelForCausalLM.from_config(theirs, attn_implementation="eager").eval()
    tensors = {n: torch.from_numpy(v) for n, v in to_published(weights, config).items()}
    assert not exported.load_state_dict(tensors, strict=False).unexpected_keys
    exported.tie_weights()
    ids = torch.from_numpy(rows_of()[0])
    with torch.no_grad():
        assert torch.equal(exported(ids).logits, reference(ids).logits)


@pytest.mark.parametrize("kind", ["gpt2 untied relu", "opt-350m", "qwen2"])
def test_weights_come_and_go(kind):
    reference = reference_of(kind)
    config, weights = ours_of(reference)
    assert {name: value.shape for name, value in weights.items()} == shapes(config)
    there = to_weights(to_params(weights, config), config)
    back = to_published(there, config)
    theirs = {name: value.detach().numpy() for name, value in reference.named_parameters()}
    assert set(back) == set(theirs)
    for name, value in back.items():
        np.testing.assert_array_equal(value, theirs[name])


def test_a_vocabulary_grows():
    """Old rows stay, for the output layer too; their logits are as before."""
    config, weights = ours_of(reference_of("opt untied, no last norm"))
    larger = replace(config, vocab_size=VOCAB + 7)
    grown, _ = from_published(to_published(weights, config), larger, seed=0, where="test")
    ids, segments, _ = rows_of()
    after = logits_of(larger, grown, ids, segments)
    assert after.shape[-1] == VOCAB + 7
    before = logits_of(config, weights, ids, segments)
    np.testing.assert_allclose(after[..., :VOCAB], before, atol=1e-5)


@pytest.mark.parametrize(
    "kind", ["gpt2", "opt-350m", "llama yarn", "mistral", "qwen3", "olmo2", "gemma2", "gemma3"]
)
def test_packed_equals_unpacked(kind, capsys):
    """Each segment, and the gradients of the whole, as if it were alone in a row."""
    config, weights = ours_of(reference_of(kind))
    packed = clm_rows(clm_schema(max_length=POSITIONS, vocab_size=VOCAB), 2, seed=0)

    def filled(rows):
        """Rows of the one shape that is compiled."""
        return {n: np.pad(c, [(0, ROWS - len(c)), (0, 0)]) for n, c in rows.items()}

    def ours(rows):
        return logits_of(config, weights, rows["input_ids"], rows["segment_ids"])

    report = verify_attention(ours, filled(packed), causal=True)
    columns = ("input_ids", "segment_ids", "loss_weights")
    (_, loss, gradients, _), (_, each_loss, each_gradients, _) = (
        program_of(config)(weights, *(filled(rows)[name] for name in columns))
        for rows in (packed, one_segment_a_row(packed))
    )
    worst = max(np.abs(gradients[name] - each_gradients[name]).max() for name in weights)
    with capsys.disabled():
        print(f"\n{kind}, packed and alone: gradients {worst:.1e}\n{report}", end="")
    assert report.ok and report.segments > 5
    assert worst < 5e-5 and float(loss) == pytest.approx(float(each_loss))


@pytest.mark.parametrize("kind", ["opt-350m", "qwen3"])
def test_bfloat16_stays_near(kind):
    config, weights = ours_of(reference_of(kind))
    rows = rows_of()
    exact = logits_of(config, weights, *rows[:2])
    model: Any = nnx.merge(
        graph_of(DecoderForCausalLM, config, jnp.dtype(jnp.bfloat16)), to_params(weights, config)
    )
    near = jax.jit(lambda: model(*rows[:2]))()
    assert near.dtype == jnp.float32
    assert np.abs(near - exact)[rows[1] > 0].mean() < 0.02 * exact.std()
