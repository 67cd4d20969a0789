"""Rows of span corruption: inputs and targets side by side, and no token lost."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.task_rows import make_rows, restored
from tests.tools.tokenizer_factory import TEXT, trained_tokenizer
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.inspection.checks.row_checks import count, row_problems
from textmill.pipelines.tasks.span_corruption import Noise
from textmill.schemas.errors import UsageError

REFERENCE = trained_tokenizer()
REFERENCE.add_special_tokens([f"<extra_id_{n}>" for n in range(40)])
TOKENIZER = LoadedTokenizer(REFERENCE.to_str().encode())
TASK = "--task=span_corruption"
EOS = 2
WORDS = " ".join(TEXT).split()


def ids_of(text):
    return REFERENCE.encode(text, add_special_tokens=False).ids


SENTINELS = ids_of("".join(f"<extra_id_{n}>" for n in range(40)))


def pairs_of(columns):
    """Inputs and targets of every segment, as lists of ids."""
    for row in range(len(columns["input_ids"])):
        for segment in range(1, columns["segment_ids"][row].max() + 1):
            yield tuple(
                columns[ids][row][columns[segments][row] == segment].tolist()
                for ids, segments in (
                    ("input_ids", "segment_ids"),
                    ("target_ids", "target_segment_ids"),
                )
            )


def texts_of(columns):
    """The text of every pair, sorted."""
    return sorted(restored(pair, SENTINELS, EOS) for pair in pairs_of(columns))


texts = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=60).map(" ".join), min_size=1, max_size=20
)


@given(
    texts,
    st.integers(8, 60),
    st.sampled_from(["best_fit", "none"]),
    st.sampled_from([0.15, 0.5]),
    st.integers(0, 20),
)
def test_every_text_comes_back_whole(documents, length, packing, density, more):
    flags = [TASK, f"--max_length={length}", f"--packing={packing}", f"--noise_density={density}"]
    if more:
        flags.append(f"--max_target_length={4 + more}")
    made = make_rows(TOKENIZER, {"text": documents}, *flags)
    columns, statistics = made.columns["train"], made.shards["train"].statistics
    assert row_problems(columns, made.schema) == []
    task = made.schema.parameters
    longest = Noise(density, 3.0).longest_piece(length, task["max_target_length"])
    pieces = [
        ids[start : start + longest]
        for ids in map(ids_of, set(documents))
        for start in range(0, len(ids), longest)
    ]
    assert texts_of(columns) == sorted(pieces)
    counted = count(columns)
    assert statistics.tokens + statistics.specials_added == statistics.tokens_in_rows
    assert counted["tokens_in_rows"] == statistics.tokens_in_rows
    assert statistics.tokens == sum(map(len, pieces))
    assert counted["segments"] == statistics.segments == len(pieces)
    if packing == "none":
        assert counted["rows"] == len(pieces)


def test_features_and_both_budgets():
    made = make_rows(TOKENIZER, {"text": TEXT}, TASK, "--max_length=100")
    assert [(f.name, f.dtype, f.shape) for f in made.schema.features] == [
        ("input_ids", "uint16", (100,)),
        ("segment_ids", "uint8", (100,)),
        ("target_ids", "uint16", (22,)),
        ("target_segment_ids", "uint8", (22,)),
    ]
    # 110 tokens: 16 of noise in 5 spans; 94 + 5 + 1 and 16 + 5 + 1.
    assert made.schema.row_tokens == 122
    parameters = made.schema.parameters
    assert parameters["max_target_length"] == 22
    assert parameters["sentinel_ids"] == SENTINELS[:5], "as many as the longest piece has spans"


def test_rows_are_full_in_the_dimension_that_binds():
    documents = [" ".join(WORDS[n % 40 : n % 40 + 5 + n % 7]) + str(n) for n in range(300)]
    made = make_rows(TOKENIZER, {"text": documents}, TASK, "--max_length=256")
    columns = made.columns["train"]
    inputs = (columns["segment_ids"] > 0).mean()
    targets = (columns["target_segment_ids"] > 0).mean()
    assert max(inputs, targets) > 0.9


def test_spans_follow_from_seed_and_content():
    documents = [" ".join(WORDS[n : n + 20]) for n in range(20)]
    make = [
        make_rows(TOKENIZER, {"text": texts}, TASK, *flags).columns["train"]
        for texts, flags in ((documents, []), (documents[::-1], []), (documents, ["--seed=1"]))
    ]
    assert all((make[0][name] == make[1][name]).all() for name in make[0])
    assert sorted(pairs_of(make[0])) != sorted(pairs_of(make[2]))
    assert texts_of(make[0]) == texts_of(make[2])


def test_a_text_with_a_sentinel_in_it_is_refused():
    documents = ["the fox", "a <extra_id_1> b <extra_id_0>", "dogs' beds"]
    made = make_rows(TOKENIZER, {"text": documents}, TASK)
    [reject] = made.routed.rejects
    assert (reject.reason, reject.detail) == (
        "sentinel_in_text",
        "the text contains <extra_id_1>, which is a sentinel",
    )
    assert texts_of(made.columns["train"]) == sorted([ids_of("the fox"), ids_of("dogs' beds")])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--max_length=1000"], "up to 55 spans.*no sentinel <extra_id_40>.*<extra_id_54>"),
        (["--sentinels=<s_{}>"], "no sentinel <s_0>"),
        (["--sentinels=the{}"], "no sentinel the0"),
        (["--sentinels=<x>"], "must have {} in place of the number"),
        (["--noise_density=0"], "must be between 0 and 1"),
        (["--noise_density=1"], "must be between 0 and 1"),
        (["--mean_span_length=0.5"], "must be from 1 to 65535"),
        (["--mean_span_length=65536"], "must be from 1 to 65535"),
        (["--max_target_length=-1"], "must be from 0 to"),
        (["--max_target_length=65536"], "must be from 0 to 65535"),
        (["--max_length=2"], "no room for a text of two tokens"),
        (["--max_target_length=2"], "no room for a text of two tokens"),
    ],
)
def test_flags_of_span_corruption_that_cannot_work_are_refused(flags, message):
    with pytest.raises(UsageError, match=message):
        make_rows(TOKENIZER, {"text": ["a"]}, TASK, *flags)


def test_the_shortest_rows_have_texts_of_two_tokens():
    flags = ["--max_length=3", "--mean_span_length=1"]
    made = make_rows(TOKENIZER, {"text": ["the fox"]}, TASK, *flags)
    ids = ids_of("the fox")
    pieces = [ids[start : start + 2] for start in range(0, len(ids), 2)]
    assert texts_of(made.columns["train"]) == sorted(pieces) and made.schema.row_tokens == 6


def test_a_tokenizer_without_eos_is_refused():
    bare = trained_tokenizer()
    content = bare.to_str().replace('"</s>"', '"[X]"')
    tokenizer = LoadedTokenizer(content.encode())
    with pytest.raises(UsageError, match="no eos token"):
        make_rows(tokenizer, {"text": ["a"]}, TASK)


BROKEN = [
    ("target_ids", lambda columns: 1, 60_000, r"target_ids\[1\] is 60000, not below"),
    ("target_ids", lambda columns: 0, SENTINELS[1], "^segment 1 of target_ids has sentinel 1, "),
    (
        "target_ids",
        lambda columns: np.flatnonzero(columns["target_segment_ids"][0] == 1)[-1],
        17,
        "is 17 at the end of a segment, not 2$",
    ),
    (
        "input_ids",
        lambda columns: np.flatnonzero(columns["input_ids"][0] == SENTINELS[0])[0],
        17,
        "sentinels in its inputs and",
    ),
    (
        "target_segment_ids",
        lambda columns: columns["target_segment_ids"][0] > 1,
        1,
        "the targets have segments 1 to 1, the inputs",
    ),
    ("target_ids", lambda columns: -1, 17, "is 17 in padding, not 1"),
]


@pytest.mark.parametrize(("name", "place", "value", "message"), BROKEN)
def test_broken_rows_of_span_corruption_are_named(name, place, value, message):
    """Good rows, with several spans a segment, after a change to row 0, then row 3."""
    documents = [" ".join(WORDS[n : n + 18]) + str(n) for n in range(24)]
    made = make_rows(TOKENIZER, {"text": documents}, TASK, "--max_length=80")
    columns = {key: values.copy() for key, values in made.columns["train"].items()}
    columns[name][0, place(columns)] = value
    columns = {key: np.roll(values, 3, axis=0) for key, values in columns.items()}
    problems = list(row_problems(columns, made.schema))
    assert {problem.row for problem in problems} == {3} and len(columns["input_ids"]) > 4
    assert any(re.search(message, problem.message) for problem in problems), problems
