"""The encoder equals PyTorch transformers' RobertaForMaskedLM, and packing changes nothing."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from shard_factory import mlm_schema, packed_rows

from schemas.features import positions_from_segments as positions_on_host
from trainers.on_flax.config import ModelConfig
from trainers.on_flax.model import graph_of, init_params, positions_from_segments
from trainers.on_flax.weights import from_hugging_face, to_hugging_face

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    from transformers import RobertaConfig, RobertaForMaskedLM

CONFIG = ModelConfig(
    family="roberta",
    vocab_size=300,
    max_positions=40,
    position_offset=2,
    layers=3,
    hidden_size=64,
    heads=4,
    intermediate_size=128,
    embedding_size=64,
)
TIED = {"lm_head.decoder.weight", "lm_head.decoder.bias"}


@pytest.fixture(scope="module")
def reference():
    """RobertaForMaskedLM with weights far from their start, so that every term counts."""
    torch.manual_seed(0)
    model = RobertaForMaskedLM(
        RobertaConfig(
            vocab_size=CONFIG.vocab_size,
            hidden_size=CONFIG.hidden_size,
            num_hidden_layers=CONFIG.layers,
            num_attention_heads=CONFIG.heads,
            intermediate_size=CONFIG.intermediate_size,
            max_position_embeddings=CONFIG.position_rows,
            type_vocab_size=1,
            layer_norm_eps=CONFIG.layer_norm_epsilon,
            pad_token_id=1,
        )
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.fixture(scope="module")
def weights(reference):
    """Its state dict as numpy."""
    return {name: value.detach().numpy() for name, value in reference.state_dict().items()}


@pytest.fixture(scope="module")
def packed():
    """Six packed rows of 40 tokens: columns as a shard set stores them."""
    schema = mlm_schema(max_length=40, vocab_size=CONFIG.vocab_size)
    columns = packed_rows(schema, 6, seed=0)
    assert (columns["segment_ids"].max(axis=1) >= 4).all()
    return columns


def logits_of(params, ids, segments):
    """Our logits at every position."""
    graph = graph_of(CONFIG, jnp.dtype(jnp.float32))
    everywhere = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
    rows = map(jnp.asarray, (ids, segments, everywhere))
    return np.asarray(jax.jit(lambda p, *rows: nnx.merge(graph, p)(*rows))(params, *rows))


def test_weights_come_and_go(weights, reference):
    params = from_hugging_face(weights, CONFIG)
    shapes = jax.tree.map(jnp.shape, init_params(CONFIG, jax.random.key(0)))
    assert jax.tree.map(jnp.shape, params) == shapes
    back = to_hugging_face(params, CONFIG)
    assert set(weights) - set(back) == TIED
    for name, value in back.items():
        np.testing.assert_array_equal(value, weights[name])
    fresh = RobertaForMaskedLM(reference.config)
    missing = fresh.load_state_dict({k: torch.from_numpy(v) for k, v in back.items()}, strict=False)
    assert set(missing.missing_keys) <= TIED and not missing.unexpected_keys


def test_weights_of_another_shape_are_refused(weights):
    short = {**weights, "roberta.embeddings.position_embeddings.weight": np.zeros((9, 64))}
    with pytest.raises(ValueError, match=r"positions.*\(9, 64\), the model \(42, 64\)"):
        from_hugging_face(short, CONFIG)


def test_logits_loss_and_gradients_equal_transformers(reference, weights, record_property):
    random = np.random.default_rng(0)
    ids = random.integers(5, CONFIG.vocab_size, (4, 40))
    segments = np.ones_like(ids)
    segments[2:, 30:] = 0
    ids[segments == 0] = 1
    positions = np.sort(random.permuted(np.tile(np.arange(30), (4, 1)), axis=1)[:, :6], axis=1)
    used = np.ones_like(positions)
    used[0, 4:] = 0  # empty slots
    labels = random.integers(5, CONFIG.vocab_size, positions.shape)
    their_labels = np.full_like(ids, -100)
    for row, slot in zip(*np.nonzero(used), strict=True):
        their_labels[row, positions[row, slot]] = labels[row, slot]

    theirs = reference(
        torch.from_numpy(ids),
        attention_mask=torch.from_numpy(segments),
        labels=torch.from_numpy(their_labels),
    )
    reference.zero_grad()
    theirs.loss.backward()

    graph = graph_of(CONFIG, jnp.dtype(jnp.float32))
    rows = list(map(jnp.asarray, (ids, segments, positions)))

    def loss_of(params):
        logits = nnx.merge(graph, params)(*rows)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return (losses * used).sum() / used.sum()

    params = from_hugging_face(weights, CONFIG)
    loss, gradients = jax.jit(jax.value_and_grad(loss_of))(params)
    ours = logits_of(params, ids, segments)
    difference = np.abs(ours - theirs.logits.detach().numpy())[segments > 0].max()
    loss_difference = abs(float(loss) - theirs.loss.item())
    their_gradients = {n: p.grad.numpy() for n, p in reference.named_parameters()}
    our_gradients = to_hugging_face(gradients, CONFIG)
    worst = max(np.abs(our_gradients[n] - their_gradients[n]).max() for n in our_gradients)
    largest = max(np.abs(value).max() for value in their_gradients.values())
    record_property("largest difference of logits", difference)
    print(f"\nlogits {difference:.1e} of {np.abs(ours).max():.1f}, loss {loss_difference:.1e}, ")
    print(f"gradients {worst:.1e} of {largest:.2f}")
    assert set(our_gradients) == set(their_gradients)
    assert difference < 5e-5 and loss_difference < 1e-5 and worst < 5e-5


def test_packed_logits_equal_unpacked(weights, reference, packed):
    """A segment's logits inside a packed row, alone in a row of ours, and from transformers."""
    params = from_hugging_face(weights, CONFIG)
    ids, segments = packed["input_ids"], packed["segment_ids"]
    in_rows = logits_of(params, ids, segments)
    alone_ids, alone_segments, places = [], [], []
    for row, row_segments in enumerate(segments):
        for segment in range(1, row_segments.max() + 1):
            here = np.flatnonzero(row_segments == segment)
            alone_ids.append(np.pad(ids[row, here], (0, 40 - len(here)), constant_values=1))
            alone_segments.append(np.pad(np.ones(len(here), int), (0, 40 - len(here))))
            places.append((row, here))
    alone = logits_of(params, np.stack(alone_ids), np.stack(alone_segments))
    with torch.no_grad():
        mask = torch.from_numpy(np.stack(alone_segments))
        theirs = reference(torch.from_numpy(np.stack(alone_ids)), attention_mask=mask).logits
    ours, published = 0.0, 0.0
    for number, (row, here) in enumerate(places):
        packed_logits = in_rows[row, here]
        ours = max(ours, np.abs(packed_logits - alone[number, : len(here)]).max())
        there = theirs.numpy()[number, : len(here)]
        published = max(published, np.abs(packed_logits - there).max())
    print(f"\npacked against alone {ours:.1e}, against transformers {published:.1e}")
    assert len(places) > 20
    assert ours < 1e-4 and published < 1e-4


def test_no_segment_sees_another(weights, packed):
    """Replacing all other segments of a row changes no bit of a segment's logits."""
    params = from_hugging_face(weights, CONFIG)
    ids, segments = packed["input_ids"][:1], packed["segment_ids"][:1]
    other = np.where(segments == 2, ids, (ids + 7) % CONFIG.vocab_size)
    here = segments[0] == 2
    np.testing.assert_array_equal(
        logits_of(params, ids, segments)[0, here], logits_of(params, other, segments)[0, here]
    )


def test_positions_equal_those_of_the_contract(packed):
    segments = np.concatenate([packed["segment_ids"], np.zeros((1, 40), int)])
    segments[0] = [1] * 3 + [2] * 2 + [0] * 35
    found = positions_from_segments(jnp.asarray(segments))
    np.testing.assert_array_equal(found, positions_on_host(segments))
    assert found[0, :7].tolist() == [0, 1, 2, 0, 1, 0, 0]


def test_bfloat16_stays_near(weights, packed):
    params = from_hugging_face(weights, CONFIG)
    ids, segments = packed["input_ids"], packed["segment_ids"]
    graph = graph_of(CONFIG, jnp.dtype(jnp.bfloat16))
    everywhere = np.tile(np.arange(40), (len(ids), 1))
    rows = list(map(jnp.asarray, (ids, segments, everywhere)))
    logits = jax.jit(lambda p: nnx.merge(graph, p)(*rows))(params)
    assert logits.dtype == jnp.float32
    exact = logits_of(params, ids, segments)
    difference = np.abs(np.asarray(logits) - exact)[segments > 0]
    assert difference.mean() < 0.02 * exact.std()
