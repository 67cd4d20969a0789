"""Values as JSON text, a column at a time: what `json.dumps` makes of each, byte by byte. Pure."""

import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

# What has an escape of its own beside quotes and backslashes.
_ODD = r"[\x00-\x1f]"
_ODD_IN_ASCII = r"[^ -~]"


def strings(texts: pa.LargeStringArray, *, in_ascii: bool = False) -> pa.LargeStringArray:
    r"""Strings: ['a', 'say "b"'] -> ['"a"', '"say \"b\""'].

    Args:
      texts: without nulls.
      in_ascii: escape all other characters, as `json.dumps` does if nothing is said.
    """
    odd = pc.match_substring_regex(texts, _ODD_IN_ASCII if in_ascii else _ODD)  # pyright: ignore[reportAttributeAccessIssue]
    escaped = pc.replace_substring(texts, "\\", "\\\\")  # pyright: ignore[reportAttributeAccessIssue]
    escaped = pc.replace_substring(escaped, '"', '\\"')  # pyright: ignore[reportAttributeAccessIssue]
    whole = _together('"', escaped, '"')
    if not odd.true_count:
        return whole
    exact = [json.dumps(text, ensure_ascii=in_ascii) for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(whole, odd, pa.array(exact, pa.large_string()))  # pyright: ignore[reportAttributeAccessIssue]


def lists(items: pa.LargeStringArray, lengths: np.ndarray) -> pa.LargeStringArray:
    """Lists of what is JSON already: ['1', '2', '3'], [2, 0, 1] -> ['[1, 2]', '[]', '[3]'].

    Args:
      items: of all lists, without nulls.
      lengths: int64 [n], of each list.
    """
    offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
    joined = pa.ListArray.from_arrays(offsets, items)
    comma = pa.scalar(", ", pa.large_string())
    return _together("[", pc.binary_join(joined, comma), "]")  # pyright: ignore[reportAttributeAccessIssue]


def objects(fields: Mapping[str, pa.LargeStringArray]) -> pa.LargeStringArray:
    """Objects of what is JSON already: {"a": ['1'], "b": ['"c"']} -> ['{"a": 1, "b": "c"}']."""
    parts: list[pa.LargeStringArray | str] = []
    for name, values in fields.items():
        parts += [f"{', ' if parts else '{'}{json.dumps(name)}: ", values]
    return _together(*parts, "}")


def _together(*parts: pa.LargeStringArray | str) -> pa.LargeStringArray:
    """Columns, and strings that stand in every row, one after another."""
    columns = [
        pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts
    ]
    nothing = pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(*columns, nothing)  # pyright: ignore[reportAttributeAccessIssue]


def json_of(column: pa.Array) -> pa.LargeStringArray:
    """Any values without nulls: [[{"text": "Ada", "start": 0}]] -> ['[{"text": "Ada", ...}]'].

    Raises:
      TypeError: of a type that no role has.
    """
    if pt.is_list(column.type):
        lengths = pc.list_value_length(column).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]
        return lists(json_of(column.flatten()), lengths)
    if pt.is_struct(column.type):
        return objects({field.name: json_of(column.field(field.name)) for field in column.type})
    if pt.is_string(column.type) or pt.is_large_string(column.type):
        return strings(column.cast(pa.large_string()), in_ascii=True)
    if pt.is_integer(column.type):
        return column.cast(pa.large_string())
    raise TypeError(f"values of type {column.type} have no JSON here")
