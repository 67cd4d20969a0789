"""Reads what MDS documents with numpy alone: https://docs.mosaicml.com/projects/streaming."""

import json
from pathlib import Path
from typing import Any

import numpy as np


def read_mds(folder: Path) -> list[dict[str, Any]]:
    """All rows of a split, in the order of its index: arrays, numbers and lists."""
    index = json.loads((folder / "index.json").read_text())
    assert index["version"] == 2
    return [row for shard in index["shards"] for row in _read_shard(folder, shard)]


def _read_shard(folder: Path, told: dict[str, Any]) -> list[dict[str, Any]]:
    content = (folder / told["raw_data"]["basename"]).read_bytes()
    rows = int(np.frombuffer(content, "<u4", 1)[0])
    assert (rows, len(content)) == (told["samples"], told["raw_data"]["bytes"])
    offsets = np.frombuffer(content, "<u4", rows + 1, offset=4).tolist()
    configuration = json.loads(content[8 + 4 * rows : offsets[0]])
    assert configuration.items() <= told.items()
    assert offsets[-1] == len(content)
    bounds = zip(offsets[:-1], offsets[1:], strict=True)
    return [_read_row(content[begin:end], configuration) for begin, end in bounds]


def _read_row(content: bytes, told: dict[str, Any]) -> dict[str, Any]:
    fixed = told["column_sizes"]
    free = fixed.count(None)
    given = iter(np.frombuffer(content, "<u4", free).tolist())
    sizes = [next(given) if size is None else size for size in fixed]
    place, row = 4 * free, {}
    columns = zip(told["column_names"], told["column_encodings"], sizes, strict=True)
    for name, encoding, size in columns:
        row[name] = _decode(encoding, content[place : place + size])
        place += size
    assert place == len(content)
    return row


def _decode(encoding: str, content: bytes) -> Any:
    kind, _, rest = encoding.partition(":")
    if kind == "json":
        return json.loads(content)
    if kind != "ndarray":
        return np.frombuffer(content, np.dtype(kind).newbyteorder("<")).item()
    dtype, length = rest.split(":")
    array = np.frombuffer(content, np.dtype(dtype).newbyteorder("<"))
    assert array.shape == (int(length),)
    return array
