"""Mixtures: exact shares, every row once an epoch of its own set, any step at once."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.shard_factory import mlm_schema, packed_rows, write_mlm_set, write_set
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers.data.mixture import (
    FINEST,
    Mixture,
    _turns,
    shares_of,
    take_turns,
)
from textmill.trainers.reader import ShardSet, open_shards

ROWS = {"a": 40, "b": 7, "c": 13}
MANY = 8000  # rows of a stream to check


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Directories of three sets, which differ in all that may differ, and their training rows."""
    directory, columns = tmp_path_factory.mktemp("mixture"), {}
    for name, changes in {
        "a": {},
        "b": {"encoding": "int64_list", "packing": "concat", "seed": 3},
        "c": {"file_formats": ("array_record",), "shards": {"train": 3, "validation": 1}},
    }.items():
        schema = mlm_schema(**changes)
        rows = {
            split: packed_rows(schema, count, seed=ord(name) * count)  # each its own
            for split, count in (("train", ROWS[name]), ("validation", 4))
        }
        columns[name] = write_set(directory / name, schema, rows)
    return directory, columns


def mix(sets, **weights):
    return ShardSet.mix({str(sets[0] / name): weight for name, weight in weights.items()}, seed=5)


# Turns of the datasets


def test_turns_worked_by_hand():
    """A share of 0.7: round(0.7 n), halves up, is 0 1 1 2 3 4 4 5 6 6 7 for n = 0 to 10."""
    set_index, own = take_turns(np.arange(10), [(7, 10)])
    assert set_index.tolist() == [0, 1, 0, 0, 0, 1, 0, 0, 1, 0]
    assert own.tolist() == [0, 0, 1, 2, 3, 1, 4, 5, 2, 6]
    for weights in ([0.7, 0.3], [7, 3]):
        assert shares_of("ab", weights) == (Fraction(7, 10), Fraction(3, 10))
    assert _turns(shares_of("abc", [0.3333333333333333] * 3)) == [(1, 3), (1, 2)]


WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=6)


@given(weights=WEIGHTS)
def test_shares_are_exact_at_every_moment(weights):
    """Each set gave its share of any first n rows, within half a row a set."""
    shares = shares_of(["x"] * len(weights), weights)
    set_index, own = take_turns(np.arange(MANY), _turns(shares))
    gave = np.cumsum(set_index[:, None] == np.arange(len(weights)), axis=0)
    due = np.outer(np.arange(1, MANY + 1), np.array([float(share) for share in shares]))
    rounded = len(weights) * MANY / FINEST  # shares are rounded to a millionth in the loop
    assert np.abs(gave - due).max() <= len(weights) / 2 + rounded
    for index in range(len(weights)):
        mine = own[set_index == index]
        assert mine.tolist() == list(range(len(mine)))  # its stream has no gap


@given(weights=WEIGHTS, start=st.integers(0, 10**12))
def test_any_piece_far_out_is_a_piece_of_the_whole(weights, start):
    turns = _turns(shares_of(["x"] * len(weights), weights))
    whole = take_turns(np.arange(start, start + 90), turns)
    part = take_turns(np.arange(start + 50, start + 90), turns)
    for one, other in zip(whole, part, strict=True):
        assert one[50:].tolist() == other.tolist()
        assert (one >= 0).all()


# The rows


def test_every_row_once_an_epoch_of_its_own_set(sets):
    _, columns = sets
    mixture = mix(sets, a=0.7, b=0.3)
    batches = list(mixture.batches("train", batch_size=10, seed=5, stop_step=60))
    joined = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
    assert [(b["set_index"] == 0).sum() for b in batches] == [7] * 60  # exact in every batch
    for index, (name, first) in enumerate({"a": 0, "b": ROWS["a"]}.items()):
        mine = joined["set_index"] == index
        own = joined["row_index"][mine] - first
        whole = len(own) // ROWS[name] * ROWS[name]
        epochs = own[:whole].reshape(-1, ROWS[name])
        assert (np.sort(epochs, axis=1) == np.arange(ROWS[name])).all()
        assert len(np.unique(epochs, axis=0)) == len(epochs)  # each in another order
        assert (joined["epoch"][mine] == np.arange(len(own)) // ROWS[name]).all()
        for feature in mlm_schema().features:
            values = columns[name]["train"][feature.name][own]
            np.testing.assert_array_equal(joined[feature.name][mine], values)
            assert joined[feature.name].dtype == feature.dtype
    assert "positions" not in joined, "which only one of the sets stores"
    assert mixture.parts[1].read("train", np.array([4]))["positions"].shape == (1, 16)
    orders = [
        mixture.order("train", np.arange(600), seed=seed)["row_index"] for seed in (5, None, 6)
    ]
    assert orders[0].tolist() == orders[1].tolist() == joined["row_index"].tolist()
    assert orders[2].tolist() != orders[0].tolist()


def test_a_mixture_of_one_is_that_set(sets):
    asked = {"batch_size": 7, "seed": 3, "stop_step": 20}
    several, alone = (
        list(open_shards(f"{sets[0]}/a{weight}").batches("train", **asked))
        for weight in (":0.25", "")
    )
    for one, other in zip(several, alone, strict=True):
        assert set(one) == {*other, "set_index"}
        for name in other:
            np.testing.assert_array_equal(one[name], other[name])
    epochs = np.concatenate([batch["row_index"] for batch in alone])[: 3 * ROWS["a"]]
    assert (np.sort(epochs.reshape(3, -1), axis=1) == np.arange(ROWS["a"])).all()


@pytest.mark.parametrize(
    "most, due", [(2, [0, 1, 4, 5]), (3, [0, 1, 2, 4, 5, 6]), (None, list(range(8)))]
)
@pytest.mark.parametrize("hosts", [1, 2])
def test_evaluation_of_the_first_rows_of_every_set(sets, most, due, hosts):
    mixture, asked = mix(sets, a=0.9, b=0.1), {"batch_size": 3 + (hosts == 2), "most": most}
    shares = [
        mixture.in_order("validation", **asked, process_index=host, process_count=hosts)
        for host in range(hosts)
    ]
    batches = [batch for step in zip(*shares, strict=True) for batch in step]
    assert len(batches) == mixture.count_in_order("validation", **asked) * hosts
    assert all(len(set(batch["set_index"])) == 1 for batch in batches), "the last is padded"
    joined = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
    real = joined["row_weights"] == 1
    assert joined["row_index"][real].tolist() == due
    assert joined["set_index"][real].tolist() == [row // 4 for row in due]
    whole = np.concatenate([sets[1][name]["validation"]["input_ids"] for name in "ab"])
    np.testing.assert_array_equal(joined["input_ids"][real], whole[due])


def test_tokens_of_a_row_are_those_of_the_statistics_by_weight(sets):
    counts = {
        name: np.count_nonzero(sets[1][name]["train"]["segment_ids"]) / ROWS[name] for name in "ab"
    }
    assert ShardSet(sets[0] / "a").tokens_a_row("train") == pytest.approx(counts["a"])
    due = 0.9 * counts["a"] + 0.1 * counts["b"]
    assert mix(sets, a=0.9, b=0.1).tokens_a_row("train") == pytest.approx(due)


def test_splits_that_a_set_lacks_or_that_are_empty(sets, tmp_path):
    schema = mlm_schema(splits={"train": 1.0}, shards={"train": 1})
    write_set(tmp_path / "bare", schema, {"train": packed_rows(schema, 5, seed=0)})
    mixture = ShardSet.mix({f"{sets[0]}/a": 1, f"{tmp_path}/bare": 1})
    assert mixture.splits == ("train", "validation") and mixture.rows("validation") == 4
    assert len(list(mixture.in_order("validation", batch_size=4))) == 1
    with pytest.raises(DataError, match="bare: split 'validation' has no rows"):
        next(mixture.batches("validation", batch_size=2, seed=0, prefetch=0))
    with pytest.raises(UsageError, match="no split 'test': it has train, validation"):
        mixture.rows("test")
    write_mlm_set(tmp_path / "empty", train=0)
    with pytest.raises(DataError, match="split 'train' has no rows"):
        ShardSet(tmp_path / "empty").batches("train", batch_size=1, seed=0)


# Schemas


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"max_length": 32}, "max_length is 16 in the first and 32 in the second"),
        ({"vocab_size": 70_000}, "vocab_size is 50 in the first and 70000 in the second"),
        ({"static_masking": False}, "static_masking is True in the first and False in the second"),
        (
            {"all_special_ids": (0, 1, 2, 3, 4, 5)},
            "all_special_ids is (0, 1, 2, 3, 4) in the first and (0, 1, 2, 3, 4, 5) in the second",
        ),
        # A program generates as many tokens after each prompt of a mixture.
        (
            {"parameters": {"max_answer_length": 2}},
            "max_answer_length is None in the first and 2 in the second",
        ),
    ],
)
def test_schemas_that_differ_are_refused_in_one_line(sets, tmp_path, changes, difference):
    """The first difference only: the others mostly follow from it."""
    first, second = ShardSet(sets[0] / "a"), tmp_path / "other"
    write_mlm_set(second, **changes)
    with pytest.raises(UsageError) as refused:
        Mixture([first, ShardSet(second)], [0.5, 0.5])
    assert str(refused.value) == (
        f"{first.name} and {second} cannot be mixed: {difference}. Build one of them again with "
        "the other's tokenizer and flags"
    )


def test_the_fingerprint_tells_weights_and_sets(sets):
    seen = {
        mix(sets, a=0.7, b=0.3).fingerprint,
        mix(sets, a=0.6, b=0.4).fingerprint,
        mix(sets, a=0.7, c=0.3).fingerprint,
        mix(sets, b=0.3, a=0.7).fingerprint,
    }
    assert len(seen) == 4
    assert mix(sets, a=7, b=3).fingerprint == mix(sets, a=0.7, b=0.3).fingerprint


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        *(({"a": 0.5, "b": weight}, "must be above 0") for weight in (0, -1, math.nan, math.inf)),
        ({"a": 1, "b": 1e-8}, "below a millionth"),
        ({}, "the mixture is empty"),
    ],
)
def test_wrong_weights(sets, weights, said):
    with pytest.raises(UsageError, match=said):
        mix(sets, **weights)
    with pytest.raises(UsageError, match="1 weights for 0 datasets"):
        Mixture([], [1.0])


def test_names_of_the_datasets(sets, tmp_path):
    assert mix(sets, a=0.9, b=0.1).names == ("a", "b")
    assert ShardSet(sets[0] / "a").names == ()
    (tmp_path / "a").symlink_to(sets[0] / "a")
    same = {str(sets[0] / "a"): 1.0, str(tmp_path / "a"): 1.0}
    assert ShardSet.mix(same).names == tuple(same), "two directories of one name keep their paths"
