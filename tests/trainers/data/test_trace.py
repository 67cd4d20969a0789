import numpy as np
import pytest

from tests.tools.shard_factory import write_mlm_set
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.data.trace import (
    Sighting,
    documents_of_step,
    rows_of_step,
    steps_of_rows,
)


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_both_ways_equal_a_recording_reader(tmp_path, batch_size):
    """Over three epochs of 40 rows, with batches that cross from one into the next."""
    write_mlm_set(tmp_path / "set")
    shards, steps = ShardSet(tmp_path / "set"), -(-120 // batch_size)
    seen = []
    batches = shards.batches("train", batch_size=batch_size, seed=5, stop_step=steps)
    for step, batch in enumerate(batches):
        rows = zip(batch["row_index"].tolist(), batch["epoch"].tolist(), strict=True)
        seen += [Sighting(step, at, row, epoch) for at, (row, epoch) in enumerate(rows)]
    order = {"batch_size": batch_size, "seed": 5}
    found = [rows_of_step(shards, "train", step, **order) for step in range(steps)]
    assert sum(found, []) == seen
    for row in (0, 17, 39):
        due = [one for one in seen if one.row_index == row]
        assert steps_of_rows(shards, "train", [row], stop_step=steps, **order) == due
    assert steps_of_rows(shards, "train", range(40), stop_step=steps, **order) == seen
    assert steps_of_rows(shards, "train", [3], stop_step=0, **order) == []


def test_documents_of_a_step(tmp_path):
    """Each segment is a document of its own; their tokens are all of the batch's."""
    write_mlm_set(tmp_path / "set")
    shards, order = ShardSet(tmp_path / "set"), {"batch_size": 8, "seed": 2}
    [batch] = shards.batches("train", **order, start_step=6, stop_step=7)
    found = documents_of_step(shards, "train", 6, **order)
    segments = batch["segment_ids"]
    assert sorted(found.values()) == sorted(
        int((row == number).sum()) for row in segments for number in range(1, row.max() + 1)
    )
    assert list(found.values()) == sorted(found.values(), reverse=True)
    for digest, tokens in found.items():
        [row] = shards.rows_of("train", digest).tolist()
        assert row in batch["row_index"]
        assert tokens in np.bincount(segments[batch["row_index"].tolist().index(row)])[1:]
