import numpy as np
import pytest

from tests.tools.shard_factory import write_mlm_set
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.data.shards_value import open_shards
from textmill.trainers.data.sightings import (
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


def test_mixtures_invert_their_order(tmp_path):
    """Weights and stages, each with rows of all datasets, over epochs of the smallest."""
    for number, rows in enumerate((7, 12, 20)):
        write_mlm_set(tmp_path / str(number), train=rows, seed=number)
    names = [str(tmp_path / str(number)) for number in range(3)]
    weighted = ",".join(f"{name}:{weight}" for name, weight in zip(names, (5, 1, 2), strict=True))
    staged = ",".join(f"{name}={path}" for name, path in zip("abc", names, strict=True))
    stages = "0:a=0.5,b=0.5;3:c=1;9:a=0.2,c=0.8"
    for mixture in (
        open_shards(weighted, seed=4),
        open_shards(staged, seed=4, stages=stages, batch_size=5, stage_shares="rows"),
    ):
        order = mixture.order("train", np.arange(90), seed=4)
        rows = mixture.rows("train")
        found = mixture.find_positions("train", range(rows), seed=4, stop=90)
        assert found["position"].tolist() == list(range(90))
        for name in ("row_index", "epoch"):
            assert found[name].tolist() == order[name].tolist()
        for row in (0, 6, 7, 18, 19, rows - 1):
            due = np.flatnonzero(order["row_index"] == row)
            one = mixture.find_positions("train", [row], seed=4, stop=90)
            assert one["position"].tolist() == due.tolist()
            [segment, *_] = mixture.documents_of("train", [row])
            assert segment.row_index == row
            assert row in mixture.rows_of("train", segment.digest)
        both = mixture.documents_of("train", [19, 3, 19])
        assert both == [
            *mixture.documents_of("train", [19]),
            *mixture.documents_of("train", [3]),
            *mixture.documents_of("train", [19]),
        ]
    assert mixture.find_positions("train", [], seed=4, stop=90)["position"].tolist() == []
