"""Changes of single fields of a dataset's metadata files.

A field is dropped or becomes null, a value of another type, another number, 0, a negative or huge
number, NaN, an empty value, another text, half a character, control characters or a value that is
nested too deep; or its key occurs twice.
"""

import copy
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.tools.shard_factory import sign
from textmill.schemas.format.manifest import MANIFEST
from textmill.schemas.format.statistics import HISTOGRAMS

METADATA_FILES = (
    MANIFEST,
    *("config.yaml", "dataset_info.json", "features.json"),
    *("inputs.json", "schema.json", "stats.json"),
)
# Fields that are computed from others: they are corrected at these levels.
_CORRECTED = {
    f"{MANIFEST}: digest": ("sums",),
    "schema.json: fingerprint": ("all",),
    "stats.json: splits": ("all",),
    "stats.json: total": ("all",),
}
_DEEP, _TWICE = "__deep__", "__twice__"
FIELDS: dict[str, Callable[[Any], Any]] = {
    "drop field": lambda value: None,
    "null": lambda value: None,
    "other type": lambda value: [value] if not isinstance(value, list) else {"a": value},
    "as text": str,
    "bool": lambda value: True,
    "other number": lambda value: value + 1 if isinstance(value, int) else (value or 1) / 2,
    "0": lambda value: 0,
    "negative": lambda value: -1,
    "2**31": lambda value: 2**31,
    "2**63": lambda value: 2**63,
    "1e30": lambda value: 1e30,
    "NaN": lambda value: math.nan,
    "infinite": lambda value: math.inf,
    "empty value": lambda value: type(value)(),
    "other text": lambda value: value + "x",
    "half a character": lambda value: "\ud800",
    "control characters": lambda value: "\x1b[31m\x00\n",
    "path": lambda value: "../../etc/passwd",
    "deep": lambda value: _DEEP,
    "twice": lambda value: _TWICE,
}
_ONLY_OF = {
    "other number": (int, float),
    "empty value": (str, list, dict),
    "other text": (str,),
    "path": (str,),
}


def field_changes(directory: Path) -> Iterator[tuple[str, str, str, tuple[str | int, ...]]]:
    """(file, way, level, path) of all changes of all fields of a dataset."""
    for name in METADATA_FILES:
        if not (directory / name).exists():
            continue
        for path, value in _fields(_load(directory / name)):
            for way in FIELDS:
                if way == "0" and value == 0:  # 0 for 0.0 is the same number
                    continue
                if type(value) is not bool and isinstance(value, _ONLY_OF.get(way, object)):
                    yield from ((name, way, level, path) for level in _levels(name, path))


def _levels(name: str, path: tuple[str | int, ...]) -> list[str]:
    """The levels at which a change of a field is another than at the level before."""
    levels = (
        ["as is", "sums", "all"] if name in ("schema.json", "stats.json") else ["as is", "sums"]
    )
    corrected = _CORRECTED.get(f"{name}: {path[0]}", ())
    return [level for level in levels if level not in corrected]


def _fields(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key), item
        if isinstance(item, dict | list):
            yield from _fields(item, (*path, key))


def _load(file: Path) -> Any:
    text = file.read_text()
    return yaml.safe_load(text) if file.suffix == ".yaml" else json.loads(text)


def change_field(file: Path, path: tuple[str | int, ...], way: str, level: str) -> None:
    """Changes a field of a metadata file; writes nothing if this changes nothing."""
    before = _load(file)
    values = copy.deepcopy(before)
    holder = values
    for key in path[:-1]:
        holder = holder[key]
    key = path[-1]
    if way == "drop field":
        del holder[key]
    elif way != "twice":
        holder[key] = FIELDS[way](holder[key])
    elif isinstance(holder, dict):
        holder[_TWICE] = copy.deepcopy(holder[key])
    if _text(values, key) == _text(before, key):
        return
    if file.name == MANIFEST and level == "sums":
        sign(values)
    if file.suffix == ".yaml":
        file.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
    else:
        file.write_text(_text(values, key))


def _text(values: Any, key: str | int) -> str:
    text = json.dumps(values, sort_keys=True).replace(f'"{_DEEP}"', "[" * 700 + "]" * 700)
    return text.replace(f'"{_TWICE}"', json.dumps(key))


def add_up_statistics(values: dict[str, Any]) -> dict[str, Any]:
    """A stats.json with the sums and efficiencies that follow from the counts of its shards.

    Raises:
      ValueError: counts are not numbers, or are missing.
    """
    splits: dict[str, list] = {}
    try:
        for name, shard in values["shards"].items():
            splits.setdefault(name.rsplit("-", 3)[0], []).append(shard)
        sums = {name: _add_up(shards, values["row_tokens"]) for name, shards in splits.items()}
        total = _add_up(list(values["shards"].values()), values["row_tokens"])
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError) as error:
        raise ValueError("stats.json has no sums") from error
    return {**values, "splits": sums, "total": total}


def _add_up(shards: list[dict], row_tokens: int) -> dict[str, Any]:
    total: dict[str, Any] = {
        name: sum(shard[name] for shard in shards)
        for name in shards[0]
        if name not in ("labels", *HISTOGRAMS)
    }
    for name in HISTOGRAMS:
        total[name] = [sum(bins) for bins in zip(*(s[name] for s in shards), strict=True)]
    total["labels"] = dict(sum((Counter(shard["labels"]) for shard in shards), Counter()))
    positions = total["rows"] * row_tokens
    efficiency = round(total["tokens_in_rows"] / positions, 6) if positions else 0.0
    return {**total, "packing_efficiency": efficiency}
