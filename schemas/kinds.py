"""What a value in a sidecar may be: a test, and what belongs there. Python 3.8 syntax."""

import re
from typing import Any, Callable, Mapping, NamedTuple

from schemas.errors import DataError
from schemas.typed_json import quote


class Kind(NamedTuple):
    """A test of a value, and the words that say what would pass it."""

    is_good: Callable[[Any], bool]
    remedy: str


def number(low: int, high: int) -> Kind:
    """Whole numbers, both ends included."""
    return Kind(lambda v: type(v) is int and low <= v <= high, f"a number from {low} to {high}")


def share(most: float) -> Kind:
    """Numbers from 0 up to a largest one."""
    return Kind(lambda v: type(v) in (int, float) and 0 <= v <= most, f"from 0 to {most:g}")


def one_of(*names: str) -> Kind:
    """One of the given texts, and no other."""
    return Kind(lambda v: type(v) is str and v in names, "one of " + ", ".join(names))


def list_of_ids(vocab_size: int) -> Kind:
    """Lists of token ids; tuples too, as they are before they become JSON."""
    return Kind(
        lambda v: (
            isinstance(v, (list, tuple)) and all(type(i) is int and 0 <= i < vocab_size for i in v)
        ),
        "a list of ids below vocab_size",
    )


def text_like(pattern: str, remedy: str) -> Kind:
    """Texts that a regular expression matches from end to end."""
    match = re.compile(pattern).fullmatch
    return Kind(lambda v: type(v) is str and match(v) is not None, remedy)


TEXT = Kind(lambda v: type(v) is str, "a text")
YES_NO = Kind(lambda v: type(v) is bool, "true or false")
SHA256 = text_like("[0-9a-f]{64}", "64 hex digits")


def check(good: bool, name: str, value: Any, remedy: str) -> None:
    """Raises DataError for a value that is not good, with what to do."""
    if not good:
        raise DataError(f"{name} is {quote(value)}: {remedy}")


def check_kinds(values: Mapping[str, Any], kinds: Mapping[str, Kind]) -> None:
    """Raises DataError for the first of these kinds whose value is not of it."""
    for name, kind in kinds.items():
        check(kind.is_good(values[name]), name, values[name], kind.remedy)
