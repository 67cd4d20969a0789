"""Exports to JSON Lines, a row per line: `{"input_ids": [0, 17, 2], "segment_ids": [1, 1, 1]}`."""

import json
from collections.abc import Iterable
from typing import Any, BinaryIO

import pyarrow as pa

_ROWS = 256  # converted to Python numbers at once


def write(file: BinaryIO, schema: pa.Schema, rows: int, chunks: Iterable[pa.RecordBatch]) -> None:
    """Writes one line per row."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    for chunk in chunks:
        for start in range(0, len(chunk), _ROWS):
            columns = map(_python_values, chunk.slice(start, _ROWS).columns)
            for row in zip(*columns, strict=True):
                line = encode(dict(zip(schema.names, row, strict=True)))
                file.write(line.encode() + b"\n")


def _python_values(column: pa.Array) -> list[Any]:
    if isinstance(column, pa.FixedSizeListArray):  # by numpy: ten times as fast as to_pylist
        flat = column.flatten().to_numpy()
        return flat.reshape(len(column), column.type.list_size).tolist()
    return column.to_pylist()
