"""Mixtures: exact shares, every row once an epoch of its own set, any step at once."""

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.tasks.qa import Qa
from schemas.errors import DataError, UsageError
from tests.tools.clm_factory import chat_schema, write_clm_set
from tests.tools.question_factory import write_qa_set
from tests.tools.shard_factory import (
    mlm_schema,
    packed_rows,
    tokenizer_json,
    write_mlm_set,
    write_set,
)
from trainers.data.mixture import (
    FINEST,
    Mixture,
    _shares,
    _turns,
    open_shards,
    parse_shards,
    shards_name,
    take_turns,
)
from trainers.reader import ShardSet

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
        columns[name] = write_set(
            directory / name,
            schema,
            {
                "train": packed_rows(schema, ROWS[name], seed=ord(name)),
                "validation": packed_rows(schema, 4, seed=1),
            },
        )
    return directory, columns


def path(sets, *names):
    return [str(sets[0] / name) for name in names]


def mix(sets, **weights):
    return ShardSet.mix({str(sets[0] / name): weight for name, weight in weights.items()}, seed=5)


# Turns of the datasets


def test_turns_worked_by_hand():
    """A share of 0.7: round(0.7 n), halves up, is 0 1 1 2 3 4 4 5 6 6 7 for n = 0 to 10."""
    set_index, own = take_turns(np.arange(10), [(7, 10)])
    assert set_index.tolist() == [0, 1, 0, 0, 0, 1, 0, 0, 1, 0]
    assert own.tolist() == [0, 0, 1, 2, 3, 1, 4, 5, 2, 6]


WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=6)


@given(weights=WEIGHTS)
def test_shares_are_exact_at_every_moment(weights):
    """Each set gave its share of any first n rows, within half a row a set."""
    shares = _shares(["x"] * len(weights), weights)
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
    turns = _turns(_shares(["x"] * len(weights), weights))
    whole = take_turns(np.arange(start, start + 90), turns)
    part = take_turns(np.arange(start + 50, start + 90), turns)
    for one, other in zip(whole, part, strict=True):
        assert one[50:].tolist() == other.tolist()
        assert (one >= 0).all()


def test_weights_are_what_was_written():
    assert _shares("ab", [0.7, 0.3]) == (Fraction(7, 10), Fraction(3, 10))
    assert _shares("ab", [7, 3]) == (Fraction(7, 10), Fraction(3, 10))
    third = _turns(_shares("abc", [0.3333333333333333] * 3))
    assert third == [(1, 3), (1, 2)]


# The rows


def test_every_row_once_an_epoch_of_its_own_set(sets):
    _, columns = sets
    batches = list(mix(sets, a=0.7, b=0.3).batches("train", batch_size=10, seed=5, stop_step=60))
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
    assert "positions" not in joined  # which only one of the sets stores


def test_a_seed_is_an_order(sets):
    def rows(seed):
        return mix(sets, a=0.7, b=0.3).order("train", np.arange(40), seed=seed)["row_index"]

    assert rows(5).tolist() == rows(None).tolist() != rows(6).tolist()


def test_a_mixture_of_one_is_that_set(sets):
    (directory,) = path(sets, "a")
    for one, other in zip(
        open_shards(directory + ":0.25").batches("train", batch_size=7, seed=3, stop_step=20),
        open_shards(directory).batches("train", batch_size=7, seed=3, stop_step=20),
        strict=True,
    ):
        assert set(one) == {*other, "set_index"}
        for name in other:
            np.testing.assert_array_equal(one[name], other[name])


def test_evaluation_reads_every_row_of_every_set_once(sets):
    mixture = mix(sets, a=0.9, b=0.1)
    assert mixture.rows("validation") == 8
    batches = list(mixture.in_order("validation", batch_size=3))
    real = np.concatenate([batch["row_weights"] for batch in batches]) == 1
    rows = np.concatenate([batch["row_index"] for batch in batches])[real]
    assert rows.tolist() == list(range(8))
    ids = np.concatenate([batch["input_ids"] for batch in batches])[real]
    expected = [sets[1][name]["validation"]["input_ids"] for name in "ab"]
    np.testing.assert_array_equal(ids, np.concatenate(expected))
    # No batch has rows of two datasets; the last of each is padded.
    assert [batch["set_index"].tolist() for batch in batches] == [[0] * 3] * 2 + [[1] * 3] * 2
    assert [batch["row_weights"].sum() for batch in batches] == [3, 1, 3, 1]
    assert mixture.count_in_order("validation", batch_size=3) == 4


@pytest.mark.parametrize(
    "most, due", [(2, [0, 1, 4, 5]), (3, [0, 1, 2, 4, 5, 6]), (9, list(range(8)))]
)
@pytest.mark.parametrize("hosts", [1, 2])
def test_evaluation_of_the_first_rows_of_every_set(sets, most, due, hosts):
    mixture, size = mix(sets, a=0.9, b=0.1), 3 + (hosts == 2)
    shares = [
        list(
            mixture.in_order(
                "validation", batch_size=size, most=most, process_index=host, process_count=hosts
            )
        )
        for host in range(hosts)
    ]
    count = mixture.count_in_order("validation", batch_size=size, most=most)
    assert [len(share) for share in shares] == [count] * hosts
    batches = [batch for step in zip(*shares, strict=True) for batch in step]
    rows = [batch["row_index"][batch["row_weights"] == 1] for batch in batches]
    assert np.concatenate(rows).tolist() == due


def test_tokens_of_a_row_are_those_of_the_statistics_by_weight(sets):
    counts = {
        name: np.count_nonzero(sets[1][name]["train"]["segment_ids"]) / ROWS[name] for name in "ab"
    }
    assert ShardSet(path(sets, "a")[0]).tokens_a_row("train") == pytest.approx(counts["a"])
    due = 0.9 * counts["a"] + 0.1 * counts["b"]
    assert mix(sets, a=0.9, b=0.1).tokens_a_row("train") == pytest.approx(due)


def test_names_of_datasets(sets, tmp_path):
    assert mix(sets, a=0.9, b=0.1).names == ("a", "b")
    assert ShardSet(path(sets, "a")[0]).names == ()
    (tmp_path / "a").symlink_to(sets[0] / "a")
    same = {str(sets[0] / "a"): 1.0, str(tmp_path / "a"): 1.0}
    assert ShardSet.mix(same).names == tuple(same), "two directories of one name keep their paths"


def test_a_split_that_one_set_lacks(sets, tmp_path):
    schema = mlm_schema(splits={"train": 1.0}, shards={"train": 1})
    write_set(tmp_path / "bare", schema, {"train": packed_rows(schema, 5, seed=0)})
    mixture = ShardSet.mix({path(sets, "a")[0]: 1, str(tmp_path / "bare"): 1})
    assert mixture.splits == ("train", "validation") and mixture.rows("validation") == 4
    assert len(list(mixture.in_order("validation", batch_size=4))) == 1
    with pytest.raises(DataError, match="bare: split 'validation' has no rows"):
        next(mixture.batches("validation", batch_size=2, seed=0, prefetch=0))
    with pytest.raises(UsageError, match="no split 'test': it has train, validation"):
        mixture.rows("test")


def test_passes(sets):
    first, second = mix(sets, a=0.7, b=0.3).describe_passes("train", 50, 8)
    assert first.startswith("70.00% of the rows from ")
    assert first.endswith("a: 7.00 passes over its 40 in 50 steps")
    assert second.endswith("b: 17.14 passes over its 7 in 50 steps")
    assert ShardSet(path(sets, "a")[0]).describe_passes("train", 50, 8) == []


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
    ],
)
def test_schemas_that_differ_are_refused_in_one_line(sets, tmp_path, changes, difference):
    """The first difference only: the others mostly follow from it."""
    write_mlm_set(tmp_path / "other", **changes)
    with pytest.raises(UsageError) as refused:
        ShardSet.mix({path(sets, "a")[0]: 0.5, str(tmp_path / "other"): 0.5})
    assert str(refused.value) == (
        f"{path(sets, 'a')[0]} and {tmp_path / 'other'} cannot be mixed: {difference}. Build one "
        "of them again with the other's tokenizer and flags"
    )


def test_questions_with_other_room_for_answers_are_refused(tmp_path):
    """A program generates as many tokens after each prompt of a mixture."""
    words, asked = LoadedTokenizer(tokenizer_json(50)), [("w10", "w11 w12", [("w12", 4)], "1")]
    template = "w5 {question} w6 {context} w7 {answer}"
    for name, most in (("a", 4), ("b", 2)):
        task = Qa(qa_template=template, max_question_length=3, max_answer_length=most)
        write_qa_set(tmp_path / name, {"validation": asked}, task, words, 24)
    with pytest.raises(UsageError, match="max_answer_length is 4 in the first and 2 in the second"):
        ShardSet.mix({f"{tmp_path}/a": 0.5, f"{tmp_path}/b": 0.5})


def test_texts_and_conversations_are_mixed(tmp_path):
    written = [
        write_clm_set(tmp_path / "texts", train=30),
        write_clm_set(tmp_path / "chats", train=20, schema=chat_schema()),
    ]
    written[1]["train"]["loss_weights"][:] = 0  # else a set's weights might be the other's
    write_set(tmp_path / "quiet", chat_schema(), written[1])
    mixture = ShardSet.mix({f"{tmp_path}/texts": 0.5, f"{tmp_path}/quiet": 0.5})
    for batch in mixture.batches("train", batch_size=10, seed=0, stop_step=6):
        assert batch["set_index"].sum() == 5
        for number, index, row in zip(
            range(10), batch["set_index"], batch["row_index"], strict=True
        ):
            columns, own = written[index]["train"], row - 30 * index
            for name, column in columns.items():
                np.testing.assert_array_equal(batch[name][number], column[own])


def test_the_fingerprint_tells_weights_and_sets(sets):
    seen = {
        mix(sets, a=0.7, b=0.3).fingerprint,
        mix(sets, a=0.6, b=0.4).fingerprint,
        mix(sets, a=0.7, c=0.3).fingerprint,
        mix(sets, b=0.3, a=0.7).fingerprint,
    }
    assert len(seen) == 4
    assert mix(sets, a=7, b=3).fingerprint == mix(sets, a=0.7, b=0.3).fingerprint


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
def test_weights_that_are_no_shares(sets, weight):
    with pytest.raises(UsageError, match="must be above 0"):
        mix(sets, a=0.5, b=weight)


def test_other_wrong_mixtures(sets):
    with pytest.raises(UsageError, match="below a millionth"):
        mix(sets, a=1, b=1e-8)
    with pytest.raises(UsageError, match="the mixture is empty"):
        ShardSet.mix({})
    with pytest.raises(UsageError, match="1 weights for 0 datasets"):
        Mixture([], [1.0])


# --shards


@pytest.mark.parametrize(
    "text, expected",
    [
        ("data/a", {"data/a": None}),
        ("gs://bucket/a", {"gs://bucket/a": None}),
        ("a:0.7,b:0.3", {"a": 0.7, "b": 0.3}),
        ("a:7,b:3e-1,c:.5", {"a": 7.0, "b": 0.3, "c": 0.5}),
        ("a:1", {"a": 1.0}),
        ("x:y:0.7,gs://b/c:3", {"x:y": 0.7, "gs://b/c": 3.0}),
        ("host:80:1,b:1", {"host:80": 1.0, "b": 1.0}),
        ("a:1,b,c:2", {"a": 1.0, "b,c": 2.0}),
    ],
)
def test_shards_flag(text, expected):
    assert parse_shards(text) == expected


def test_a_directory_is_one_whatever_its_name(tmp_path):
    odd = tmp_path / "a:0.5,b:0.5"
    odd.mkdir()
    assert parse_shards(str(odd)) == {str(odd): None}
    assert shards_name(str(odd)) == "a:0.5,b:0.5"
    assert shards_name("data/books:0.7,data/web:0.3") == "books+web"


@pytest.mark.parametrize(
    "text, said",
    [
        ("a,b", "'a,b' has no weight"),
        ("a:0.7,b", "'b' has no weight; give one directory, or each with its weight"),
        ("a:0.7,a:0.3", "names a twice"),
        ("a:0.7.1,b:1", "'0.7.1' is not a number"),
    ],
)
def test_wrong_shards_flags(text, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        parse_shards(text)
