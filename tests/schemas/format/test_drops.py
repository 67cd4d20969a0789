"""Reasons, sizes and samples of dropped documents add up; those of others are bounded."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textmill.pipelines.corpus.filters import Filters
from textmill.schemas.errors import DataError
from textmill.schemas.format import drops
from textmill.schemas.format.drops import (
    DROPS,
    FILTERED,
    LONGEST,
    REJECTED,
    SAMPLES,
    DroppedDocument,
    Funnel,
    Removed,
    describe_dropped,
    drop_of,
    shorten,
    total_counts,
)
from textmill.schemas.typed_json import from_json, to_json


def test_a_line_a_title_whatever_the_reason():
    dropped = {"too_long": 2, "min_words": 9, "duplicates": 1234, "filter:ad": 1, "no_tokens": 0}
    assert describe_dropped(dropped) == {
        "duplicates": "1,234 dropped",
        "filtered": "1 filter:ad, 9 min words",
        "rejected": "2 too long",
    }
    titles = ["duplicates", "held out", "filtered", "rejected"]
    assert list(describe_dropped(dropped | {"held_out": 3})) == titles
    assert describe_dropped({}) == {}
    assert describe_dropped({"empty": 0}, ("rejected",)) == {"rejected": "none"}
    about = describe_dropped({"duplicates": 5.5}, (), lambda drop, n: f"{drop.name} {n:.1f}")
    assert about == {"duplicates": "duplicates 5.5 dropped"}


def test_every_reason_has_a_title_with_or_without_a_row():
    assert drop_of("filter:spam").title == drop_of("min_chars").title == FILTERED
    assert drop_of("whatever a task says").title == REJECTED
    for name, drop in DROPS.items():
        of_rule = any(name in group.REASONS for _, group in Filters().groups())
        assert of_rule <= (drop.title == FILTERED)
    of_rules = {name for _, group in Filters().groups() for name in group.REASONS}
    assert {drop_of(name).title for name in of_rules} == {FILTERED}
    assert total_counts({"a": 1, "b": 0}, {"a": 2, "c": 3}) == {"a": 3, "c": 3}


def _name(number: int) -> str:
    return f"{number:032x}"


def _funnel(numbers: list[int]) -> Funnel:
    """Documents that are their numbers, each dropped for its rest by 3."""
    dropped = [Removed(1, n, 2 * n, (DroppedDocument(_name(n), f"t{n}"),)) for n in numbers]
    return Funnel.sum(
        Funnel(1, n, 2 * n, removed={f"r{n % 3}": own})
        for n, own in zip(numbers, dropped, strict=True)
    )


@given(st.lists(st.integers(0, 99)), st.integers(0, 99), st.randoms(use_true_random=False))
def test_samples_are_the_smallest_in_any_order_and_cut(numbers, cut, random):
    whole = _funnel(numbers)
    shuffled = random.sample(numbers, len(numbers))
    assert Funnel.sum([_funnel(shuffled[:cut]), Funnel(), _funnel(shuffled[cut:])]) == whole
    assert (whole.documents, whole.text_bytes) == (len(numbers), sum(numbers))
    for reason in range(3):
        own = [n for n in numbers if n % 3 == reason]
        removed = whole.removed.get(f"r{reason}", Removed())
        assert (removed.documents, removed.words) == (len(own), 2 * sum(own))
        least = sorted(set(own))[:SAMPLES]
        assert [sample.document for sample in removed.samples] == [_name(n) for n in least]


def test_reasons_beyond_a_hundred_have_no_samples(monkeypatch):
    monkeypatch.setattr(drops, "SAMPLED_REASONS", 2)
    removed = Removed(1, 1, 1, (DroppedDocument(_name(1), "x"),))
    parts = [Funnel(removed={f"filter:{name}": removed}) for name in "cab"]
    for order in (parts, parts[::-1]):
        whole = Funnel.sum([Funnel.sum(order[:2]), *order[2:]])
        samples = {name: len(own.samples) for name, own in sorted(whole.removed.items())}
        assert samples == {"filter:a": 1, "filter:b": 1, "filter:c": 0}
    assert shorten("é" * LONGEST) == "é" * LONGEST
    assert shorten("é" * (LONGEST + 1)) == "é" * LONGEST + "…"


KEPT = {"documents": 4, "text_bytes": 100, "words": 30}
DROPPED = {"duplicates": 3, "min_chars": 2, "empty": 1}


def _example() -> Funnel:
    """9 documents: 2 too short, 3 repeats, 4 kept, of which an edit took 5 bytes."""
    removed = {
        "duplicates": Removed(
            3, 60, 18, (DroppedDocument(_name(1), "a"), DroppedDocument(_name(7), "b"))
        ),
        "min_chars": Removed(2, 4, 2, (DroppedDocument(_name(3), "c", "why"),)),
    }
    return Funnel(9, 169, 50, 5, removed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"documents": 8}, "funnel: documents given 8 != kept 4 + removed 5"),
        ({"text_bytes": 0}, "funnel: text_bytes given 0 != kept 100 + removed 64 + edited 5"),
        ({"edited_bytes": 0}, "funnel: text_bytes given 169 != kept 100 + removed 64"),
        ({"words": 51}, "funnel: words given 51 != kept 30 + removed 20"),
    ],
)
def test_its_equations(change, said):
    funnel = _example()
    assert list(funnel.broken_equations(KEPT, DROPPED)) == []
    assert list(replace(funnel, **change).broken_equations(KEPT, DROPPED)) == [said]


def test_every_reason_is_counted_as_often_as_elsewhere():
    removed = dict(_example().removed, filter=Removed(0, 0, 0))
    removed["max_chars"] = removed.pop("min_chars")
    changed = replace(_example(), removed=removed)
    assert list(changed.broken_equations(KEPT, DROPPED)) == [
        "funnel: filter: documents removed 0 != counted 0",
        "funnel: max_chars: documents removed 2 != counted 0",
        "funnel: min_chars: documents removed 0 != counted 2",
    ]


def test_it_is_read_as_it_was_written():
    written = json.loads(to_json(_example()))
    assert written["removed"]["min_chars"]["samples"] == [
        {"document": _name(3), "excerpt": "c", "detail": "why"}
    ]
    assert from_json(Funnel, written, "stats.json") == _example()


ABSURD = {
    "no number": (["documents"], "9", "documents is '9', not of type int"),
    "below zero": (["removed", "min_chars", "words"], -1, "words is -1: a count is at least 0"),
    "beyond numbers": (["edited_bytes"], 1 << 53, "a count is at least 0, and below 2..53"),
    "unknown": (["more"], 1, "unknown fields .'more'."),
    "no hash": (["removed", "min_chars", "samples", 0, "document"], "x", "not 32 hexadecimal"),
    "long": (["removed", "min_chars", "samples", 0, "excerpt"], "x" * 302, "has 302 characters"),
    "long why": (["removed", "min_chars", "samples", 0, "detail"], "x" * 302, "has 302 characters"),
    "no text": (["removed", "min_chars", "samples", 0, "excerpt"], 5, "is 5, not of type str"),
    "many": (
        ["removed", "duplicates", "samples"],
        [{"document": _name(n), "excerpt": "", "detail": ""} for n in range(4)],
        "duplicates: 4 samples of 3 documents",
    ),
    "twice": (
        ["removed", "duplicates", "samples"],
        [{"document": _name(1), "excerpt": "", "detail": ""}] * 2,
        "at most 20 different documents",
    ),
}


@pytest.mark.parametrize(("path", "value", "said"), ABSURD.values(), ids=ABSURD)
def test_a_strangers_is_refused_where_it_is_absurd(path, value, said):
    written = json.loads(to_json(_example()))
    place = written
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(DataError, match=f"stats.json.*{said}"):
        from_json(Funnel, written, "stats.json")
