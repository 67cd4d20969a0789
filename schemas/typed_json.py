"""Dataclasses to JSON and back: every type checked on the way in, every error placed.

What is written is a function of the values alone: sorted keys, no times. A list of plain values
stands on one line, so that a shape or a histogram is read at a glance.
"""

import dataclasses
import functools
import json
from typing import Any, Dict, Type, TypeVar, Union, get_args, get_origin, get_type_hints

from schemas.errors import DataError, refused

T = TypeVar("T")


def to_json(values: Any) -> bytes:
    """A dataclass, or what JSON can hold, as UTF-8 with sorted keys and a final newline."""
    if dataclasses.is_dataclass(values) and not isinstance(values, type):
        values = dataclasses.asdict(values)
    return (_render(values, "\n") + "\n").encode()


def _render(value: Any, newline: str) -> str:
    """JSON of `value`; `newline` carries the indent of the line it begins on."""
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


def load_json(path: str) -> Any:
    """The parsed content of a JSON file.

    Raises:
      DataError: the file is missing, may not be read or is not UTF-8 JSON.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing") from error
    except OSError as error:
        raise refused(path, error) from error
    return parse_json(content, path)


def parse_json(content: bytes, place: str) -> Any:
    """Parsed JSON; `place` names it in errors.

    Raises:
      DataError: it is not UTF-8 JSON.
    """
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place} is not JSON: {error}") from error


@functools.lru_cache(maxsize=None)
def _hints(cls: type) -> Dict[str, Any]:
    return get_type_hints(cls)


def from_json(cls: Type[T], value: Any, place: str) -> T:
    """Parsed JSON as a dataclass whose fields it names, all of them and no others.

    Args:
      cls: a dataclass of int, float, str, bool, Any, Optional, Dict[str, ...], Tuple and further
        such dataclasses.
      value: parsed JSON.
      place: names the value in errors: "/data/set/schema.json".

    Raises:
      DataError: a field is missing, unknown, of another type (`schema.json: features[2].dtype is
        5, not a str`), or refused by the dataclass itself.
    """
    fields = _expect(value, dict, place)
    kinds = _hints(cls)
    unknown, missing = sorted(set(fields) - set(kinds)), sorted(set(kinds) - set(fields))
    if unknown or missing:
        raise DataError(
            f"{place}: missing fields {missing}, unknown fields {unknown}: it was written by "
            "another version of Textmill or edited; build the set anew"
        )
    separator = ": " if place.endswith(".json") else "."
    decoded = {
        name: _decode(kind, fields[name], place + separator + name) for name, kind in kinds.items()
    }
    try:
        return cls(**decoded)
    except DataError as error:
        raise DataError(f"{place}: {error}") from error


def _decode(kind: Any, value: Any, place: str) -> Any:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return from_json(kind, value, place)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Union:  # Optional[X] is all that sidecars use
        return None if value is None else _decode(arguments[0], value, place)
    if origin is dict:
        items = _expect(value, dict, place).items()
        return {key: _decode(arguments[1], item, f"{place}.{key}") for key, item in items}
    if origin is tuple:
        items = _expect(value, list, place)
        if arguments[1:] == (Ellipsis,):
            arguments = arguments[:1] * len(items)
        if len(items) != len(arguments):
            raise DataError(f"{place} has {len(items)} items, not {len(arguments)}")
        pairs = enumerate(zip(arguments, items))
        return tuple(_decode(kind, item, f"{place}[{i}]") for i, (kind, item) in pairs)
    return value if kind is Any else _expect(value, kind, place)


def _expect(value: Any, kind: type, place: str) -> Any:
    # JSON has one kind of number: 1 may stand for 1.0. A bool is no number, although Python's is.
    kinds = (int, float) if kind is float else (kind,)
    if type(value) not in kinds:
        raise DataError(f"{place} is {value!r:.80}, not of type {kind.__name__}")
    return value
