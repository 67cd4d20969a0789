"""Dataclasses to JSON and back: every type checked on the way in, every error placed.

What is written is a function of the values alone: sorted keys, no times. A list of plain values
stands on one line, so that a shape or a histogram is read at a glance. What is read may come from a
stranger: no key stands twice, numbers are finite and texts are Unicode.
"""

import dataclasses
import functools
import json
import math
import os
import reprlib
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Tuple,
    Type,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from schemas.errors import DataError, describe_refusal

T = TypeVar("T")
MAX_BYTES = 256 << 20  # of a JSON file: stats.json of 300,000 shards
_DEEPEST = 8  # lists and objects in one another, where any value may stand
_MOST = 1 << 64  # of a number without a name: a seed is below it

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200
_short.maxlevel, _short.maxdict, _short.maxlist, _short.maxtuple = 4, 10, 10, 10
_short.maxlong = 40


def quote(value: Any) -> str:
    """A value in an error: whole where it is short, whatever a stranger has put there."""
    return _short.repr(value)


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
      DataError: the file is missing, may not be read, is too large, or is not UTF-8 JSON.
    """
    return parse_json(read_bounded(path), path)


def read_bounded(path: str, most: int = MAX_BYTES) -> bytes:
    """All bytes of a file that is not larger than such files are.

    Raises:
      DataError: it is missing, cannot be read, or is larger.
    """
    try:
        with open(path, "rb") as file:
            _refuse_hole(file, path)
            content = file.read(most + 1) if _size(file) <= most else b""
            size = max(_size(file), len(content))
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing") from error
    except OSError as error:
        raise describe_refusal(path, error) from error
    if size > most:
        raise DataError(
            f"{path} has {size:,} bytes, more than the {most:,} that such a file may have: it is "
            "no part of a shard set"
        )
    return content


def _refuse_hole(file: Any, path: str) -> None:
    """Refuses what ends in a NUL byte before all is read: it may have grown by gigabytes."""
    if _size(file):
        file.seek(-1, os.SEEK_END)
        if file.read(1) == b"\0":
            raise DataError(f"{path} ends in NUL bytes: copy the set again or build it anew")
        file.seek(0)


def _size(file: Any) -> int:
    return os.fstat(file.fileno()).st_size


def parse_json(content: bytes, place: str) -> Any:
    """Parsed JSON; `place` names it in errors.

    Raises:
      DataError: it is not UTF-8 JSON, or has a key twice, NaN, an infinite number, or half a
        character.
    """
    try:
        value = json.loads(
            content.decode(),
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
        if b"\\u" in content:  # only so could half a character (a lone surrogate) be written
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place} is not JSON: {error}") from error


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {quote(twice)} is there twice")
    return fields


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text:.40} is no number that a computer has")
    return value


# Where a value stands: "stats.json", or a place and what leads on from it. Spelt only in errors.
_Place = Union[str, Tuple[Any, str]]
_Decode = Callable[[Any, _Place], Any]


def _tell(place: _Place) -> str:
    return place if isinstance(place, str) else _tell(place[0]) + place[1]


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
    return _decode_object(cls, value, place)


@functools.lru_cache(maxsize=None)
def _fields(cls: type) -> Dict[str, _Decode]:
    return {name: _decoder(kind) for name, kind in get_type_hints(cls).items()}


def _decode_object(cls: Any, value: Any, place: _Place) -> Any:
    values, decoders = _expect(dict, value, place), _fields(cls)
    if values.keys() != decoders.keys():
        missing, unknown = sorted(decoders.keys() - values), sorted(values.keys() - decoders)
        raise DataError(
            f"{_tell(place)}: missing fields {quote(missing)}, unknown fields {quote(unknown)}: it "
            "was written by another version of Textmill or edited; build the set anew"
        )
    joint = ": " if isinstance(place, str) and place.endswith(".json") else "."
    decoded = {
        name: decode(values[name], (place, joint + name)) for name, decode in decoders.items()
    }
    try:
        return cls(**decoded)
    except DataError as error:
        raise DataError(f"{_tell(place)}: {error}") from error


@functools.lru_cache(maxsize=None)
def _decoder(kind: Any) -> _Decode:
    """What turns parsed JSON into values of a kind. Cached: 65,536 shards have 2 million values."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Union:  # Optional[X] is all that sidecars use
        given = _decoder(arguments[0])
        return lambda value, place: None if value is None else given(value, place)
    if origin is dict:
        item = _decoder(arguments[1])
        return lambda value, place: {
            key: item(one, (place, f".{key}")) for key, one in _expect(dict, value, place).items()
        }
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return functools.partial(_decode_list, arguments[0])
    if origin is tuple:
        return functools.partial(_decode_tuple, arguments)
    if dataclasses.is_dataclass(kind):
        return functools.partial(_decode_object, kind)
    return _plain if kind is Any else functools.partial(_expect, kind)


def _decode_list(kind: Any, value: Any, place: _Place) -> Tuple[Any, ...]:
    items = _expect(list, value, place)
    if kind is int and set(map(type, items)) <= {int}:  # a histogram at once
        return tuple(items)
    return _decode_tuple((kind,) * len(items), items, place)


def _decode_tuple(kinds: Tuple[Any, ...], value: Any, place: _Place) -> Tuple[Any, ...]:
    items = _expect(list, value, place)
    if len(items) != len(kinds):
        raise DataError(f"{_tell(place)} has {len(items)} items, not {len(kinds)}")
    pairs = enumerate(zip(kinds, items))
    return tuple(_decoder(kind)(item, (place, f"[{i}]")) for i, (kind, item) in pairs)


def _expect(kind: type, value: Any, place: _Place) -> Any:
    # JSON has one kind of number: 1 may stand for 1.0. A bool is no number, although Python's is.
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise DataError(f"{_tell(place)} is {quote(value)}, not of type {kind.__name__}")
    if kind is float and abs(value) > 1e300:
        raise DataError(f"{_tell(place)} is {quote(value)}, not of type float")
    return value


def _plain(value: Any, place: _Place, deeper: int = _DEEPEST) -> Any:
    """A value of any type, if it is neither nested without end nor a number without end."""
    if isinstance(value, (dict, list)):
        if not deeper:
            raise DataError(f"{_tell(place)} is nested in more than {_DEEPEST} lists or objects")
        for part in value.values() if isinstance(value, dict) else value:
            _plain(part, place, deeper - 1)
    if isinstance(value, (int, float)) and abs(value) >= _MOST:
        raise DataError(f"{_tell(place)} holds {quote(value)}: below 2**64")
    return value
