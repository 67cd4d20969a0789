"""Routes documents: their content is hashed, and the hash picks the split and the shard.

The route depends on the content alone, so equal documents meet in one shard, where duplicates are
dropped, and are never in both train and validation.
"""
# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import, where pyright cannot see them.)

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import xxhash

from textmill.pipelines.rows.text_bytes import utf8_bytes
from textmill.schemas.format.metadata import Schema, shard_name
from textmill.schemas.format.row_documents import shards_of


def content_digests(text: pa.LargeStringArray) -> np.ndarray:
    """xxh3_128 of each document's UTF-8 bytes: uint8 [n, 16]."""
    data, bounds = utf8_bytes(text)
    view, ends = data.data, bounds.tolist()
    digest = xxhash.xxh3_128_digest
    joined = b"".join([digest(view[a:b]) for a, b in zip(ends, ends[1:], strict=False)])
    return np.frombuffer(joined, np.uint8).reshape(-1, 16)


def joint_digests(columns: Sequence[pa.Array]) -> np.ndarray:
    """One hash of the values of several columns; with one column, the hash of its text.

    Args:
      columns: [n] each; values other than strings are hashed as JSON.

    Returns:
      uint8 [n, 16].
    """
    texts = (c if pa.types.is_large_string(c.type) else json_of(c) for c in columns)
    digests = [content_digests(text) for text in texts]
    if len(digests) == 1:
        return digests[0]
    digest = xxhash.xxh3_128_digest
    joined = b"".join([digest(row.tobytes()) for row in np.hstack(digests)])
    return np.frombuffer(joined, np.uint8).reshape(-1, 16)


@dataclass(frozen=True)
class Routes:
    """The shards of a dataset; a route is a shard's number, counted through all splits in order.

    Attributes:
      splits: name to share of the documents.
      shards: name to number of shards.
    """

    splits: dict[str, float]
    shards: dict[str, int]

    @classmethod
    def of_schema(cls, schema: Schema) -> "Routes":
        """The routes of a dataset."""
        return cls(schema.splits, schema.shards)

    def names(self) -> list[str]:
        """Shard names by route: ["train-00000-of-00001", "validation-00000-of-00001"]."""
        return [
            shard_name(split, index, self.shards[split])
            for split in self.splits
            for index in range(self.shards[split])
        ]

    def split_names(self) -> list[str]:
        """The split of each route, in the order of routes."""
        return [split for split in self.splits for _ in range(self.shards[split])]

    def of(self, digests: np.ndarray) -> np.ndarray:
        """Routes documents: the first half of the hash picks the split, the second the shard.

        Args:
          digests: uint8 [n, 16].

        Returns:
          int64 [n], routes.
        """
        high = np.ascontiguousarray(digests[:, :8]).view(">u8").reshape(-1).astype(np.uint64)
        # Upper bounds of the splits' ranges, as integers: no rounding at the boundaries.
        bounds = np.cumsum(list(self.splits.values()))[:-1] * float(1 << 53)
        split = np.searchsorted(bounds.astype(np.uint64), high >> np.uint64(11), side="right")
        return self._within(split, digests)

    def of_split(self, digests: np.ndarray, split: str) -> np.ndarray:
        """Routes documents whose split is known: int64 [n]."""
        return self._within(np.full(len(digests), list(self.splits).index(split)), digests)

    def _within(self, split: np.ndarray, digests: np.ndarray) -> np.ndarray:
        counts = np.array([self.shards[name] for name in self.splits])
        first = np.cumsum(counts) - counts
        return first[split] + shards_of(digests, counts[split])


def json_of(column: pa.Array, *, in_ascii: bool = True) -> pa.LargeStringArray:
    """Values without nulls as `json.dumps` writes them: [[{"a": 1}]] -> ['[{"a": 1}]'].

    Args:
      column: [n], of any type that a role may have.
      in_ascii: `ensure_ascii` of `json.dumps`: whether characters outside ASCII are escaped.

    Raises:
      TypeError: no role has values of this type.
    """
    if pt.is_list(column.type):
        ends = np.cumsum(pc.list_value_length(column).to_numpy())
        offsets = pa.array(np.append(0, ends), pa.int32())
        lists = pa.ListArray.from_arrays(offsets, json_of(column.flatten(), in_ascii=in_ascii))
        return _together("[", pc.binary_join(lists, pa.scalar(", ", pa.large_string())), "]")
    if pt.is_struct(column.type):
        parts: list[pa.LargeStringArray | str] = []
        for field in column.type:
            parts += [f"{', ' if parts else '{'}{json.dumps(field.name)}: "]
            parts += [json_of(column.field(field.name), in_ascii=in_ascii)]
        return _together(*parts, "}")
    if pt.is_string(column.type) or pt.is_large_string(column.type):
        return _json_strings(column.cast(pa.large_string()), in_ascii)
    if pt.is_primitive(column.type):  # finite numbers, true and false
        return column.cast(pa.large_string())
    raise TypeError(f"values of type {column.type} have no JSON here")


def _json_strings(texts: pa.LargeStringArray, in_ascii: bool) -> pa.LargeStringArray:
    escaped = pc.replace_substring(texts, "\\", "\\\\")
    escaped = pc.replace_substring(escaped, '"', '\\"')
    whole = _together('"', escaped, '"')
    has_escape = "[^ -~]" if in_ascii else r"[\x00-\x1f]"
    odd = pc.match_substring_regex(texts, has_escape)
    exact = [json.dumps(text, ensure_ascii=in_ascii) for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(whole, odd, pa.array(exact, pa.large_string()))


def _together(*parts: pa.LargeStringArray | str) -> pa.LargeStringArray:
    """Concatenates columns, and strings that are the same in every row."""
    columns = [
        pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts
    ]
    return pc.binary_join_element_wise(*columns, pa.scalar("", pa.large_string()))
