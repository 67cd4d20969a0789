"""The reasons for which documents are dropped, and their text for people."""

from pipelines.corpus.filters import Filters
from schemas.drops import (
    DROPS,
    FILTERED,
    REJECTED,
    describe_dropped,
    drop_of,
    total_counts,
)


def test_a_line_a_title_whatever_the_reason():
    dropped = {"too_long": 2, "min_words": 9, "duplicates": 1234, "filter:ad": 1, "no_tokens": 0}
    assert describe_dropped(dropped) == {
        "duplicates": "1,234 dropped",
        "filtered": "1 filter:ad, 9 min_words",
        "rejected": "2 too_long",
    }
    assert list(describe_dropped(dropped | {"held_out": 3})) == [
        "duplicates",
        "held out",
        "filtered",
        "rejected",
    ]


def test_a_line_that_always_stands_says_none():
    assert describe_dropped({}) == {}
    assert describe_dropped({"empty": 0}, ("rejected",)) == {"rejected": "none"}


def test_numbers_are_written_as_the_printer_asks():
    about = describe_dropped({"duplicates": 5.5}, (), lambda drop, n: f"{drop.name} {n:.1f}")
    assert about == {"duplicates": "duplicates 5.5 dropped"}


def test_every_reason_has_a_title_with_or_without_a_row():
    assert drop_of("filter:spam").title == drop_of("min_chars").title == FILTERED
    assert drop_of("whatever a task says").title == REJECTED
    for name, drop in DROPS.items():
        of_rule = any(name in family.REASONS for _, family in Filters().families())
        assert of_rule <= (drop.title == FILTERED)


def test_counts_add_up_without_zeros():
    assert total_counts({"a": 1, "b": 0}, {"a": 2, "c": 3}) == {"a": 3, "c": 3}
