"""The encoder equals PyTorch's models in every family and switch, packed or not."""

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from schemas.features import positions_from_segments as positions_on_host
from tests.tools.shard_factory import mlm_schema, packed_rows
from trainers.flags.command_line import make_flags
from trainers.flax_mlm import FlaxMlmFlags
from trainers.metrics.attention import EARLIER, verify_attention
from trainers.models.families import ACTIVATIONS
from trainers.models.model_config import ModelConfig
from trainers.models.weights import from_published, to_published
from trainers.on_flax.flax_attention import positions_from_segments
from trainers.on_flax.flax_encoder import EncoderForMaskedLM, MaskedRows, MlmObjective
from trainers.on_flax.layers import (
    FORMULAS,
    graph_of,
    to_params,
    to_weights,
)
from trainers.on_flax.optimizers import optimizer_for
from trainers.run.program import Plan

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    from transformers import (
        AutoConfig,
        AutoModelForMaskedLM,
        BertConfig,
        ElectraConfig,
        RobertaConfig,
    )

VOCAB, LENGTH = 120, 24
SIZES: dict[str, Any] = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    bos_token_id=0,
    eos_token_id=2,
)
ROBERTA = partial(RobertaConfig, **SIZES, max_position_embeddings=LENGTH + 2, pad_token_id=1)
BERT = partial(BertConfig, **SIZES, max_position_embeddings=LENGTH)
ELECTRA = partial(ElectraConfig, **SIZES, max_position_embeddings=LENGTH)
MODERN = partial(
    AutoConfig.for_model,
    "modernbert",
    vocab_size=VOCAB,
    hidden_size=36,
    num_hidden_layers=3,
    num_attention_heads=6,
    intermediate_size=52,
    max_position_embeddings=LENGTH,
    local_attention=4,  # two tokens to each side
    pad_token_id=None,
)
YARN = dict(rope_type="yarn", rope_theta=500.0, factor=3.0, original_max_position_embeddings=8)
KINDS = {
    "roberta": ROBERTA(type_vocab_size=1, layer_norm_eps=1e-5),
    "roberta, offset 6, untied, relu": ROBERTA(
        pad_token_id=5,
        max_position_embeddings=LENGTH + 6,
        tie_word_embeddings=False,
        hidden_act="relu",
        num_hidden_layers=1,
    ),
    "bert": BERT(),
    "bert untied, gelu_new": BERT(
        tie_word_embeddings=False, hidden_act="gelu_new", num_hidden_layers=1
    ),
    "bert 3 types, silu": BERT(
        type_vocab_size=3, hidden_act="silu", layer_norm_eps=1e-3, num_hidden_layers=1
    ),
    "electra": ELECTRA(embedding_size=16),
    "electra untied, tanh": ELECTRA(
        embedding_size=16, tie_word_embeddings=False, hidden_act="tanh", num_hidden_layers=1
    ),
    "electra as wide": ELECTRA(
        embedding_size=32, hidden_act="gelu_pytorch_tanh", num_hidden_layers=1
    ),
    "modernbert": MODERN(),
    "modernbert untied, silu, every 2": MODERN(
        tie_word_embeddings=False,
        hidden_activation="silu",
        global_attn_every_n_layers=2,
        local_attention=7,
        norm_eps=1e-3,
    ),
    "modernbert local, yarn": MODERN(
        num_hidden_layers=2,
        layer_types=["sliding_attention"] * 2,
        rope_parameters=dict(full_attention=YARN, sliding_attention={**YARN, "factor": 2.0}),
    ),
    "modernbert global": MODERN(num_hidden_layers=1, global_attn_every_n_layers=1),
}
# XLA without its optimizations: half the time of a test, and the same mathematics.
jit = partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    },
)
FAMILIES = ("roberta", "bert", "electra", "modernbert")
FLAGS = make_flags(FlaxMlmFlags, shards="set", learning_rate=1e-3, clip_norm=0.5, weight_decay=0.1)


def reference_of(kind):
    """Their model in evaluation mode, its weights far from their start: every term counts."""
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(KINDS[kind]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def ours_of(reference):
    """Our configuration and weights of their model."""
    found = reference.config.to_dict()
    found.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config = ModelConfig.from_json(found, where="test")
    tensors = {name: value.detach().numpy() for name, value in reference.named_parameters()}
    weights, _ = from_published(tensors, config, seed=0, where="test")
    return config, to_params(weights, config)


def published(params, config):
    """Weights or gradients by their names."""
    return to_published(to_weights(params, config), config)


def model_of(config, params, dtype=jnp.float32) -> Any:
    """The model, which takes numpy's arrays too."""
    return nnx.merge(graph_of(EncoderForMaskedLM, config, jnp.dtype(dtype)), params)


def logits_of(config, params, ids, segments, types=None):
    """Our logits at every position."""
    everywhere = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
    return model_of(config, params)(ids, segments, everywhere, None, types)


def loss_of(config, params, rows):
    """Mean over the masked tokens, by the trainer's own function."""
    plan = Plan(FLAGS, mlm_schema(), config, 1, Path("run"))
    sums = MlmObjective(plan).sums(params, rows, None)
    return sums["loss"] / sums["counted"]


def masked_rows():
    """Four rows of one segment each, two of them padded, one with empty slots; token types."""
    random = np.random.default_rng(0)
    ids = random.integers(6, VOCAB, (4, LENGTH))
    segments = np.ones_like(ids)
    segments[2:, 18:] = 0
    positions = np.sort(random.permuted(np.tile(np.arange(18), (4, 1)), axis=1)[:, :6], axis=1)
    weights = np.ones(positions.shape, np.float32)
    weights[0, 4:] = 0
    labels = random.integers(6, VOCAB, positions.shape)
    return MaskedRows(ids, segments, positions, labels, weights)  # type: ignore[arg-type]


def their_labels(rows):
    """A label a token, -100 where it does not count."""
    labels = np.full_like(rows.input_ids, -100)
    for row, slot in zip(*np.nonzero(rows.weights), strict=True):
        labels[row, rows.positions[row, slot]] = rows.labels[row, slot]
    return torch.from_numpy(labels)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_loss_gradients_and_a_step_equal_transformers(kind, capsys):
    reference = reference_of(kind)
    config, params = ours_of(reference)
    rows = masked_rows()
    ids, segments = torch.from_numpy(rows.input_ids), torch.from_numpy(rows.segment_ids)
    if config.family == "roberta":  # it finds padding by its id
        rows.input_ids[rows.segment_ids == 0] = KINDS[kind].pad_token_id
    types, more = None, {}
    if config.token_types:
        types = np.random.default_rng(1).integers(0, config.token_types, rows.input_ids.shape)
        more = {"token_type_ids": torch.from_numpy(types)}
    with torch.no_grad():
        their_logits = reference(ids, attention_mask=segments, **more).logits.numpy()
    theirs = reference(ids, attention_mask=segments, labels=their_labels(rows))
    theirs.loss.backward()
    parameters = {n: p for n, p in reference.named_parameters() if p.grad is not None}
    their_gradients = {n: p.grad.numpy().copy() for n, p in parameters.items()}
    torch.nn.utils.clip_grad_norm_(parameters.values(), FLAGS.optimization.clip_norm)
    decayed = [p for p in parameters.values() if p.ndim > 1]
    others = [p for p in parameters.values() if p.ndim == 1]
    torch.optim.AdamW(
        [dict(params=decayed, weight_decay=0.1), dict(params=others, weight_decay=0.0)],
        lr=1e-3,
        betas=(FLAGS.optimization.beta1, FLAGS.optimization.beta2),
        eps=FLAGS.optimization.epsilon,
    ).step()

    optimizer = optimizer_for(FLAGS.optimization, lambda step: 1e-3, config.modules)

    @jit
    def run(params):
        logits = logits_of(config, params, rows.input_ids, rows.segment_ids, types)
        loss, gradients = jax.value_and_grad(partial(loss_of, config))(params, rows)
        updates, _ = optimizer.update(gradients, optimizer.init(params), params)
        return logits, loss, gradients, optax.apply_updates(params, updates)

    logits, loss, gradients, after = run(params)
    difference = np.abs(np.asarray(logits) - their_logits)[rows.segment_ids > 0].max()
    loss_difference = abs(float(loss) - theirs.loss.item())
    ours, stepped = published(gradients, config), published(after, config)
    assert set(their_gradients) <= set(ours)
    worst = max(np.abs(ours[n] - g).max() for n, g in their_gradients.items())
    # Adam divides by the gradient's size: where that is next to nothing, its sign is rounding's.
    apart = max(
        np.abs(stepped[n] - parameters[n].detach().numpy())[np.abs(g) > 1e-5].max(initial=0)
        for n, g in their_gradients.items()
    )
    with capsys.disabled():
        print(
            f"\n{kind:32} logits {difference:.1e} of {np.abs(their_logits).max():.1f}, "
            f"loss {loss_difference:.1e}, gradients {worst:.1e}, after one step {apart:.1e}",
            end="",
        )
    assert difference < 2e-6 and loss_difference < 2e-6 and worst < 1e-6 and apart < 2e-6


@pytest.fixture(scope="module")
def packed():
    """Six packed rows with masks: columns as a dataset stores them."""
    columns = packed_rows(mlm_schema(max_length=LENGTH, vocab_size=VOCAB), 6, seed=0)
    assert (columns["segment_ids"].max(axis=1) >= 3).all()
    return columns


def unpacked(columns):
    """Every segment in a row of its own, with its masks; and where it came from."""
    places, alone = [], []
    for row, segments in enumerate(columns["segment_ids"]):
        for segment in range(1, segments.max() + 1):
            here = np.flatnonzero(segments == segment)
            places.append((row, here))
            picked = columns["masked_positions"][row] - here[0]
            used = columns["masked_weights"][row] * (0 <= picked) * (picked < len(here))
            filled = (0, LENGTH - len(here))
            alone.append(
                (
                    np.pad(columns["input_ids"][row, here], filled, constant_values=1),
                    np.pad(np.ones(len(here), int), filled),
                    np.where(used, picked, 0),
                    columns["masked_ids"][row],
                    used.astype(np.float32),
                )
            )
    return places, MaskedRows(*map(np.stack, zip(*alone, strict=True)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", FAMILIES)
def test_packed_equals_unpacked(kind, packed, capsys):
    """A segment's logits in a packed row and from transformers; gradients, those of it alone."""
    reference = reference_of(kind)
    config, params = ours_of(reference)
    places, alone = unpacked(packed)
    names = ("input_ids", "segment_ids", "masked_positions", "masked_ids", "masked_weights")
    together = MaskedRows(*(packed[name] for name in names))
    assert alone.weights.sum() == together.weights.sum() > 10

    @jit
    def run(params):
        logits = logits_of(config, params, together.input_ids, together.segment_ids)
        return logits, *(jax.grad(partial(loss_of, config))(params, r) for r in (together, alone))

    in_rows, gradients, gradients_alone = jax.device_get(run(params))
    with torch.no_grad():
        mask = torch.from_numpy(alone.segment_ids)
        theirs = reference(torch.from_numpy(alone.input_ids), attention_mask=mask).logits.numpy()
    published = max(
        np.abs(in_rows[row, here] - theirs[number, : len(here)]).max()
        for number, (row, here) in enumerate(places)
    )
    apart = jax.tree.map(lambda a, b: np.abs(a - b).max(), gradients, gradients_alone)
    worst = max(jax.tree.leaves(apart))
    with capsys.disabled():
        print(
            f"\n{kind:8} packed against alone: gradients {worst:.1e}; "
            f"against transformers: logits {published:.1e}",
            end="",
        )
    assert max(len(here) for _, here in places) > 8  # longer than ModernBERT's window
    assert published < 2e-6 and worst < 1e-6


@pytest.mark.parametrize("kind", FAMILIES)
def test_no_segment_sees_another(kind, packed):
    config, params = ours_of(reference_of(kind))
    run = jit(partial(logits_of, config))
    few = {name: column[:2] for name, column in packed.items()}
    report = verify_attention(
        lambda rows: run(params, rows["input_ids"], rows["segment_ids"]), few, causal=False
    )
    assert report.ok, report
    assert report.segments > 5 and report.largest()[EARLIER].by == 0


def test_positions_equal_those_of_the_contract(packed):
    segments = np.concatenate([packed["segment_ids"], np.zeros((1, LENGTH), int)])
    segments[0] = [1] * 3 + [2] * 2 + [0] * (LENGTH - 5)
    found = positions_from_segments(jnp.asarray(segments))
    np.testing.assert_array_equal(found, positions_on_host(segments))
    assert found[0, :7].tolist() == [0, 1, 2, 0, 1, 0, 0]


def test_every_activation_is_theirs():
    from transformers.activations import ACT2FN

    assert set(ACTIVATIONS.values()) == set(FORMULAS)
    x = np.linspace(-6, 6, 101, dtype=np.float32)
    for name, formula in ACTIVATIONS.items():
        ours = FORMULAS[formula]
        theirs = ACT2FN[name](torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(ours(jnp.asarray(x)), theirs, atol=2e-6, err_msg=name)


def test_bfloat16_stays_near(packed):
    config, params = ours_of(reference_of("electra"))
    ids, segments = packed["input_ids"], packed["segment_ids"]
    everywhere = np.tile(np.arange(LENGTH), (len(ids), 1))
    exact, logits = jit(
        lambda params: tuple(
            model_of(config, params, dtype)(ids, segments, everywhere)
            for dtype in (jnp.float32, jnp.bfloat16)
        )
    )(params)
    assert logits.dtype == jnp.float32
    difference = np.abs(np.asarray(logits) - exact)[segments > 0]
    assert difference.mean() < 0.02 * exact.std()
