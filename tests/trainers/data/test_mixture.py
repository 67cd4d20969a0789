"""Mixtures: exact shares, every row once an epoch of its own set, any step at once."""

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.benchmarks.stage_shares import STAGES as STAGES_OF_THREE
from tests.benchmarks.stage_shares import measure
from tests.tools.shard_factory import mlm_schema, packed_rows, write_mlm_set, write_set
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers.data.mixture import Mixture
from textmill.trainers.data.stages import Stages
from textmill.trainers.reader import ShardSet, open_shards

ROWS = {"a": 40, "b": 7, "c": 13}


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
        mixture.sequential_batches("validation", **asked, process_index=host, process_count=hosts)
        for host in range(hosts)
    ]
    batches = [batch for step in zip(*shares, strict=True) for batch in step]
    assert len(batches) == mixture.count_sequential_batches("validation", **asked) * hosts
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
    assert ShardSet(sets[0] / "a").mean_tokens_per_row("train") == pytest.approx(counts["a"])
    due = 0.9 * counts["a"] + 0.1 * counts["b"]
    assert mix(sets, a=0.9, b=0.1).mean_tokens_per_row("train") == pytest.approx(due)


def test_splits_that_a_set_lacks_or_that_are_empty(sets, tmp_path):
    schema = mlm_schema(splits={"train": 1.0}, shards={"train": 1})
    write_set(tmp_path / "bare", schema, {"train": packed_rows(schema, 5, seed=0)})
    mixture = ShardSet.mix({f"{sets[0]}/a": 1, f"{tmp_path}/bare": 1})
    assert mixture.splits == ("train", "validation") and mixture.rows("validation") == 4
    assert len(list(mixture.sequential_batches("validation", batch_size=4))) == 1
    with pytest.raises(DataError, match="bare: split 'validation' has no rows"):
        next(mixture.batches("validation", batch_size=2, seed=0, prefetch=0))
    with pytest.raises(UsageError, match="no split 'test': it has train, validation"):
        mixture.rows("test")
    write_mlm_set(tmp_path / "empty", train=0)
    with pytest.raises(DataError, match="split 'train' has no rows"):
        ShardSet(tmp_path / "empty").batches("train", batch_size=1, seed=0)


# Stages

STAGES = "0:a=0.8,b=0.2;6:b=1;50%:a=0.3,c=0.7"
LENGTH = {"batch_size": 10, "steps": 40}


def stage(sets, stages: Any = STAGES, **changes):
    """A mixture of three datasets in stages."""
    paths = ",".join(str(sets[0] / name) for name in "abc")
    mixture = open_shards(paths, seed=5, stages=stages, **{**LENGTH, **changes})
    assert isinstance(mixture, Mixture)
    return mixture


@pytest.mark.parametrize("by", ["tokens", "rows"])
@pytest.mark.parametrize("hosts", [1, 2, 5])
def test_stages_of_any_number_of_hosts(sets, by, hosts):
    """A dataset continues its own permutation, each row once an epoch; its features are its own."""
    _, columns = sets
    mixture = stage(sets, stage_shares=by)
    asked = {"batch_size": 10, "seed": 5, "stop_step": 60, "process_count": hosts}
    shares = [mixture.batches("train", **asked, process_index=host) for host in range(hosts)]
    batches = [batch for step in zip(*shares, strict=True) for batch in step]
    joined = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
    ends = np.cumsum([0, *ROWS.values()])
    for index, (name, size) in enumerate(ROWS.items()):
        mine = joined["set_index"] == index
        own = joined["row_index"][mine] - ends[index]
        whole = len(own) // size * size
        epochs = own[:whole].reshape(-1, size)
        assert whole and (np.sort(epochs, axis=1) == np.arange(size)).all()
        assert (joined["epoch"][mine] == np.arange(len(own)) // size).all()
        values = columns[name]["train"]["input_ids"][own]
        np.testing.assert_array_equal(joined["input_ids"][mine], values)
    cuts = [0, 60, 200, 600]
    sets_of = [set(joined["set_index"][slice(*cut)]) for cut in zip(cuts, cuts[1:], strict=False)]
    assert sets_of == [{0, 1}, {1}, {0, 2}]
    tail = mixture.batches("train", batch_size=10, seed=5, start_step=19, stop_step=21)
    resumed = np.concatenate([batch["row_index"] for batch in tail])
    assert resumed.tolist() == joined["row_index"][190:210].tolist(), "across a stage's start"


SHARES = st.dictionaries(st.sampled_from("abc"), st.floats(0.01, 10), min_size=1)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), share=st.integers(1, 7), hosts=st.integers(1, 4), first=st.integers(0, 30))
def test_any_host_resumes_any_stages_at_any_step(sets, data, share, hosts, first):
    """From any step on, the hosts together read what one unbroken reader does."""
    starts = [0, *sorted(data.draw(st.sets(st.integers(1, 40), max_size=3)))]
    asked = Stages.of_mapping({start: data.draw(SHARES) for start in starts})
    by = data.draw(st.sampled_from(["tokens", "rows"]))
    mixture = stage(sets, asked, batch_size=share * hosts, stage_shares=by)
    size: Any = {"batch_size": share * hosts, "seed": 1, "process_count": hosts, "prefetch": 0}
    parts = [
        mixture.batches("train", **size, process_index=host, start_step=first, stop_step=first + 9)
        for host in range(hosts)
    ]
    found = [batch["row_index"] for step in zip(*parts, strict=True) for batch in step]
    whole = mixture.order("train", np.arange((first + 9) * share * hosts), seed=1)
    assert np.concatenate(found).tolist() == whole["row_index"][first * share * hosts :].tolist()
    for number, begin in enumerate(starts):
        end = [*starts[1:], first + 9][number]
        read = whole["set_index"][begin * share * hosts : end * share * hosts]
        assert set("abc"[index] for index in read) <= set(asked.stages[number].shares)


def test_one_stage_of_rows_is_the_mixture_by_weight(sets):
    both = stage(sets, "0:a=0.7,c=0.1,b=0.2", stage_shares="rows"), mix(sets, a=0.7, b=0.2, c=0.1)
    orders = [mixture.order("train", np.arange(3000)) for mixture in both]
    for name in orders[0]:
        assert orders[0][name].tolist() == orders[1][name].tolist()
    assert both[0].mean_tokens_per_row("train") == both[1].mean_tokens_per_row("train")
    assert both[0].row_shares("train", 1000) == both[1].row_shares("train", 1000)


def test_shares_of_tokens_are_shares_of_rows_by_the_mean(sets):
    """Shares of 0.8 and 0.2 of the tokens, for means of ma and mb: 0.8 / ma to 0.2 / mb rows."""
    mixture, rows = stage(sets), 10 * 6
    means = [part.mean_tokens_per_row("train") for part in mixture.parts]
    of_a = 0.8 / means[0] / (0.8 / means[0] + 0.2 / means[1])
    counted = np.bincount(mixture.order("train", np.arange(rows))["set_index"], minlength=3)
    assert counted.tolist() == [round(of_a * rows), rows - round(of_a * rows), 0]
    by_rows = stage(sets, stage_shares="rows").order("train", np.arange(rows))
    assert np.bincount(by_rows["set_index"]).tolist() == [48, 12]
    assert mixture.mean_tokens_per_row("train") == pytest.approx(
        1 / (0.3 / means[0] + 0.7 / means[2])
    )


def test_shares_of_tokens_over_ten_windows(tmp_path):
    """Packed rows, and rows of one document each: three datasets in three stages."""
    for name, packed in (("packed", True), ("single", False)):
        for number in range(3):
            schema = mlm_schema(max_length=32 if packed else 16, static_masking=False)
            rows = packed_rows(schema, 300 + 100 * number, seed=number)
            if not packed:
                lengths = np.random.default_rng(number).integers(2, 17, len(rows["segment_ids"]))
                rows["segment_ids"] = (np.arange(16) < lengths[:, None]).astype(np.int64)
            write_set(tmp_path / name / str(number), schema, {"train": rows, "validation": rows})
    found = {
        name: max(
            abs(value)
            for window in measure(
                [str(tmp_path / name / str(number)) for number in range(3)],
                STAGES_OF_THREE,
                steps=100,
                batch_size=32,
            )
            for value in window.values()
        )
        for name in ("packed", "single")
    }
    assert found["packed"] < 0.005 and found["single"] < 0.05
    assert found["single"] > found["packed"], "their rows differ in tokens"


def test_rows_of_tokens_are_counted_stage_by_stage(sets):
    mixture = stage(sets)
    means = [part.mean_tokens_per_row("train") for part in mixture.parts]
    first = 60 / (0.8 / means[0] + 0.2 / means[1])
    for tokens, rows in ((first / 2, 30), (first, 60), (first + 7 * means[1], 67)):
        found = float(mixture.rows_of_tokens("train", Fraction(tokens)))
        assert found == pytest.approx(rows, rel=1e-9)
    more = first + 140 * means[1] + 8 * mixture.mean_tokens_per_row("train")
    assert float(mixture.rows_of_tokens("train", Fraction(more))) == pytest.approx(208, rel=1e-9)


def test_starts_after_tokens(sets):
    """The first step before which so many tokens were read, as counted in the rows' mean."""
    by_tokens = stage(sets, "0:a=1;1K:b=1")
    mean = 10 * by_tokens.parts[0].mean_tokens_per_row("train")
    assert str(by_tokens.stages) == f"0:a=1;{math.ceil(1000 / mean)}:b=1"
    half = stage(sets, "0:a=1;50%:b=1", steps=None, tokens=5000)
    assert str(half.stages) == f"0:a=1;{math.ceil(2500 / mean)}:b=1"


def test_passes_of_each_stage(sets):
    """Stage 2 has 140 rows of b, which has 7; a repeats its 40 rows in stages 1 and 3."""
    lines = stage(sets, stage_shares="rows").describe_passes("train", 40, 10)
    assert [line.split() for line in lines[1:]] == [
        ["1", "1", "to", "6", "a", "80.00%", lines[1].split()[6], "48", "1.20", "1.20"],
        ["b", "20.00%", lines[2].split()[2], "12", "1.71", "1.71"],
        ["2", "7", "to", "20", "b", "100.00%", lines[3].split()[6], "140", "20.00", "21.71"],
        ["3", "21", "to", "40", "a", "30.00%", lines[4].split()[6], "60", "1.50", "2.70"],
        ["c", "70.00%", lines[5].split()[2], "140", "10.77", "10.77"],
    ]
    head = "stage     steps  dataset    share  tokens  rows  passes  passes so far"
    assert lines[0] == head and len(set(map(len, lines))) == 1
    [tokens] = {line.split()[6] for line in lines if line.split()[0] == "2"}
    due = 140 * ShardSet(sets[0] / "b").mean_tokens_per_row("train")
    assert tokens == f"{due:,.0f}"


def test_shares_of_the_rows_of_a_run(sets):
    shares = stage(sets, stage_shares="rows").row_shares("train", 400)
    assert shares == pytest.approx([108 / 400, 152 / 400, 140 / 400])


def test_datasets_that_are_mixed_without_shares(sets):
    """They are evaluated; their fingerprint is that of the mixture in any stages."""
    bare = open_shards(",".join(str(sets[0] / name) for name in "abc"))
    assert bare.count_sequential_batches("validation", batch_size=4) == 3
    with pytest.raises(UsageError, match="the datasets have no weights; give each one"):
        next(bare.batches("train", batch_size=2, seed=0, prefetch=0))
    several = stage(sets), stage(sets, "0:c=1"), stage(sets, stage_shares="rows")
    assert {each.fingerprint for each in several} == {bare.fingerprint}
    assert len({each.order_name for each in (bare, *several)}) == 4


@pytest.mark.parametrize(
    ("stages", "changes", "said"),
    [
        ("0:a=1;5:d=1", {}, "there is no dataset 'd'; --shards has a, b, c"),
        ("0:a=1;90%:b=1", {"steps": None}, "90% of the run needs its length"),
        ("0:a=1;9:b=1;20%:a=1", {}, "a stage at 20% (step 8) follows one at step 9"),
        ("0:a=1,b=1e-9", {}, "b: its weight is below a millionth of the sum"),
        ("0:a=1", {"batch_size": None}, "--stages=0:a=1 start at steps: give batch_size, too"),
    ],
)
def test_wrong_stages(sets, stages, changes, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        stage(sets, stages, **changes)


def test_stages_need_rows_and_no_weights(sets, tmp_path):
    write_mlm_set(tmp_path / "empty", train=0)
    with pytest.raises(UsageError, match="empty has no rows in split 'train': leave it out, or"):
        open_shards(f"{sets[0]}/a,{tmp_path}/empty", stages="0:a=1;5:empty=1", batch_size=2)
    read = open_shards(f"{sets[0]}/a,{tmp_path}/empty", stages="0:a=1", batch_size=2)
    assert next(read.batches("train", batch_size=2, seed=0))["set_index"].tolist() == [0, 0]
    stages = Stages.parse("0:a=1")
    with pytest.raises(UsageError, match="leave the weights of --shards out"):
        mix(sets, a=1, b=1).in_stages(stages, split="train", batch_size=2)
    with pytest.raises(UsageError, match="leave the weights of --shards"):
        open_shards(f"{sets[0]}/a:1,{sets[0]}/b:1", stages=stages, batch_size=2)


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
