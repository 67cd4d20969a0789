"""The compiled steps: learning, accumulation, devices, evaluation sums, no second compilation."""

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from shard_factory import mlm_schema, packed_rows

from schemas.errors import UsageError
from trainers.on_flax.config import TrainConfig, plan_run
from trainers.on_flax.mlm_task import MlmTask
from trainers.on_flax.optimizer import learning_rate
from trainers.on_flax.programs import compile_programs

ROOT = Path(__file__).parent.parent
SCHEMA = mlm_schema(max_length=32)
CONFIG = TrainConfig(
    shards="set",
    layers=1,
    hidden_size=32,
    heads=2,
    intermediate_size=64,
    steps=6,
    batch_size=8,
    learning_rate=1e-2,
    warmup_steps=2,
)


def programs_of(config=CONFIG, schema=SCHEMA, devices=None):
    plan = plan_run(config, schema, train_rows=100)
    return compile_programs(plan, MlmTask(plan), devices)


def host_batch(rows=8, *, step=0, schema=SCHEMA, up=1):
    columns = packed_rows(schema, rows, seed=step, step=up)
    batch = {f.name: columns[f.name].astype(f.dtype) for f in schema.features}
    index = np.arange(step * rows, (step + 1) * rows)
    return dict(batch, row_index=index, epoch=np.zeros(rows, np.int64))


def losses_of(programs, steps=6, batches=host_batch):
    """Losses of the first steps, and the weights after them."""
    state, losses = programs.first(), []
    for step in range(steps):
        state, metrics = programs.train(state, programs.place(batches(step=step)))
        losses.append(float(metrics.loss))
    return losses, jax.tree.map(np.asarray, state["params"])


@pytest.fixture(scope="module")
def programs():
    return programs_of()


def test_learns():
    """A segment repeats one token, so a masked one is known from any neighbour."""
    config = replace(CONFIG, steps=200, warmup_steps=20, batch_size=32)
    losses, _ = losses_of(programs_of(config), 200, lambda step: host_batch(32, step=step, up=0))
    assert losses[0] == pytest.approx(math.log(50), abs=0.2)
    assert np.mean(losses[-10:]) < 0.3 * losses[0]


def test_the_loss_is_the_mean_of_all_masked_tokens(programs):
    """By hand from the evaluation's sums: rows with more masks weigh more."""
    batch = programs.place(host_batch())
    state = programs.first()
    sums = programs.evaluate(state["params"], batch)
    _, metrics = programs.train(state, batch)
    masked = host_batch()["masked_weights"].sum()
    assert float(sums.counted) == masked == float(metrics.counted)
    assert float(metrics.loss) == pytest.approx(float(sums.loss) / masked, rel=1e-6)
    assert float(metrics.tokens) == (host_batch()["segment_ids"] > 0).sum()
    assert 0 <= float(sums.correct) <= masked


def test_filling_rows_count_nothing(programs):
    """A batch of 5 rows and 3 filling ones sums up to what its 5 rows do."""
    params = programs.first()["params"]
    batch = host_batch()
    parts = []
    for rows in (slice(0, 5), slice(5, 8)):
        part = {name: np.zeros_like(column) for name, column in batch.items()}
        for name in part:
            part[name][: len(batch[name][rows])] = batch[name][rows]
        parts.append(programs.evaluate(params, programs.place(part)))
    whole = programs.evaluate(params, programs.place(batch))
    for index in range(3):
        total = float(parts[0][index]) + float(parts[1][index])
        assert total == pytest.approx(float(whole[index]), rel=1e-6)


def test_microbatches_give_the_step_of_the_whole_batch(programs):
    """1 x 8 rows against 4 x 2, though microbatches hold different numbers of masked tokens."""
    counts = host_batch()["masked_weights"].sum(axis=1)
    assert len({int(counts[i::4].sum()) for i in range(4)}) > 1
    whole_losses, whole = losses_of(programs)
    losses, params = losses_of(programs_of(replace(CONFIG, accumulation=4)))
    assert losses == pytest.approx(whole_losses, rel=1e-5)
    # Adam divides by the gradient's size: a weight that hardly matters may move by rounding alone.
    apart = jax.tree.map(lambda a, b: np.abs(a - b).max(), whole, params)
    assert max(jax.tree.leaves(apart)) < 1e-4


def test_nothing_compiles_after_the_first_step(programs):
    state, _ = programs.train(programs.first(), programs.place(host_batch()))
    programs.evaluate(state["params"], programs.place(host_batch()))
    compiled = []

    def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if "compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    for step in range(1, 4):
        state, metrics = programs.train(state, programs.place(host_batch(step=step)))
        programs.evaluate(state["params"], programs.place(host_batch(step=step)))
        jax.device_get(metrics)
    assert compiled == []
    jax.jit(lambda x: x + 1)(jnp.ones(3))  # the listener hears what compiles
    assert compiled


def test_another_shape_is_refused_not_compiled(programs):
    with pytest.raises(TypeError, match="compiled"):
        programs.train(programs.first(), programs.place(host_batch(4)))


def test_buffers_are_donated(programs):
    state = programs.first()
    table = state["params"]["tokens"]["embedding"]
    programs.train(state, programs.place(host_batch()))
    assert table.is_deleted()


def test_a_batch_that_cannot_be_shared_is_refused():
    config = replace(CONFIG, batch_size=6, accumulation=2)
    with pytest.raises(UsageError, match="by 2 devices in 2 microbatches: give a multiple of 4"):
        programs_of(config, devices=jax.local_devices() * 2)


def test_dynamic_masks_train_and_evaluate():
    """On rows without masks; the same row of the same epoch gets the same masks again."""
    schema = mlm_schema(max_length=32, static_masking=False)
    programs = programs_of(replace(CONFIG, masking="dynamic"), schema)
    batch = host_batch(schema=schema)
    losses, _ = losses_of(programs, 3, lambda step: host_batch(schema=schema))
    again, _ = losses_of(programs, 3, lambda step: host_batch(schema=schema))
    assert losses == again
    params = programs.first()["params"]
    here = programs.evaluate(params, programs.place(batch))
    there = programs.evaluate(params, programs.place(dict(batch, epoch=batch["epoch"] + 1)))
    assert float(here.counted) == float(there.counted) > 0
    assert float(here.loss) != float(there.loss)


def test_dropout_is_a_function_of_the_step(programs):
    dropping = programs_of(replace(CONFIG, dropout=0.3))
    first, second = losses_of(dropping, 3), losses_of(dropping, 3)
    assert first[0] == second[0]
    plain, _ = losses_of(programs, 1)
    assert first[0][0] != plain[0]


def test_decay_spares_vectors():
    """A step with a gradient of 0 shrinks matrices and leaves biases and norms alone."""
    config = replace(CONFIG, weight_decay=0.5, learning_rate=0.1, warmup_steps=0)
    programs = programs_of(config)
    batch = host_batch()
    batch["masked_weights"][:] = 0
    before = jax.tree.map(np.asarray, programs.first()["params"])
    state, metrics = programs.train(programs.first(), programs.place(batch))
    assert float(metrics.loss) == 0 == float(metrics.counted)
    after = jax.tree.map(np.asarray, state["params"])
    rate = float(metrics.learning_rate)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        expected = old * (1 - 0.5 * rate) if old.ndim > 1 else old
        np.testing.assert_allclose(new, expected, rtol=1e-5, atol=1e-8)


def test_clipping_bounds_the_gradient():
    """Adam's first moment after one step is (1 - beta1) times the clipped gradient."""
    programs = programs_of(replace(CONFIG, clip_norm=0.01))
    state, metrics = programs.train(programs.first(), programs.place(host_batch()))
    assert float(metrics.gradient_norm) > 0.1
    moments = optax.tree.get(state["optimizer"], "mu")
    assert float(optax.tree.norm(moments)) == pytest.approx(0.1 * 0.01, rel=1e-4)


def test_schedule_by_hand():
    rate = learning_rate(replace(CONFIG, learning_rate=0.4, warmup_steps=4), 8)
    # Up in quarters over steps 1 to 4, then down in fifths: 4/5 at step 5, 1/5 at step 8.
    expected = [0.1, 0.2, 0.3, 0.4, 0.32, 0.24, 0.16, 0.08]
    assert [float(rate(step)) for step in range(8)] == pytest.approx(expected)
    flat = learning_rate(replace(CONFIG, learning_rate=0.4, warmup_steps=0), 1)
    assert float(flat(0)) == pytest.approx(0.4)


DEVICES_CODE = """
import jax, numpy as np
from dataclasses import replace
from test_flax_step import CONFIG, losses_of, programs_of
assert len(jax.local_devices()) == 2
config = replace(CONFIG, accumulation=2, masking="dynamic")
one, params = losses_of(programs_of(config, devices=jax.local_devices()[:1]), 4)
two, shared = losses_of(programs_of(config, devices=jax.local_devices()), 4)
apart = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), params, shared)
print(max(abs(a - b) for a, b in zip(one, two)), max(jax.tree.leaves(apart)))
assert np.allclose(one, two, rtol=1e-5), (one, two)
assert max(jax.tree.leaves(apart)) < 1e-3
"""


def test_two_devices_give_the_losses_of_one():
    settings = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    }
    found = subprocess.run(
        [sys.executable, "-c", DEVICES_CODE],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )
    print(found.stdout)
    assert found.returncode == 0, found.stderr
