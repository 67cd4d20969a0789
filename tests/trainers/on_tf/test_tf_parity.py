"""BERT, RoBERTa and ELECTRA with a classifier, and GPT-2: equal to PyTorch's in float64.

`pytest -s -k theirs tests/trainers/on_tf/test_tf_parity.py` prints the largest differences.
"""

import numpy as np
import pytest

from tests.tools.class_factory import class_rows, class_schema
from tests.tools.clm_factory import clm_schema
from tests.tools.model_cases import (
    CLASSES,
    DECAY,
    EPSILON,
    MODELS,
    RATE,
    compute_apart,
    differences,
    named,
    read_config,
)
from textmill.schemas.format.features import positions_from_segments
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.metrics.attention import AHEAD, PADDING, verify_attention
from textmill.trainers.models.hf_files import read_directory
from textmill.trainers.models.weights import from_layout, from_published, to_published
from textmill.trainers.on_tf.backend import keras, tf
from textmill.trainers.on_tf.tf_decoder import QaObjective, answer_prompts
from textmill.trainers.on_tf.tf_encoder import INPUTS, ClassificationObjective
from textmill.trainers.on_tf.tf_layers import (
    KERAS,
    Attended,
    attend,
    fill,
    float32_product,
    name_variables,
    read,
)
from textmill.trainers.on_tf.tf_program import make_optimizer
from textmill.trainers.tf_classifier import TfClassifierFlags

CLASSIFIERS = [name for name in MODELS if name.endswith(", classes")]
DECODERS = [name for name in MODELS if name.startswith("gpt2")]
PACKED, PREFIX = "gpt2, packed", "gpt2, packed prefixes"
CASES = {name: MODELS[name] for name in CLASSIFIERS + DECODERS}
CASES[PACKED] = CASES[PREFIX] = MODELS["gpt2 by layer, gelu"]
EOS, NEW = 2, 4


def class_batch(name):
    """Pairs of some length, with padding behind them."""
    fields, _ = CASES[name]
    rows = class_rows(class_schema(classes=CLASSES, pairs=True, max_length=14), 6, seed=3)
    ids, segments, types = (rows[feature] for feature in INPUTS)
    ids = np.where(segments > 0, ids, fields["pad_token_id"])  # RoBERTa finds padding by its id
    types = np.minimum(types, fields.get("type_vocab_size", 2) - 1)
    return {**dict(zip(INPUTS, (ids, segments, types), strict=True)), "label": rows["label"]}


def hand_made_mask(segments, prefix):
    """Which token attends to which, one pair after another."""
    rows, length = segments.shape
    allowed = np.zeros((rows, length, length), bool)
    for row in range(rows):
        for query in range(length):
            for key in range(length):
                same = segments[row, query] == segments[row, key]
                allowed[row, query, key] = same and (key <= query or bool(prefix[row, key]))
    return allowed


def text_batch(name) -> dict[str, np.ndarray]:
    """Three rows of 18 tokens: one segment each, or several of which a prefix sees itself whole."""
    random = np.random.default_rng(0)
    ids = random.integers(5, 50, (3, 18))
    segments, prefix = np.ones_like(ids), np.zeros_like(ids)
    if name in (PACKED, PREFIX):
        segments = np.array([[1] * 7 + [2] * 11, [1] * 5 + [2] * 6 + [3] * 5 + [0] * 2, [1] * 18])
    if name == PREFIX:
        prefix = ((positions_from_segments(segments) < 4) & (segments > 0)).astype(int)
    starts = np.diff(segments, axis=1, prepend=-1) != 0
    weights = (random.random(ids.shape) < 0.6) & (segments > 0) & ~starts & (prefix == 0)
    names = ("input_ids", "segment_ids", "loss_weights", "prefix_mask")
    return dict(zip(names, (ids, segments, weights.astype(int), prefix), strict=True))


PROMPTS, LENGTHS = np.random.default_rng(1).integers(5, 50, (4, 16)), np.array([3, 9, 16, 1])


def rows_of(name):
    """The arguments of PyTorch's model."""
    if name in CLASSIFIERS:
        batch = class_batch(name)
        arguments = {"attention_mask": (batch["segment_ids"] > 0).astype(np.int64)}
        arguments.update(input_ids=batch["input_ids"], token_type_ids=batch["token_type_ids"])
        return {**arguments, "labels": batch["label"]}
    batch = text_batch(name)
    ids, segments = batch["input_ids"], batch["segment_ids"]
    allowed = hand_made_mask(segments, batch["prefix_mask"])[:, None]
    return {
        "input_ids": ids,
        "position_ids": positions_from_segments(segments).astype(np.int64),
        "attention_mask": np.where(allowed, 0.0, np.finfo(np.float32).min),
        "labels": np.where(batch["loss_weights"] > 0, ids, -100),
        "prompts": PROMPTS,
        "lengths": LENGTHS,
        "new_tokens": np.array(NEW),
        "is_prefix": np.array(name == PREFIX),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Gets PyTorch's models."""
    return tmp_path_factory.mktemp("theirs")


@pytest.fixture(scope="module")
def due(folder):
    """PyTorch's results of each case."""
    return compute_apart(folder, CASES, {name: rows_of(name) for name in CASES})


def ours_of(name, folder):
    """Our objective with the weights of a directory, which it gives back to the bit."""
    found, stored = read_directory(str(folder / name))
    config = read_config(found, CASES[name][1])
    if name in CLASSIFIERS:
        objective = ClassificationObjective(config, [1.0] * len(CLASSES))
    else:
        objective = QaObjective(config, clm_schema(), answers=False)
    weights, notes = from_published(stored, config, seed=0, where="here")
    assert not notes
    fill(objective.model, weights)
    for key, value in read(objective.model).items():
        np.testing.assert_array_equal(value, weights[key], err_msg=key)
    return objective


def tensors_of(name):
    batch = class_batch(name) if name in CLASSIFIERS else text_batch(name)
    if name != PREFIX:
        batch.pop("prefix_mask", None)
    return {key: tf.constant(value.astype(np.int32)) for key, value in batch.items()}


def compute(objective, batch):
    """Our logits, loss, gradients, and weights after a step."""
    model, config = objective.model, objective.model.config
    logits, places = objective.logits(batch), name_variables(objective.model)
    with tf.GradientTape() as tape:
        sums = objective.sums(batch, None)
        loss = sums.loss / sums.counted
    found = tape.gradient(loss, [variable.value for variable in places.values()])
    gradients = [tf.convert_to_tensor(gradient) for gradient in found]
    arrays = dict(zip(places, (gradient.numpy() for gradient in gradients), strict=True))
    # Keras adds epsilon to the root before it corrects the bias of the second moment.
    rates = {"learning_rate": RATE, "weight_decay": DECAY, "epsilon": EPSILON * 0.001**0.5}
    flags = make_flags(TfClassifierFlags, shards="x", warmup_steps=0, **rates)
    optimizer = make_optimizer(flags.optimization, list(places.values()))
    optimizer.apply(gradients, list(places.values()))
    by_name = to_published(from_layout(arrays, config, KERAS), config)
    return named(logits, loss, by_name, to_published(read(model), config))


@pytest.mark.parametrize("name", CASES)
def test_logits_loss_gradients_and_a_step_are_theirs(name, due, folder):
    found = compute(ours_of(name, folder), tensors_of(name))
    theirs = {key: value for key, value in due[name].items() if key != "answers"}
    if name not in CLASSIFIERS:
        used = text_batch(name)["segment_ids"] > 0
        found["logits"], theirs["logits"] = found["logits"][used], theirs["logits"][used]
    largest = differences(name, found, theirs)
    assert all(value < 2e-6 for value in largest.values()), largest


@pytest.mark.parametrize("name", [*DECODERS, PREFIX])
def test_answers_are_theirs(name, due, folder):
    """Token by token, whatever stands after a prompt."""
    model, expected = ours_of(name, folder).model, due[name]["answers"]

    @tf.function
    def answer(prompts, lengths):
        return answer_prompts(
            model, prompts, lengths, new_tokens=NEW, eos=EOS, prefix=name == PREFIX
        )

    lengths = tf.constant(LENGTHS, tf.int32)
    other = np.where(np.arange(16) < LENGTHS[:, None], PROMPTS, 49)
    for prompts in (PROMPTS, other):
        found = answer(tf.constant(prompts, tf.int32), lengths)
        np.testing.assert_array_equal(found["answer_ids"], expected)
    ends = [[*row, EOS].index(EOS) for row in expected.tolist()]
    assert found["answer_lengths"].numpy().tolist() == ends


@pytest.mark.parametrize("name", [PACKED, PREFIX])
def test_no_segment_sees_another(name, due, folder):
    objective, rows = ours_of(name, folder), text_batch(name)
    if name == PACKED:
        del rows["prefix_mask"]

    def logits_of(batch):
        return objective.logits({key: tf.constant(batch[key].astype(np.int32)) for key in rows})

    report = verify_attention(logits_of, rows, causal=True)
    assert report.ok and AHEAD in report.largest(), report


@pytest.mark.parametrize("name", ["bert, classes", "roberta, classes", "electra narrow, classes"])
def test_padding_changes_nothing(name, due, folder):
    """A row's logits are those of its text alone, whatever stands in the padding."""
    model, rows = ours_of(name, folder).model, class_batch(name)
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


@pytest.fixture
def bfloat16():
    """Mixed precision: weights, softmax, norms and logits stay float32."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("name", ["electra narrow, classes", "gpt2", "gpt2 untied, wide, relu"])
def test_bfloat16_keeps_close(name, due, folder, bfloat16):
    objective = ours_of(name, folder)
    assert {variable.dtype for variable in objective.model.variables} == {"float32"}
    logits = objective.logits(tensors_of(name))
    assert logits.dtype == tf.float32
    largest = np.abs(due[name]["logits"]).max()
    assert 0 < np.abs(logits - due[name]["logits"]).max() / largest < 0.1


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


@pytest.mark.parametrize("name", ["bert, classes", "roberta, classes"])
def test_logits_of_classes_are_no_rounded_ones(name, due, folder, bfloat16):
    """Else rows tie, and an AUC tells less than the model does."""
    model = ours_of(name, folder).model
    weights, inputs = read(model), [tensors_of(name)[feature] for feature in INPUTS]
    states = model.encode(*inputs)
    assert states.dtype == tf.bfloat16
    x = tf.cast(states[:, 0], tf.float32).numpy().astype(np.float64)
    for part in ("dense", "out"):
        x = x @ weights[f"head.{part}.weight"].T.astype(np.float64) + weights[f"head.{part}.bias"]
        x = np.tanh(x) if part == "dense" else x
    np.testing.assert_allclose(model(*inputs), x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "gpt2 untied, wide, relu"])
def test_logits_of_tokens_are_no_rounded_ones(name, due, folder, bfloat16):
    """A tied head and one of its own: what they take is rounded, what they give is not."""
    objective, batch = ours_of(name, folder), tensors_of(name)
    model, weights = objective.model, read(objective.model)
    rows, length = text_batch(name)["input_ids"].shape
    places = tf.tile(tf.range(length)[None], (rows, 1))
    causal = tf.constant(np.tril(np.ones((rows, length, length), bool)))
    x, _ = model.hidden(batch["input_ids"], places, causal)
    assert x.dtype == tf.bfloat16
    table = weights.get("head.weight", weights["embeddings.tokens.weight"])
    table = tf.cast(table, tf.bfloat16).numpy().astype(np.float64)
    expected = x.numpy().astype(np.float64) @ table.T
    np.testing.assert_allclose(objective.logits(batch), expected, rtol=1e-5, atol=1e-4)
