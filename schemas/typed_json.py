"""Writes dataclasses as JSON, and reads them with type checks and errors that name the field.

The written bytes depend only on the values: keys are sorted, there are no times, and a list of
plain values is one line, to be readable. JSON that is read may come from an untrusted source: keys
must be unique, numbers finite and texts valid Unicode. Python 3.8 syntax.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import hashlib
import json
import math
import os
import re
import reprlib
from itertools import count, islice, repeat
from typing import (
    Any,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from textmill.schemas.errors import DataError, describe_refusal
from textmill.schemas.files.store import open_regular

T = TypeVar("T")
MAX_BYTES = 256 << 20  # of a JSON file: enough for the stats.json of 300,000 shards
_DEEPEST = 8  # nested lists and objects in values of any type
_MOST = 1 << 64  # numbers in values of any type are below it, as seeds are

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200
_short.maxlevel, _short.maxdict, _short.maxlist, _short.maxtuple = 4, 10, 10, 10
_short.maxlong = 40


def quote(value: Any) -> str:
    """A value for an error message, abbreviated if it is long."""
    return _short.repr(value)


@contextlib.contextmanager
def pause_collector() -> Iterator[None]:
    """Disables garbage collection while many objects are created, none of them garbage.

    It saves a fifth of the time to load a vocabulary of 200,000 tokens, and 1 s of 65,536 shards.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def to_json(values: Any) -> bytes:
    """A dataclass or JSON value as UTF-8, with sorted keys and a final newline."""
    if dataclasses.is_dataclass(values) and not isinstance(values, type):
        values = dataclasses.asdict(values)
    return (_render(values, "\n") + "\n").encode()


def _render(value: Any, newline: str) -> str:
    """JSON of `value`; `newline` includes the indentation of its first line."""
    deeper = newline + "  "
    if isinstance(value, dict) and value:
        items = (
            f"{json.dumps(str(key), ensure_ascii=False)}: {_render(value[key], deeper)}"
            for key in sorted(value)
        )
        return "{" + deeper + ("," + deeper).join(items) + newline + "}"
    if isinstance(value, (list, tuple)) and any(isinstance(i, (dict, list, tuple)) for i in value):
        items = (_render(item, deeper) for item in value)
        return "[" + deeper + ("," + deeper).join(items) + newline + "]"
    return json.dumps(value, ensure_ascii=False)


def hash_json(values: Any) -> str:
    """sha256 of values as canonical JSON: sorted keys, no white space."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def load_json(path: str) -> Any:
    """The parsed content of a JSON file.

    Raises:
      DataError: the file is missing, cannot be read, is too large, or is not UTF-8 JSON.
    """
    return parse_json(read_bounded(path), path)


def read_bounded(path: str, most: int = MAX_BYTES) -> bytes:
    """Reads a file of at most `most` bytes.

    Raises:
      DataError: it is missing, cannot be read, is not a regular file, is larger, or ends in NULs.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size:  # check the end first: a sparse file may be gigabytes long
                file.seek(-1, os.SEEK_END)
                if file.read(1) == b"\0":
                    raise DataError(f"{path} ends in NUL bytes: copy or build the dataset again")
                file.seek(0)
            content = file.read(most + 1) if size <= most else b""
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing") from error
    except OSError as error:
        raise describe_refusal(path, error) from error
    size = max(size, len(content))
    if size > most:
        raise DataError(
            f"{path} has {size:,} bytes, but such a file of a dataset has at most {most:,}"
        )
    return content


def parse_json(content: bytes, place: str) -> Any:
    """Parses JSON; `place` is its name in errors.

    Raises:
      DataError: it is not UTF-8 JSON, or has a duplicate key, NaN, an infinite number, or a lone
        surrogate.
    """
    try:
        value = json.loads(
            content.decode(),
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
        if b"\\u" in content:  # the only way to write a lone surrogate, which encode() rejects
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place} is not JSON: {error}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {quote(twice)} occurs twice")
    return fields


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text:.40} is too large for a number")
    return value


class _Misfit(Exception):
    """A value of a wrong type: its path in the whole value, and a description."""

    def __init__(self, what: str):
        self.path, self.what = "", what


def from_json(cls: type[T], value: Any, place: str) -> T:
    """Converts parsed JSON to a dataclass; it must have exactly the fields of the class.

    Args:
      cls: a dataclass with fields of int, float, str, bool, Any, Optional, Dict[str, ...], Tuple
        and such dataclasses.
      value: parsed JSON.
      place: the name of the value in errors: "/data/set/schema.json".

    Raises:
      DataError: a field is missing, unknown, of a different type (`schema.json: features[2].dtype
        is 5, not of type str`), or rejected by the dataclass itself.
    """
    try:
        return _decoder(cls)(value)
    except _Misfit as misfit:
        inside = f": {misfit.path.lstrip('.')}" if misfit.path else ""
        raise DataError(f"{place}{inside}{misfit.what}") from misfit.__cause__


@functools.lru_cache(maxsize=None)
def _decoder(kind: Any) -> Callable[[Any], Any]:
    """The decoder of values of a type. Cached, since 65,536 shards have 2 million values."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return _decode_any
    if origin is Union:  # metadata files use Optional[X] only
        decode = _decoder(arguments[0])
        return lambda value: None if value is None else decode(value)
    if origin is dict:
        return functools.partial(_decode_dict, _decoder(arguments[1]))
    if origin is tuple:
        return functools.partial(_decode_tuple, arguments)
    if dataclasses.is_dataclass(kind):
        fields = {name: _decoder(hint) for name, hint in get_type_hints(kind).items()}
        return functools.partial(_decode_object, kind, fields)
    return functools.partial(_expect, kind)


def _decode_parts(decoders: Iterable[Any], values: Iterable[Any], keys: Iterable[Any]) -> list[Any]:
    """Decodes the parts of a value; an error gets the key of its part."""
    decoded: list[Any] = []
    try:
        for decode, value in zip(decoders, values):
            decoded.append(decode(value))
    except _Misfit as misfit:
        key = next(islice(keys, len(decoded), None))
        misfit.path = (f"[{key}]" if isinstance(key, int) else f".{key}") + misfit.path
        raise
    return decoded


def _decode_dict(decode: Callable[[Any], Any], value: Any) -> dict[str, Any]:
    values = _expect(dict, value)
    return dict(zip(values, _decode_parts(repeat(decode), values.values(), values)))


def _decode_object(cls: Any, fields: dict[str, Callable[[Any], Any]], value: Any) -> Any:
    values = _expect(dict, value)
    if values.keys() != fields.keys():
        missing, unknown = sorted(fields.keys() - values), sorted(values.keys() - fields)
        raise _Misfit(
            f": missing fields {quote(missing)}, unknown fields {quote(unknown)}: it was written "
            "by another version of Textmill, or edited; build the dataset again"
        )
    decoded = _decode_parts(fields.values(), map(values.__getitem__, fields), fields)
    try:
        return cls(**dict(zip(fields, decoded)))
    except DataError as error:
        raise _Misfit(f": {error}") from error


def _decode_tuple(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    items = _expect(list, value)
    if kinds[1:] == (Ellipsis,):
        if kinds[0] is int and set(map(type, items)) <= {int}:  # fast path for histograms
            return tuple(items)
        kinds = kinds[:1] * len(items)
    if len(items) != len(kinds):
        raise _Misfit(f" has {len(items)} items, not {len(kinds)}")
    return tuple(_decode_parts(map(_decoder, kinds), items, count()))


def _expect(kind: type, value: Any) -> Any:
    # JSON has one type of number: 1 may be 1.0. A bool is not a number, although it is one in
    # Python.
    is_float = kind is float and type(value) in (int, float) and abs(value) <= 1e300
    if not is_float and (type(value) is not kind or kind is float):
        raise _Misfit(f" is {quote(value)}, not of type {kind.__name__}")
    return value


def _decode_any(value: Any, deeper: int = _DEEPEST) -> Any:
    """A value of any type with limited nesting and limited numbers."""
    if isinstance(value, (dict, list)):
        if not deeper:
            raise _Misfit(f" is nested in more than {_DEEPEST} lists or objects")
        for part in value.values() if isinstance(value, dict) else value:
            _decode_any(part, deeper - 1)
    if isinstance(value, (int, float)) and abs(value) >= _MOST:
        raise _Misfit(f" has {quote(value)}: must be below 2**64")
    return value


class Constraint(NamedTuple):
    """A test of a value, and a description of valid values for errors."""

    is_good: Callable[[Any], bool]
    remedy: str


def number(low: int, high: int) -> Constraint:
    """Integers from `low` to `high`, both included."""
    return Constraint(
        lambda v: type(v) is int and low <= v <= high, f"a number from {low} to {high}"
    )


def one_of(*names: str) -> Constraint:
    """One of some texts."""
    return Constraint(lambda v: type(v) is str and v in names, "one of " + ", ".join(names))


def text_like(pattern: str, remedy: str) -> Constraint:
    """Texts that a regular expression matches completely."""
    match = re.compile(pattern).fullmatch
    return Constraint(lambda v: type(v) is str and match(v) is not None, remedy)


SHA256 = text_like("[0-9a-f]{64}", "64 hex digits")


def check(good: bool, name: str, value: Any, remedy: str) -> None:
    """Raises DataError with a remedy for a value that is not good."""
    if not good:
        raise DataError(f"{name} is {quote(value)}: {remedy}")


def check_constraints(values: Mapping[str, Any], constraints: Mapping[str, Constraint]) -> None:
    """Raises DataError for the first value that its constraint rejects."""
    for name, constraint in constraints.items():
        check(constraint.is_good(values[name]), name, values[name], constraint.remedy)
