"""The compiled steps: accumulation, devices, states, optimizers, evaluation sums."""

import math
from pathlib import Path
from typing import Any

import jax
import jax.monitoring
import numpy as np
import optax
import pytest
from flax import nnx

from tests.tools.clm_factory import clm_rows, clm_schema
from tests.tools.python_process import run_python
from tests.tools.run_reading import change_flags
from tests.tools.shard_factory import mlm_schema, packed_rows
from tests.tools.snapshots import state_in, weights_in
from tests.tools.torch_models import PlainLoop, open_model
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.flax_clm import FlaxClmFlags
from textmill.trainers.flax_mlm import FlaxMlmFlags
from textmill.trainers.models.families import Module
from textmill.trainers.models.hf_files import write_directory
from textmill.trainers.models.plan_model import plan_model
from textmill.trainers.models.weights import init_weights, to_published
from textmill.trainers.on_flax.flax_decoder import ClmObjective
from textmill.trainers.on_flax.flax_encoder import MlmObjective
from textmill.trainers.on_flax.flax_program import FlaxProgram, dropout_key
from textmill.trainers.on_flax.optimizers import learning_rate, optimizer_for
from textmill.trainers.run.plan import TrainingPlan

pytestmark = pytest.mark.usefixtures("cache")
SCHEMA = mlm_schema(max_length=32)
SIZES: dict[str, Any] = dict(layers=1, hidden_size=32, heads=2, intermediate_size=64)
FLAGS = make_flags(
    FlaxMlmFlags, shards="set", steps=6, batch_size=8, learning_rate=1e-2, warmup_steps=2, **SIZES
)
LESS_MEMORY = {"remat": True, "loss_chunks": 3, "attention": "blockwise"}
DROPPING = change_flags(FLAGS, dropout=0.1, steps=4, learning_rate=1e-3)


def program_of(flags=FLAGS, schema=SCHEMA, devices=None, evaluates=False) -> FlaxProgram:
    """Compiled, before its first step."""
    plan = TrainingPlan(
        flags, schema, plan_model(flags, schema).config, flags.length.steps or 0, Path("run")
    )
    program = FlaxProgram(plan, MlmObjective(plan), devices)
    program.load(init_weights(plan.model, flags.compute.seed), None)
    program.compile(trains=True, evaluates=evaluates)
    return program


def host_batch(rows=8, *, step=0, schema=SCHEMA, up=1):
    columns = packed_rows(schema, rows, seed=step, step=up)
    batch = {f.name: columns[f.name].astype(f.dtype) for f in schema.features}
    index = np.arange(step * rows, (step + 1) * rows)
    return dict(batch, row_index=index, epoch=np.zeros(rows, np.int64))


def step_of(program, batch, step=0):
    """The measurements of one step."""
    (metrics,) = program.train(program.put(batch), step)()
    return metrics


def losses_of(program, steps=6, batches=host_batch):
    """Losses of the first steps, and the weights after them."""
    losses = [step_of(program, batches(step=step), step)["loss"] for step in range(steps)]
    return losses, weights_in(program)


def apart(one, other):
    """The largest difference of weights or states."""
    assert set(one) == set(other)
    return max(np.abs(one[name] - other[name]).max() for name in one)


@pytest.fixture(scope="module")
def made():
    """One program for many tests, and where it began."""
    program = program_of(evaluates=True)
    return program, weights_in(program), state_in(program)


@pytest.fixture
def program(made):
    made[0].load(*made[1:])
    return made[0]


def test_sums_of_an_evaluation(program):
    """The loss of a step is their mean: rows with more masks weigh more, filling rows nothing."""
    batch, parts = host_batch(), []
    whole = program.evaluate(program.put(batch))()
    for rows in (slice(0, 5), slice(5, 8)):
        part = {name: np.zeros_like(column) for name, column in batch.items()}
        for name in part:
            part[name][: len(batch[name][rows])] = batch[name][rows]
        parts.append(program.evaluate(program.put(part))())
    for name in ("loss", "correct", "counted"):
        assert parts[0][name] + parts[1][name] == pytest.approx(whole[name], rel=1e-6)
    metrics = step_of(program, batch)
    masked = batch["masked_weights"].sum()
    assert whole["counted"] == masked == metrics["counted"]
    assert metrics["loss"] == pytest.approx(whole["loss"] / masked, rel=1e-6)
    assert 0 <= whole["correct"] <= masked
    with pytest.raises(TypeError, match="compiled"):  # no second program for another shape
        program.train(program.put(host_batch(4)), 0)


def test_microbatches_give_the_step_of_the_whole_batch(program):
    """1 x 8 rows against 4 x 2, though microbatches hold different numbers of masked tokens."""
    counts = host_batch()["masked_weights"].sum(axis=1)
    assert len({int(counts[i::4].sum()) for i in range(4)}) > 1
    whole_losses, whole = losses_of(program)
    losses, weights = losses_of(program_of(change_flags(FLAGS, gradient_accumulation_steps=4)))
    assert losses == pytest.approx(whole_losses, rel=1e-5)
    # Adam divides by the gradient's size: a weight that hardly matters may move by rounding alone.
    assert apart(whole, weights) < 1e-4


@pytest.mark.slow
def test_remat_and_chunks_change_no_step():
    """Also with dropout, whose masks must be the same when they are computed again."""
    due, weights = losses_of(program_of(DROPPING), 4)
    losses, found = losses_of(program_of(change_flags(DROPPING, remat=True, loss_chunks=2)), 4)
    assert losses == pytest.approx(due, rel=1e-5) and apart(weights, found) < 1e-4


def test_buffers_are_donated_and_none_of_the_host_s(made, program):
    """Arrays given to `load`, and those that `weights` and `state` gave, stay as they are."""
    given = [{name: array.copy() for name, array in arrays.items()} for arrays in made[1:]]
    before = weights_in(program), state_in(program)
    table = program._params["embeddings"]["tokens"]["embedding"]
    losses_of(program, 3)
    assert table.is_deleted()
    assert apart(weights_in(program), before[0]) > 0.001
    for arrays in (made[1:], before):
        for one, other in zip(arrays, given, strict=True):
            assert apart(one, other) == 0


OTHERS = [
    pytest.param(optimizer, marks=pytest.mark.slow)
    for optimizer in ("adafactor", "sgd_momentum", "lion", "muon")
]


@pytest.mark.parametrize("optimizer", ["adamw", *OTHERS])
def test_weights_and_state_go_on_in_another_program_to_the_bit(optimizer):
    """With dropout, which is a function of the step."""
    flags = change_flags(DROPPING, optimizer=optimizer)
    program = program_of(flags)
    first, _ = losses_of(program, 2)
    weights, state = weights_in(program), state_in(program)
    assert state and all(type(array) is np.ndarray for array in state.values())
    again = program_of(flags)
    again.load(weights, state)
    of_another_step = step_of(again, host_batch(step=2), 3)["loss"]
    again.load(weights, state)
    assert step_of(again, host_batch(step=2), 2)["loss"] != of_another_step
    again.load(weights, state)
    for step in (2, 3):
        batch = host_batch(step=step)
        assert step_of(program, batch, step) == step_of(again, batch, step)
    assert apart(weights_in(program), weights_in(again)) == 0
    assert apart(state_in(program), state_in(again)) == 0


def test_a_state_of_another_optimizer_is_refused_by_name(made, program):
    _, weights, state = made
    of_lion = {name: value for name, value in state.items() if ".nu." not in name}
    with pytest.raises(DataError, match=r"--optimizer=adamw and this model: .*1.0.nu.* is missing"):
        program.load(weights, of_lion)


def test_a_batch_that_cannot_be_shared_is_refused():
    flags = change_flags(FLAGS, batch_size=6, gradient_accumulation_steps=2)
    with pytest.raises(UsageError, match="by 2 devices in 2 microbatches: give a multiple of 4"):
        program_of(flags, devices=jax.local_devices() * 2)


def test_dynamic_masks_train_and_evaluate():
    """On rows without masks; the same row of the same epoch gets the same masks again."""
    schema = mlm_schema(max_length=32, static_masking=False)
    flags = change_flags(FLAGS, masking="dynamic")
    batch = host_batch(schema=schema)
    program = program_of(flags, schema, evaluates=True)
    begin = weights_in(program), state_in(program)
    losses, _ = losses_of(program, 3, lambda step: batch)
    program.load(*begin)
    assert losses_of(program, 3, lambda step: batch)[0] == losses
    here = program.evaluate(program.put(batch))()
    there = program.evaluate(program.put(dict(batch, epoch=batch["epoch"] + 1)))()
    assert here["counted"] == there["counted"] > 0
    assert here["loss"] != there["loss"]


def test_no_dropout_key_is_a_key_of_anything_else():
    """The seed's key folded with a number keys samples, and in flax each parameter of a model."""
    raw = lambda key: tuple(jax.random.key_data(key).tolist())  # noqa: E731
    root, rngs = jax.random.key(3), nnx.Rngs(3)
    others = {raw(jax.random.fold_in(root, number)) for number in range(200)}
    others |= {raw(rngs.params()) for _ in range(200)}
    dropping = {raw(dropout_key(3, step)) for step in range(200)}
    assert len(dropping) == 200 and not dropping & others


# A matrix large enough to be factored, a small one, and a vector.
MODULES = [
    Module("large", ("large",), "matrix", (130,), 128),
    Module("small", ("small",), "matrix", (4,), 8),
    Module("vector", ("vector",), "vector", (130,)),
]


def five_steps(optimizer):
    """The weights after them."""
    random = np.random.default_rng(0)
    shapes = {"large.kernel": (128, 130), "small.kernel": (8, 4), "vector.bias": (130,)}
    params = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    state = optimizer.init(params)
    for _ in range(5):
        gradients = jax.tree.map(lambda value: random.normal(size=value.shape), params)
        updates, state = optimizer.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
    return {name.split(".")[0]: value for name, value in jax.device_get(params).items()}


def test_adafactor_is_optax_s():
    """To the bit without decay; with it, matrices alone lose the rate times the decay."""
    flags = change_flags(FLAGS, optimizer="adafactor", learning_rate=0.01, clip_norm=0.0)
    rate = learning_rate(flags.optimization, 6)

    def ours(decay):
        decayed = change_flags(flags, weight_decay=decay).optimization
        return five_steps(optimizer_for(decayed, rate, MODULES))

    theirs, without, decayed = five_steps(optax.adafactor(learning_rate=rate)), ours(0.0), ours(0.1)
    for name, value in theirs.items():
        assert value.tobytes() == without[name].tobytes(), name
    assert decayed["vector"].tobytes() == theirs["vector"].tobytes()
    whole = 1 - math.prod(1 - 0.1 * float(rate(step)) for step in range(5))
    lost = (theirs["small"] - decayed["small"]) / theirs["small"]
    assert np.median(lost) == pytest.approx(whole, rel=0.1)


@pytest.mark.parametrize("more", [{}, pytest.param(LESS_MEMORY, marks=pytest.mark.slow)], ids=str)
def test_twenty_steps_of_adamw_are_pytorch_s(tmp_path, capsys, more):
    """GPT-2 on packed rows: warm-up, decay, clipping, 20 steps of both; losses and weights."""
    schema = clm_schema(max_length=32)
    flags = make_flags(
        FlaxClmFlags, shards="set", steps=20, batch_size=8, learning_rate=1e-3, **SIZES, **more
    )
    plan = TrainingPlan(flags, schema, plan_model(flags, schema).config, 20, Path("run"))
    program = FlaxProgram(plan, ClmObjective(plan))
    begin = init_weights(plan.model, 0)
    program.load(begin, None)
    program.compile(trains=True, evaluates=False)
    settings = plan.model.to_json(schema.special_ids)
    write_directory(str(tmp_path / "first"), settings, to_published(begin, plan.model))
    theirs = PlainLoop(open_model(str(tmp_path / "first")), steps=20, learning_rate=1e-3)
    worst = 0.0
    for step in range(20):
        columns = clm_rows(schema, 8, seed=step)
        batch = {f.name: columns[f.name].astype(f.dtype) for f in schema.features}
        batch |= dict(row_index=np.arange(8), epoch=np.zeros(8, np.int64))
        worst = max(worst, abs(step_of(program, batch, step)["loss"] - theirs.step(batch)))
    named = {n: p.detach().numpy() for n, p in theirs.model.named_parameters()}
    difference = apart(to_published(weights_in(program), plan.model), named)
    with capsys.disabled():
        print(f"\n20 steps beside PyTorch: losses {worst:.1e}, weights {difference:.1e}", end="")
    assert worst < 3e-6 and difference < 3e-6


DEVICES_CODE = """
import sys, jax, numpy as np

from tests.tools.run_reading import change_flags
from tests.trainers.on_flax.test_flax_step import FLAGS, apart, host_batch, losses_of, program_of
count = int(sys.argv[1])
assert len(jax.local_devices()) == count
flags = change_flags(FLAGS, batch_size=16, gradient_accumulation_steps=2, masking="dynamic")
batches = lambda step: host_batch(16, step=step)
one, weights = losses_of(program_of(flags, devices=jax.local_devices()[:1]), 4, batches)
several, shared = losses_of(program_of(flags), 4, batches)
worst = max(abs(a - b) / a for a, b in zip(one, several))
cut = program_of(change_flags(flags, fsdp=True, hidden_size=128, intermediate_size=256))
whole = program_of(change_flags(flags, hidden_size=128, intermediate_size=256))
sizes = [p._train.memory_analysis().argument_size_in_bytes for p in (cut, whole)]
assert sizes[0] < 2 * sizes[1] / count, sizes
(cut, cut_weights), (whole, whole_weights) = (losses_of(p, 4, batches) for p in (cut, whole))
assert max(abs(a - b) / a for a, b in zip(cut, whole)) < 1e-6, (cut, whole)
assert apart(cut_weights, whole_weights) < 1e-5, apart(cut_weights, whole_weights)
print(f"{count} devices: losses {worst:.1e}, weights {apart(weights, shared):.1e}")
assert worst < 1e-6, (one, several)
assert apart(weights, shared) < 1e-3
"""


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 8])
def test_several_devices_give_the_losses_of_one(count):
    devices = f"--xla_force_host_platform_device_count={count}"
    found = run_python("-c", DEVICES_CODE, str(count), XLA_FLAGS=devices, JAX_PLATFORMS="cpu")
    print(found.stdout)
    assert found.returncode == 0, found.stderr
