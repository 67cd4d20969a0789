"""Masks made on the device: the rule's counts and shares, and their independence of the batch."""

from functools import partial

import jax
import numpy as np
import pytest

from tests.tools.shard_factory import mlm_schema, packed_rows
from textmill.schemas.format.features import max_masked_slots, unmask
from textmill.trainers.on_flax.flax_encoder import draw_masks, read_masks, undo_masks

SCHEMA = mlm_schema(max_length=64, vocab_size=60, all_special_ids=(0, 1, 2, 3, 4, 30, 59))
MASK, SLOTS = SCHEMA.special_ids["mask"], max_masked_slots(64, 0.15)


def batch_of(schema, rows, *, epoch=0, first=0):
    """A batch as `place` makes it, but on the host."""
    columns = packed_rows(schema, rows, seed=3)
    index = np.arange(first, first + rows, dtype="<i8")
    return dict(
        columns,
        row_index=index.view("<u4").reshape(-1, 2),
        epoch=np.full(rows, epoch, np.uint32),
    )


@partial(jax.jit, static_argnames="seed")
def anew(batch, seed):
    return draw_masks(batch, schema=SCHEMA, rate=0.15, seed=seed)


def masked(batch, seed=0):
    return jax.tree.map(np.asarray, anew(batch, seed))


@pytest.fixture(scope="module")
def plain():
    """400 rows that carry no masks; the special ids 30 and 59 stand among the ordinary ones."""
    schema = mlm_schema(
        max_length=64, vocab_size=60, all_special_ids=SCHEMA.all_special_ids, static_masking=False
    )
    batch = batch_of(schema, 400)
    random = np.random.default_rng(0)
    ordinary = batch["segment_ids"] > 0
    ordinary &= ~np.isin(batch["input_ids"], [0, 1, 2, 3, 4])
    batch["input_ids"] = np.where(
        ordinary, random.integers(5, 60, batch["input_ids"].shape), batch["input_ids"]
    )
    return batch


def test_exactly_the_rate_of_ordinary_tokens_is_picked(plain):
    """A row of padding has none."""
    empty = masked({name: np.zeros_like(column[:1]) for name, column in plain.items()})
    assert not empty.weights.any() and not empty.input_ids.any()
    rows = masked(plain)
    ordinary = ~np.isin(plain["input_ids"], SCHEMA.all_special_ids) & (plain["segment_ids"] > 0)
    expected = np.clip(np.rint(0.15 * ordinary.sum(axis=1)), 1, SLOTS)
    np.testing.assert_array_equal(rows.weights.sum(axis=1), expected)
    for row in range(len(ordinary)):
        picked = rows.positions[row][rows.weights[row] > 0]
        assert len(set(picked.tolist())) == len(picked)
        assert ordinary[row, picked].all()
        np.testing.assert_array_equal(
            rows.labels[row], plain["input_ids"][row, rows.positions[row]]
        )
        untouched = np.setdiff1d(np.arange(64), picked)
        np.testing.assert_array_equal(
            rows.input_ids[row, untouched], plain["input_ids"][row, untouched]
        )


def test_eighty_ten_ten(plain):
    """Over many epochs; each ordinary id is drawn, and no special one."""
    drawn, counts = set(), np.zeros(3)
    for epoch in range(40):
        rows = masked(dict(plain, epoch=np.full(400, epoch, np.uint32)))
        used = rows.weights > 0
        new = np.take_along_axis(rows.input_ids, rows.positions, axis=1)[used]
        old = rows.labels[used]
        counts += (new == MASK).sum(), (new == old).sum(), len(new)
        drawn.update(new[(new != MASK) & (new != old)].tolist())
    assert drawn == set(range(60)) - set(SCHEMA.all_special_ids)
    masks, same = counts[:2] / counts[2]
    assert counts[2] > 100_000
    deviation = 4 / np.sqrt(counts[2])  # four standard deviations of a share near one half, or more
    assert masks == pytest.approx(0.8, abs=0.8 * deviation)
    # One random token of 53 is the old one by chance.
    assert same == pytest.approx(0.1 + 0.1 / 53, abs=0.6 * deviation)


def test_masks_depend_on_row_epoch_and_seed_alone(plain):
    rows = masked(plain)
    part = np.array([7, 399, 0])
    alone = masked({name: column[part] for name, column in plain.items()})
    for whole_column, part_column in zip(rows, alone, strict=True):
        np.testing.assert_array_equal(whole_column[part], part_column)
    changes = [
        masked(dict(plain, epoch=plain["epoch"] + 1)),
        masked(plain, seed=1),
        masked(dict(plain, row_index=plain["row_index"] + np.array([0, 1], np.uint32))),
        masked(dict(plain, row_index=plain["row_index"] + np.array([1, 0], np.uint32))),
    ]
    for other in changes:
        assert (other.positions != rows.positions).any(axis=1).mean() > 0.99


def test_stored_masks_are_undone_first():
    batch = batch_of(SCHEMA, 50)
    # A mask at position 0, as in a row whose first segment was cut: empty slots point there too.
    original = unmask(batch).astype(int)
    batch["masked_positions"][3, 0] = 0
    batch["masked_ids"][3, 0] = original[3, 0]
    batch["input_ids"][3, 0] = MASK
    original = unmask(batch)
    np.testing.assert_array_equal(jax.jit(undo_masks)(batch), original)
    rows = masked(batch)
    restored = rows.input_ids.copy()
    row, slot = np.nonzero(rows.weights)
    restored[row, rows.positions[row, slot]] = rows.labels[row, slot]
    np.testing.assert_array_equal(restored, original)


def test_stored_masks_as_they_are():
    batch = batch_of(SCHEMA, 5)
    rows = jax.tree.map(np.asarray, read_masks({k: jax.numpy.asarray(v) for k, v in batch.items()}))
    np.testing.assert_array_equal(rows.input_ids, batch["input_ids"])
    np.testing.assert_array_equal(rows.positions, batch["masked_positions"])
    np.testing.assert_array_equal(rows.labels, batch["masked_ids"])
    np.testing.assert_array_equal(rows.weights, batch["masked_weights"])
