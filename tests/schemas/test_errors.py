"""Messages name flags for a user of commands, and keywords for a caller of functions."""

import contextvars
import pickle

import pytest

from textmill.schemas.errors import (
    DataError,
    FieldDataError,
    FieldError,
    UsageError,
    as_flags,
    as_keywords,
    as_typed,
    either,
    flag,
    one_line,
    speak_to_caller,
    spell,
)


@pytest.mark.parametrize(
    ("marked", "command", "python"),
    [
        (flag("seed"), "--seed", "seed"),
        (flag("seed", -1), "--seed=-1", "seed=-1"),
        (flag("fast", True), "--fast", "fast=True"),
        (flag("fast", False), "--no_fast", "fast=False"),
        (flag("files", None), "--files=None", "files=None"),
        (flag("filter", "True"), "--filter=True", "filter=True"),
        (flag("filter", "a--b\n c"), "--filter=a--b\n c", "filter=a--b\n c"),
        (as_typed("--max-length=a--b"), "--max-length=a--b", "max_length=a--b"),
        (either("python -m x", "textmill.x"), "python -m x", "textmill.x"),
        (f"{flag('a')}, {flag('b', 2)}", "--a, --b=2", "a, b=2"),
        ("a--b --c ---d", "a--b --c ---d", "a--b --c ---d"),
    ],
)
def test_a_flag_has_two_spellings(marked, command, python):
    assert (as_flags(marked), as_keywords(marked)) == (command, python)
    context = contextvars.copy_context()
    context.run(speak_to_caller)
    assert (spell(marked), context.run(spell, marked)) == (command, python)


def test_marks_of_a_users_text_are_replaced():
    marks = "".join(c for c in flag("a", "b") if not c.isprintable())
    assert len(marks) == 3
    marked = flag("input", f"a{marks[0]}--b{marks[1]}c{marks[2]}")
    assert as_keywords(marked) == "input=a\ufffd--b\ufffdc\ufffd"


ERRORS = [
    UsageError(f"{flag('input')} is empty"),
    DataError(f"{flag('input')} is empty"),
    FieldError("near", "x", f"give {flag('seed', 2)}"),
    FieldError("near", ("x", 3), f"give {flag('seed', 2)}"),
    FieldDataError("near", "x", f"give {flag('fast', True)}"),
]


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_errors_keep_their_marks(error):
    copy = pickle.loads(pickle.dumps(error))
    outer = DataError(one_line(copy))
    context = contextvars.copy_context()
    context.run(speak_to_caller)
    for each in (error, copy, outer):
        assert str(each) == as_flags(error.marked)
        assert (
            context.run(str, each)
            == each.in_python()
            == str(error).replace("--", "").replace("fast", "fast=True")
        )
