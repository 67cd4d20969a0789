"""Exports to MDS, the shards of MosaicML Streaming, as its reader documents them.

    number of rows, n               uint32, little-endian, as all numbers
    n + 1 offsets                   uint32, bytes from the start of the file to each row and its end
    configuration                   JSON: names, encodings and sizes of the columns, by name
    n rows                          the uint32 sizes of columns without a fixed size, then the
                                    columns in order

Each split is a folder; its index.json repeats the configuration for each file. MDSWriter of
mosaicml-streaming 0.13 writes the same bytes for the same rows, but depends on PyTorch and the
clients of six clouds.
"""

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from schemas.errors import UsageError

INDEX = "index.json"
_MOST_BYTES = (1 << 32) - 1  # the largest offset


def write(file: BinaryIO, schema: pa.Schema, rows: int, chunks: Iterable[pa.RecordBatch]) -> None:
    """Writes the rows, then the header before them.

    Raises:
      UsageError: the file grows larger than the format allows.
    """
    configuration = json.dumps(_configuration(schema), sort_keys=True).encode()
    position = 4 + 4 * (rows + 1) + len(configuration)
    file.write(bytes(position))
    offsets = [np.array([position])]
    for chunk in chunks:
        content, sizes = _encode([_cells(chunk.column(name)) for name in sorted(schema.names)])
        offsets.append(position + np.cumsum(sizes))
        position += len(content)
        if position > _MOST_BYTES:
            raise UsageError(
                f"--to=mds: a shard exceeds {_MOST_BYTES:,} bytes, the limit of an MDS file: build "
                "the dataset with a larger --num_shards"
            )
        file.write(content)
    file.seek(0)
    file.write(np.array(rows, "<u4").tobytes())
    file.write(np.concatenate(offsets).astype("<u4").tobytes() + configuration)


def index(schema: pa.Schema, files: Iterable[tuple[str, int, int]]) -> bytes:
    """Returns the index: the files that have rows, each with the configuration."""
    shards = [
        {
            **_configuration(schema),
            "samples": rows,
            "raw_data": {"basename": os.path.basename(name), "bytes": size, "hashes": {}},
            "zip_data": None,
        }
        for name, rows, size in files
        if rows
    ]
    return json.dumps({"version": 2, "shards": shards}, sort_keys=True).encode()


def _configuration(schema: pa.Schema) -> dict[str, Any]:
    names = sorted(schema.names)
    encodings, sizes = zip(*(_encoding(schema.field(name).type) for name in names), strict=True)
    return {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": None,
        "column_names": names,
        "column_encodings": encodings,
        "column_sizes": sizes,
    }


def _encoding(kind: pa.DataType) -> tuple[str, int | None]:
    """Returns the MDS name of a column type and the bytes of a value: ndarray:uint16:16, 32."""
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size * kind.value_type.bit_width // 8
        return f"ndarray:{kind.value_type}:{kind.list_size}", size
    if pa.types.is_list(kind):
        return "json", None
    return str(kind), kind.bit_width // 8


def _cells(column: pa.Array) -> np.ndarray | list[bytes]:
    """Returns values as bytes: uint8 [rows, size], or one item per value if sizes differ."""
    if pa.types.is_list(column.type):
        return [json.dumps(texts).encode() for texts in column.to_pylist()]
    values = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
    array = values.to_numpy()
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return little.view(np.uint8).reshape(len(column), -1)


def _encode(columns: Sequence[np.ndarray | list[bytes]]) -> tuple[bytes, Sequence[int]]:
    """Returns the bytes of all rows, and the size of each; variable sizes precede their cells."""
    fixed = [column for column in columns if isinstance(column, np.ndarray)]
    if len(fixed) == len(columns):
        rows_BxN = np.concatenate(fixed, axis=1)
        return rows_BxN.tobytes(), [rows_BxN.shape[1]] * len(rows_BxN)
    rows = []
    for cells in zip(*columns, strict=True):
        sizes = [len(cell) for cell in cells if isinstance(cell, bytes)]
        rows.append(np.array(sizes, "<u4").tobytes() + b"".join(map(bytes, cells)))
    return b"".join(rows), list(map(len, rows))
