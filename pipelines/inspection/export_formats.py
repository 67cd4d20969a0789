"""Export formats: functions that write the rows of a shard to an open file.

A function `write_FORMAT(file, schema, rows, chunks)` leaves `file` open; `rows` is the number of
rows in all chunks. `WRITERS` has these functions. Each split of a format in `INDICES` is a folder
with the index of its files, INDEX.
"""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from textmill.schemas.errors import UsageError, flag

INDEX = "index.json"
_JSON_ROWS = 256  # converted to Python numbers at once
_MDS_BYTES = (1 << 32) - 1  # the largest offset


def write_parquet(
    file: BinaryIO, schema: pa.Schema, rows: int, chunks: Iterable[pa.RecordBatch]
) -> None:
    """Writes Parquet: each chunk is one row group."""
    with pq.ParquetWriter(file, schema, compression="zstd", compression_level=1) as parquet:
        for chunk in chunks:
            parquet.write_batch(chunk)


def write_arrow(
    file: BinaryIO, schema: pa.Schema, rows: int, chunks: Iterable[pa.RecordBatch]
) -> None:
    """Writes Arrow's streaming format, which `datasets.Dataset.from_file` memory-maps."""
    with pa.ipc.new_stream(file, schema) as stream:
        for chunk in chunks:
            stream.write_batch(chunk)


def write_jsonl(
    file: BinaryIO, schema: pa.Schema, rows: int, chunks: Iterable[pa.RecordBatch]
) -> None:
    """Writes a line per row: `{"input_ids": [0, 17, 2], "segment_ids": [1, 1, 1]}`."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    for chunk in chunks:
        for start in range(0, len(chunk), _JSON_ROWS):
            columns = map(_python_values, chunk.slice(start, _JSON_ROWS).columns)
            for row in zip(*columns, strict=True):
                line = encode(dict(zip(schema.names, row, strict=True)))
                file.write(line.encode() + b"\n")


def _python_values(column: pa.Array) -> list[Any]:
    if isinstance(column, pa.FixedSizeListArray):  # by numpy: ten times as fast as to_pylist
        flat = column.flatten().to_numpy()
        return flat.reshape(len(column), column.type.list_size).tolist()
    return column.to_pylist()


def write_mds(
    file: BinaryIO, schema: pa.Schema, rows: int, chunks: Iterable[pa.RecordBatch]
) -> None:
    """Writes a shard of MosaicML Streaming, as its reader documents it.

        number of rows, n           uint32, little-endian, as all numbers
        n + 1 offsets               uint32, bytes from the start of the file to each row and its end
        configuration               JSON: names, encodings and sizes of the columns, by name
        n rows                      the uint32 sizes of columns without a fixed size, then the
                                    columns in order

    The rows are written first, then the header before them. MDSWriter of mosaicml-streaming 0.13
    writes the same bytes for the same rows, but depends on PyTorch and the clients of six clouds.

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
        if position > _MDS_BYTES:
            raise UsageError(
                f"{flag('to', 'mds')}: a shard exceeds {_MDS_BYTES:,} bytes, the limit of an MDS "
                f"file: build the dataset with a larger {flag('num_shards')}"
            )
        file.write(content)
    file.seek(0)
    file.write(np.array(rows, "<u4").tobytes())
    file.write(np.concatenate(offsets).astype("<u4").tobytes() + configuration)


def index_mds(schema: pa.Schema, files: Iterable[tuple[str, int, int]]) -> bytes:
    """Returns the index of files (name, rows, bytes): those with rows, each configured."""
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


WRITERS: dict[str, Callable[[BinaryIO, pa.Schema, int, Iterable[pa.RecordBatch]], None]] = {
    "parquet": write_parquet,
    "jsonl": write_jsonl,
    "arrow": write_arrow,
    "mds": write_mds,
}
INDICES: dict[str, Callable[[pa.Schema, Iterable[tuple[str, int, int]]], bytes]] = {
    "mds": index_mds
}
