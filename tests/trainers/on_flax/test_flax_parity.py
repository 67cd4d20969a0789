"""Every family and switch is PyTorch's model in float64; packed rows are rows of one segment."""

from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from tests.tools.clm_factory import clm_schema
from tests.tools.flax_weights import to_weights
from tests.tools.model_cases import (
    DECAY,
    EPSILON,
    MODELS,
    RATE,
    differences,
    named,
    read_config,
)
from tests.tools.shard_factory import mlm_schema, packed_rows
from tests.tools.torch_models import as_ours, compute, make_model, save_model, torch, transformers
from textmill.trainers.data.adapters import one_segment_per_row
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.flax_clm import FlaxClmFlags
from textmill.trainers.flax_mlm import FlaxMlmFlags
from textmill.trainers.metrics.attention import EARLIER, verify_attention
from textmill.trainers.models.families import ACTIVATIONS, FAMILIES
from textmill.trainers.models.hf_files import read_directory
from textmill.trainers.models.weights import from_published, keep_own_layer, to_published
from textmill.trainers.on_flax.flax_decoder import ClmObjective, DecoderForCausalLM
from textmill.trainers.on_flax.flax_encoder import EncoderForMaskedLM, MaskedRows, MlmObjective
from textmill.trainers.on_flax.layers import FORMULAS, graph_of, to_params
from textmill.trainers.on_flax.optimizers import optimizer_for
from textmill.trainers.run.plan import TrainingPlan

torch.set_num_threads(1)  # on a busy machine, several threads take longer
ROWS, LENGTH = 8, 15
NAMES = [name for name, (_, head) in MODELS.items() if head in ("CausalLM", "MaskedLM")]
QUICK = ["gpt2", "opt-350m", "qwen3", "gemma3", "roberta, masked", "modernbert, masked"]
PACKED = [
    *QUICK,
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in (
            *("llama yarn", "mistral", "olmo2", "gemma2"),
            *("bert, masked", "electra narrow, masked"),
        )
    ),
]
OWN_LAYERS = [
    *("gpt2", "opt", "llama", "qwen2", "qwen3", "gemma3", "bert, masked", "roberta, masked"),
    *("electra, masked", "modernbert, masked"),
]
# XLA without its optimizations: half the time of a test, and the same mathematics.
jit = partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    },
)


def both_of(name):
    """PyTorch's model, our configuration and weights."""
    model = make_model(name)
    return model, *as_ours(model, MODELS[name][1])


def padded_rows(pad):
    """One segment in each row, half of them padded; a label for each token, and which count."""
    random = np.random.default_rng(0)
    ids, labels = random.integers(6, 50, (2, ROWS, LENGTH))
    segments = np.ones_like(ids)
    segments[ROWS // 2 :, 12:] = 0  # theirs are NaN where a window holds nothing but padding
    ids[segments == 0] = pad  # RoBERTa finds padding by its id
    weights = (random.random(ids.shape) < 0.5) * segments
    weights[:, 0] = 0  # nothing is before the first
    return {"input_ids": ids, "segment_ids": segments, "labels": labels, "loss_weights": weights}


def model_of(config, params, dtype=jnp.float32) -> Any:
    """The model, which takes numpy's arrays too."""
    kind = DecoderForCausalLM if FAMILIES[config.family].eos_ids is not None else EncoderForMaskedLM
    return nnx.merge(graph_of(kind, config, jnp.dtype(dtype)), params)


def logits_of(config, params, ids, segments, types=None, dtype=jnp.float32):
    """At every position."""
    model = model_of(config, params, dtype)
    if FAMILIES[config.family].eos_ids is not None:
        return model(ids, segments)
    return model(ids, segments, jnp.tile(jnp.arange(ids.shape[1]), (len(ids), 1)), None, types)


@cache
def program_of(config) -> Any:
    """(params, rows) -> logits, loss, gradients and params after a step, as the trainer has them.

    One for each configuration: compiling is what these tests spend their time on.
    """
    is_decoder = FAMILIES[config.family].eos_ids is not None
    kind, schema = (FlaxClmFlags, clm_schema()) if is_decoder else (FlaxMlmFlags, mlm_schema())
    rates: Any = dict(learning_rate=RATE, weight_decay=DECAY, epsilon=EPSILON, clip_norm=0.0)
    flags = make_flags(kind, shards="set", **rates)
    plan = TrainingPlan(flags, schema, config, 1, Path("run"))
    objective: Any = ClmObjective(plan) if is_decoder else MlmObjective(plan)
    optimizer = optimizer_for(flags.optimization, lambda step: RATE, config.modules)

    def loss_of(params, rows):
        if not is_decoder:  # a slot for each token, masked or not
            places = jnp.tile(jnp.arange(LENGTH), (len(rows["input_ids"]), 1))
            ids, segments, labels, weights = (rows[name] for name in ROW)
            rows = MaskedRows(ids, segments, places, labels, weights.astype(jnp.float32))
        sums = objective.sums(params, rows, None)
        return sums["loss"] / sums["counted"]

    @jit
    def run(params, rows):
        loss, gradients = jax.value_and_grad(loss_of)(params, rows)
        updates, _ = optimizer.update(gradients, optimizer.init(params), params)
        logits = logits_of(config, params, rows["input_ids"], rows["segment_ids"])
        return logits, loss, gradients, optax.apply_updates(params, updates)

    return run


ROW = ("input_ids", "segment_ids", "labels", "loss_weights")


# Programs of the others are compiled for the tests of packing, too.
@pytest.mark.parametrize(
    "name",
    [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name not in QUICK)],
)
def test_logits_loss_gradients_and_a_step_equal_transformers(name):
    """`pytest -s` prints the largest differences."""
    model, config, weights = both_of(name)
    pad = model.config.pad_token_id
    rows = padded_rows(1 if pad is None else pad)
    ids, segments = rows["input_ids"], rows["segment_ids"]
    learned = ids if FAMILIES[config.family].eos_ids is not None else rows["labels"]
    labels = np.where(rows["loss_weights"] > 0, learned, -100)
    due = compute(model, {"input_ids": ids, "attention_mask": segments}, labels)
    params = to_params(weights, config)
    for key, value in to_weights(params, config).items():
        np.testing.assert_array_equal(value, weights[key], err_msg=key)
    logits, loss, *trees = program_of(config)(params, rows)
    gradients, after = (to_published(to_weights(tree, config), config) for tree in trees)
    found = named(logits, loss, gradients, after)
    for logits in (found, due):
        logits["logits"] = logits["logits"][segments > 0]
    largest = differences(name, found, due)
    assert all(value < 2e-6 for value in largest.values()), largest


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN_LAYERS)
def test_an_output_layer_of_the_file_s_own(name, tmp_path):
    """Logits are those of the model that transformers opens."""
    fields, head = MODELS[name]
    save_model(tmp_path, {**fields, "tie_word_embeddings": True}, head)
    found, _ = read_directory(str(tmp_path))
    doubles = read_config(found, head).doubles
    tensors, random = load_file(tmp_path / "model.safetensors"), np.random.default_rng(0)
    for double, other in doubles.items():
        noise = random.normal(0, 0.5, tensors[other].shape)
        tensors[double] = tensors[other] + noise.astype(np.float32)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    _, stored = read_directory(str(tmp_path))
    config, notes = keep_own_layer(stored, read_config(found, head), where="here")
    assert len(notes) == len(doubles)
    weights, _ = from_published(stored, config, seed=0, where="here")
    kind = getattr(transformers, f"AutoModelFor{head}")
    model = kind.from_pretrained(tmp_path, attn_implementation="eager").eval()
    ids = random.integers(6, 50, (ROWS, LENGTH))
    with torch.no_grad():
        due = model(torch.from_numpy(ids)).logits.numpy()
    logits = jit(partial(logits_of, config, to_params(weights, config)))(ids, np.ones_like(ids))
    difference = np.abs(logits - due).max() / np.abs(due).max()
    print(f"{name}: {difference:.1e} of the largest logit")
    assert difference < 2e-6


def test_token_types_are_those_of_transformers():
    model, config, weights = both_of("bert three types, silu, masked")
    rows = padded_rows(1)
    types = np.random.default_rng(1).integers(0, 3, rows["input_ids"].shape)
    ids, segments, others = (
        torch.from_numpy(part) for part in (rows["input_ids"], rows["segment_ids"], types)
    )
    with torch.no_grad():
        due = model(ids, attention_mask=segments, token_type_ids=others).logits.numpy()
    run = jit(partial(logits_of, config, to_params(weights, config)))
    found = np.asarray(run(rows["input_ids"], rows["segment_ids"], types))
    used = rows["segment_ids"] > 0
    np.testing.assert_allclose(found[used], due[used], rtol=0, atol=2e-6)


def packed() -> dict[str, np.ndarray]:
    """Rows of several segments, in the shape that is compiled."""
    columns = packed_rows(clm_schema(max_length=LENGTH), 3, seed=0)
    ids, segments = columns["input_ids"], columns["segment_ids"]
    weights = np.zeros_like(segments)
    weights[:, 1:] = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    labels = np.random.default_rng(0).integers(6, 50, ids.shape)
    return dict(zip(ROW, (ids, segments, labels, weights), strict=True))


def filled(rows):
    return {name: np.pad(c, [(0, ROWS - len(c)), (0, 0)]) for name, c in rows.items()}


@pytest.mark.parametrize("name", PACKED)
def test_packed_equals_unpacked(name):
    """Each segment, and the gradients of the whole, as if it were alone in a row."""
    _, config, weights = both_of(name)
    params, run = to_params(weights, config), program_of(config)
    report = verify_attention(
        lambda rows: run(params, {**filled(packed()), **rows})[0],
        filled(packed()),
        causal=FAMILIES[config.family].eos_ids is not None,
    )
    assert report.ok, report
    assert report.segments > 5 and report.largest()[EARLIER].by == 0
    (_, loss, gradients, _), (_, each_loss, each_gradients, _) = (
        run(params, filled(rows)) for rows in (packed(), one_segment_per_row(packed()))
    )
    apart = jax.tree.map(lambda a, b: np.abs(a - b).max(), gradients, each_gradients)
    worst = max(jax.tree.leaves(apart))
    print(f"\n{name}, packed and alone: gradients {worst:.1e}\n{report}", end="")
    assert worst < 2e-6 and float(loss) == pytest.approx(float(each_loss))


def test_every_activation_is_theirs():
    from transformers.activations import ACT2FN

    assert set(ACTIVATIONS.values()) == set(FORMULAS)
    x = np.linspace(-6, 6, 101, dtype=np.float32)
    for name, formula in ACTIVATIONS.items():
        ours = FORMULAS[formula]
        theirs = ACT2FN[name](torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(ours(jnp.asarray(x)), theirs, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(
    "name",
    [
        "qwen3",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("opt-350m", "electra narrow, masked")
        ),
    ],
)
def test_bfloat16_stays_near(name):
    _, config, weights = both_of(name)
    params, rows = to_params(weights, config), padded_rows(1)
    exact, near = (
        jax.jit(partial(logits_of, config, dtype=dtype))(
            params, rows["input_ids"], rows["segment_ids"]
        )
        for dtype in (jnp.float32, jnp.bfloat16)
    )
    assert near.dtype == jnp.float32
    difference = np.abs(np.asarray(near) - exact)[rows["segment_ids"] > 0]
    assert 0 < difference.mean() < 0.02 * exact.std()
