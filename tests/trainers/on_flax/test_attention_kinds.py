"""Every kind of attention equals the formula in float64; chunks change no loss."""

import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.tools.python_process import run_python
from tests.tools.torch_models import torch
from textmill.schemas.errors import UsageError
from textmill.trainers.on_flax import flax_attention
from textmill.trainers.on_flax.flax_attention import (
    Machine,
    MaskRule,
    attend,
    blockwise_attention,
    by_cudnn,
    by_splash,
    key_blocks,
    packed_context,
)
from textmill.trainers.on_flax.layers import Table, head_logits
from textmill.trainers.on_flax.token_loss import sums_in_chunks

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    from transformers.masking_utils import (
        sliding_window_bidirectional_mask_function,
        sliding_window_causal_mask_function,
    )

BLOCK = 8  # tokens of a block, so that rows have several


def small_blocks(queries, keys, values, segments, rule):
    """`blockwise_attention` with blocks of BLOCK tokens."""
    return blockwise_attention(queries, keys, values, segments, rule._replace(block=BLOCK))


HERE: dict[str, Any] = {  # the kinds as they run on a CPU
    "blockwise": small_blocks,
    "cudnn": partial(by_cudnn, implementation="xla"),
    "splash": partial(by_splash, interpret=True),
}
KINDS = ("dense", *HERE)


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    """Kernels of other devices are interpreted."""
    monkeypatch.setattr(flax_attention, "KINDS", HERE)


def segments_of(rows, length, seed=0):
    """Rows of some segments, which end with padding, but for the last row."""
    segments = np.sort(np.random.default_rng(seed).integers(1, 5, (rows, length)), axis=1)
    segments[:-1, -3:] = 0
    return segments.astype(np.int32)


def allowed_of(segments, *, causal, window):
    """Which tokens attend to which, by transformers' own functions: bool [B, L, L]."""
    rows, length = segments.shape
    both = np.arange(length)
    distances = both[:, None] - both
    allowed = segments[:, :, None] == segments[:, None, :]
    if window:
        function = sliding_window_causal_mask_function if causal else BIDIRECTIONAL
        inside = function(window)(0, 0, torch.tensor(both[:, None]), torch.tensor(both[None]))
        return allowed & inside.numpy()
    return allowed & (distances >= 0) if causal else allowed


def BIDIRECTIONAL(window):  # noqa: N802
    """ModernBERT's configuration halves its window."""
    return sliding_window_bidirectional_mask_function(window // 2)


def exact(queries, keys, values, slopes, allowed, *, scale, softcap):
    """The formula in PyTorch's float64: the result and the gradients of its three inputs."""
    inputs = [
        torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (queries, keys, values)
    ]
    groups = queries.shape[2] // keys.shape[2]
    q, k, v = inputs[0], *(x.repeat_interleave(groups, dim=2) for x in inputs[1:])
    logits = torch.einsum("blnd,bmnd->bnlm", q * scale, k)
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    logits = logits.masked_fill(~torch.tensor(allowed)[:, None], -torch.inf)
    mixed = torch.einsum("bnlm,bmnd->blnd", logits.softmax(-1), v)
    (mixed * torch.tensor(slopes, dtype=torch.float64)).sum().backward()
    gradients: Any = [x.grad for x in inputs]
    return [mixed.detach().numpy(), *(x.numpy() for x in gradients)]


# (window, softcap, heads that are keys, tokens)
PLAIN, WINDOWED, CAPPED, SHORT = (0, 0.0, 2, 40), (7, 0.0, 2, 40), (0, 3.0, 4, 37), (1, 0.0, 1, 6)
QUICK_SHAPES = [
    *((kind, causal, *WINDOWED) for kind in KINDS for causal in (True, False)),
    *((kind, True, *CAPPED) for kind in KINDS if kind != "cudnn"),
    *(("blockwise", False, window, 0.0, 2, 40) for window in (16, 17)),
    ("splash", True, 60, 0.0, 4, 150),
]
SLOW_SHAPES = [
    *((kind, causal, *s) for kind in KINDS for causal in (True, False) for s in (PLAIN, SHORT)),
    *((kind, False, *CAPPED) for kind in KINDS if kind != "cudnn"),
    *(("blockwise", True, window, 0.0, 2, 40) for window in (16, 17)),
    ("splash", False, 60, 0.0, 4, 150),
]


@pytest.mark.parametrize(
    "kind, causal, window, softcap, groups, length",
    [*QUICK_SHAPES, *(pytest.param(*shape, marks=pytest.mark.slow) for shape in SLOW_SHAPES)],
)
def test_every_kind_is_the_formula_in_float64(kind, causal, window, softcap, groups, length):
    """Values and gradients, with heads that share keys; padding is not compared."""
    random, segments = np.random.default_rng(1), segments_of(2, length)
    shapes = [(2, length, heads, 8) for heads in (4, groups, groups, 4)]
    queries, keys, values, slopes = (random.normal(size=s).astype(np.float32) for s in shapes)
    counts = (segments > 0)[..., None, None]
    slopes = slopes * counts  # no loss reads padding
    how: Any = {"scale": 0.4, "softcap": softcap}
    allowed = allowed_of(segments, causal=causal, window=window)
    expected = exact(queries, keys, values, slopes, allowed, **how)

    def run(queries, keys, values):
        context = packed_context(jnp.asarray(segments), causal=causal, kind=kind)
        mixed = attend(queries, keys, values, context, window=window, **how)
        return (mixed * slopes).sum(), mixed

    find = jax.jit(jax.value_and_grad(run, (0, 1, 2), has_aux=True))
    (_, mixed), gradients = find(queries, keys, values)
    assert np.isfinite(np.asarray(mixed)).all()
    for ours, theirs in zip(
        (mixed * counts, *gradients), (expected[0] * counts, *expected[1:]), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=4e-6)


def test_blocks_of_other_documents_are_skipped():
    """Blocks of 2 tokens: [1 1 | 1 2 | 2 2 | 3 3 | 0 0]."""
    segments = jnp.asarray([[1, 1, 1, 2, 2, 2, 3, 3, 0, 0]])

    def ranges(rows=segments, behind=10, ahead=10):
        first, last = key_blocks(rows, MaskRule(behind, ahead, block=2))
        return list(zip(first.tolist(), last.tolist(), strict=True))

    assert ranges() == [(0, 2), (0, 3), (1, 3), (3, 4), (0, 0)]
    assert ranges(ahead=0) == [(0, 1), (0, 2), (1, 3), (3, 4), (0, 0)]
    one = jnp.ones((1, 10), jnp.int32)
    assert ranges(one, ahead=0) == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]
    assert ranges(one, behind=1, ahead=0) == [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5)]
    assert ranges(one, behind=2, ahead=2) == [(0, 2), (0, 3), (1, 4), (2, 5), (3, 5)]
    assert ranges(jnp.concatenate([segments, one]), ahead=0)[3] == (0, 4)  # all rows share them


def test_memory_of_blockwise_is_linear(monkeypatch):
    """Twice the tokens need twice the memory, forwards and backwards."""
    monkeypatch.setattr(flax_attention, "KINDS", {"blockwise": blockwise_attention})

    def temporaries(kind, length):
        def loss(queries, segments):
            context = packed_context(segments, causal=True, kind=kind)
            return attend(queries, queries, queries, context, scale=1.0).sum()

        shapes = jax.ShapeDtypeStruct((1, length, 2, 16), jnp.float32)
        ids = jax.ShapeDtypeStruct((1, length), jnp.int32)
        compiled: Any = jax.jit(jax.grad(loss)).lower(shapes, ids).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporaries("blockwise", 2048) < 2.2 * temporaries("blockwise", 1024)
    assert temporaries("dense", 2048) > 10 * temporaries("blockwise", 2048)


CPU = Machine("cpu", jnp.dtype(jnp.float32), dropout=False, head_size=64, length=1024)
GPU = CPU._replace(platform="cuda", dtype=jnp.dtype(jnp.bfloat16))
TPU = GPU._replace(platform="tpu")


@pytest.mark.parametrize(
    "machine, kind",
    [
        (CPU, "blockwise"),
        (CPU._replace(length=256), "dense"),
        (CPU._replace(dropout=True), "dense"),
        (GPU, "cudnn"),
        (GPU._replace(dtype=jnp.dtype(jnp.float32)), "blockwise"),
        (GPU._replace(head_size=256), "blockwise"),
        (GPU._replace(head_size=12, length=128), "dense"),
        (GPU._replace(length=1023), "blockwise"),
        (GPU._replace(softcap=True), "blockwise"),
        (GPU._replace(dropout=True), "dense"),
        (GPU._replace(platform="rocm"), "blockwise"),
        (TPU, "splash"),
        (TPU._replace(dropout=True), "dense"),
    ],
)
def test_auto_takes_what_the_machine_can(machine, kind):
    assert machine.choose("auto") == kind
    assert machine.choose(kind) == kind


@pytest.mark.parametrize(
    "machine, kind, message",
    [
        (CPU, "cudnn", "runs on NVIDIA's GPUs, and this is a cpu: give --attention=auto"),
        (CPU, "splash", "runs on TPUs, and this is a cpu: give --attention=auto"),
        (GPU._replace(dtype=jnp.dtype(jnp.float32)), "cudnn", "give --precision=bfloat16"),
        (GPU._replace(head_size=12), "cudnn", "this model's are 12 wide"),
        (GPU._replace(length=7), "cudnn", "an even length, not 7"),
        (GPU._replace(softcap=True), "cudnn", "has no soft caps on attention logits: give"),
        (CPU._replace(dropout=True), "blockwise", "give --attention=dense or --dropout=0"),
    ],
)
def test_what_the_machine_cannot_is_refused(machine, kind, message):
    with pytest.raises(UsageError) as raised:
        machine.choose(kind)
    assert message in str(raised.value) and f"--attention={kind}" in str(raised.value)


def abstract(heads, length=512):
    return jax.ShapeDtypeStruct((2, length, heads, 64), jnp.bfloat16)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "kind, platform, calls",
    [
        ("splash", "tpu", ["tpu_custom_call"]),
        ("cudnn", "cuda", ["__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaScaleBiasSoftmaxBackward"]),
    ],
)
def test_kernels_are_lowered_for_their_devices(kind, platform, calls, causal, monkeypatch):
    """A kernel with its gradient, without a device to run it."""
    from jax._src.cudnn import fused_attention_stablehlo  # asks the machine for its cuDNN

    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91000)
    monkeypatch.setattr(flax_attention, "KINDS", {"splash": by_splash, "cudnn": by_cudnn})

    def loss(queries, keys, values, segments):
        context = packed_context(segments, causal=causal, kind=kind)
        mixed = attend(queries, keys, values, context, scale=0.125, window=64)
        return mixed.astype(jnp.float32).sum()

    exported = jax.export.export(
        jax.jit(jax.grad(loss, (0, 1, 2))),
        platforms=[platform],
        disabled_checks=[jax.export.DisabledSafetyCheck.custom_call(name) for name in calls],
    )(abstract(8), abstract(2), abstract(2), jax.ShapeDtypeStruct((2, 512), jnp.int32))
    for name in calls:
        assert f"@{name}(" in exported.mlir_module()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("chunks", [1, 3, 99, None])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_chunks_of_the_loss_give_its_sums(chunks, sparse, share):
    """Against numpy's float64; the gradients against those of one chunk."""
    random = np.random.default_rng(3)
    x, table = (random.normal(size=s).astype(np.float32) for s in ((2, 11, 8), (30, 8)))
    labels, weights = random.integers(0, 30, (2, 11)), (random.random((2, 11)) < share).astype("f4")

    def run(x, table, chunks, sparse):
        logits_of = lambda x: jnp.einsum("bte,ve->btv", x, table)  # noqa: E731
        arrays = x, jnp.asarray(labels), jnp.asarray(weights)
        return sums_in_chunks(logits_of, *arrays, chunks, 30, sparse=sparse)

    logits = np.einsum("bte,ve->btv", x.astype(np.float64), table.astype(np.float64))
    chosen = np.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    losses = np.log(np.exp(logits).sum(-1)) - chosen
    expected = {
        "loss": (losses * weights).sum(),
        "correct": ((logits.argmax(-1) == labels) * weights).sum(),
        "counted": weights.sum(),
    }
    found = jax.jit(partial(run, chunks=chunks, sparse=sparse))(x, table)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6)
    slopes = [
        jax.jit(jax.grad(lambda x, t: run(x, t, *how)["loss"], (0, 1)))(x, table)  # noqa: B023
        for how in ((1, False), (chunks, sparse))
    ]
    for one, other in zip(*slopes, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-6)


def test_chunks_in_which_no_token_counts_are_not_computed():
    """Of 32 tokens a row, 3 and 0 count: one chunk of 2, and one for the third."""
    computed = []

    def logits_of(x):
        jax.debug.callback(lambda: computed.append(x.shape))
        return jnp.zeros((*x.shape[:2], 10))

    weights = np.zeros((2, 32), np.float32)
    weights[0, [4, 5, 31]] = 1
    arrays = jnp.zeros((2, 32, 1)), jnp.zeros((2, 32), int), jnp.asarray(weights)
    sums = jax.jit(lambda: sums_in_chunks(logits_of, *arrays, None, 10, sparse=True))()
    jax.effects_barrier()
    assert sums["counted"] == 3 and computed == [(2, 2, 1)] * 2


def test_chunks_are_as_few_as_memory_allows(monkeypatch):
    monkeypatch.setattr("textmill.trainers.on_flax.token_loss.LOGITS", 100)
    shapes = []

    def logits_of(x):
        shapes.append(x.shape)
        return jnp.zeros((*x.shape[:2], 10))

    for rows in (1, 2):
        whole = jnp.zeros((rows, 10))
        sums_in_chunks(logits_of, whole[..., None], whole.astype(int), whole, None, 10)
    assert shapes[0] == (1, 10, 1) and shapes[-1] == (2, 5, 1)


def test_a_vocabulary_rounded_up_changes_no_logits():
    """30 tokens as 128: the columns in between are not returned and have no gradient."""
    random = np.random.default_rng(4)
    x, table = (jnp.asarray(random.normal(size=s), jnp.float32) for s in ((2, 5, 8), (30, 8)))

    def run(x, table, multiple):
        logits = head_logits(x, table, multiple)
        return jax.nn.logsumexp(logits, axis=-1).sum(), logits

    find = jax.value_and_grad(run, (0, 1), has_aux=True)
    for one, other in zip(
        *map(jax.tree.leaves, (find(x, table, 1), find(x, table, 128))), strict=True
    ):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    assert head_logits(x, table, 128).shape == (2, 5, 30)
    lowered = jax.jit(partial(head_logits, multiple=128)).lower(x, table).as_text()
    assert "tensor<2x5x128xf32>" in lowered


def test_slopes_of_a_frequent_token_are_summed_in_float32():
    """bfloat16 stops at 256: 256 + 1 is 256."""
    table = Table(3, 4, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    ids = jnp.full(1000, 1)
    slope = nnx.grad(lambda table: table(ids).astype(jnp.float32).sum())(table)
    np.testing.assert_array_equal(slope.embedding[...], [[0] * 4, [1000] * 4, [0] * 4])


def test_a_head_in_bfloat16_multiplies_no_float32():
    """Also backwards, where float32 takes twice the time on a GPU."""
    x, table = jnp.ones((2, 5, 8), jnp.bfloat16), jnp.ones((30, 8))
    slopes = jax.grad(lambda x, table: head_logits(x, table).sum(), (0, 1))
    lines = jax.jit(slopes).lower(x, table).as_text().splitlines()
    products = [line.partition(" : ")[2] for line in lines if "dot_general" in line]
    assert len(products) == 2  # the logits themselves are not read
    assert all(line.count("xbf16>") == 2 for line in products), products


TWO_DEVICES = """
from functools import partial
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from textmill.trainers.on_flax import flax_attention as a
a.KINDS = {**a.KINDS, "splash": partial(a.by_splash, interpret=True)}
mesh = Mesh(np.array(jax.devices()), ("rows",))
assert mesh.size == 2
random = np.random.default_rng(0)
arrays = [random.normal(size=(4, 256, n, 16)).astype("f4") for n in (4, 2, 2)]
segments = np.sort(random.integers(1, 6, (4, 256)), axis=1)
def loss(kind, queries, keys, values, segments):
    context = a.packed_context(segments, causal=True, kind=kind)
    return (a.attend(queries, keys, values, context, scale=0.25) ** 2).sum()
one = jax.grad(partial(loss, "dense"), (0, 1, 2))(*arrays, segments)
for kind in ("blockwise", "splash"):
    placed = jax.device_put((*arrays, segments), NamedSharding(mesh, PartitionSpec("rows")))
    with jax.set_mesh(mesh):
        step = jax.jit(jax.grad(partial(loss, kind), (0, 1, 2))).lower(*placed).compile()
    found = step(*placed)
    assert "all-gather" not in step.as_text()
    assert max(abs(x - y).max() for x, y in zip(one, found)) < 1e-5, kind
"""


@pytest.mark.slow
def test_each_of_two_devices_computes_its_rows():
    """Attention moves no rows between them."""
    devices = "--xla_force_host_platform_device_count=2"
    found = run_python("-c", TWO_DEVICES, XLA_FLAGS=devices, JAX_PLATFORMS="cpu")
    assert found.returncode == 0, found.stderr
