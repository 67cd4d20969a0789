"""Exports in MDS, the shards of Mosaic's streaming: what its reader documents, written by numpy.

    number of rows, n               uint32, little-endian, as all numbers
    n + 1 offsets                   uint32, in bytes from the file's beginning; of rows, and its end
    configuration                   JSON: names, encodings and sizes of the columns, by name
    n rows                          of each the sizes of columns without a fixed one, uint32, then
                                    the columns, one after the other

A folder a split; its index.json repeats the configuration for each file. The bytes are those that
MDSWriter of mosaicml-streaming 0.13 writes for the same rows, which brings PyTorch and the clients
of six clouds with it.
"""

import json
from collections.abc import Sequence
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from pipelines.inspection.export_formats.export_file import ExportFile, FileSize
from schemas.errors import UsageError

_MOST_BYTES = (1 << 32) - 1  # that an offset tells


class Writer(ExportFile):
    """A file of MDS that is being written."""

    index_name: ClassVar[str] = "index.json"

    def __init__(self, file: BinaryIO, schema: pa.Schema, rows: int):
        """Leaves room for the offsets, which are known at the end."""
        self._file, self._names = file, sorted(schema.names)
        self._configuration = json.dumps(_configuration(schema), sort_keys=True).encode()
        self._offsets = np.zeros(rows + 1, np.int64)
        self._offsets[0] = 4 + 4 * len(self._offsets) + len(self._configuration)
        self._rows = 0  # written
        file.write(bytes(self._offsets[0]))

    def write(self, chunk: pa.RecordBatch) -> None:
        """Appends some rows.

        Raises:
          UsageError: the file grows larger than MDS can say.
        """
        columns = [_cells(chunk.column(name)) for name in self._names]
        matrices = [column for column in columns if isinstance(column, np.ndarray)]
        if len(matrices) == len(columns):
            rows_BxN = np.concatenate(matrices, axis=1)
            content, sizes = rows_BxN.tobytes(), [rows_BxN.shape[1]] * len(rows_BxN)
        else:
            rows = [_row(cells) for cells in zip(*columns, strict=True)]
            content, sizes = b"".join(rows), list(map(len, rows))
        begin, self._rows = self._rows, self._rows + len(sizes)
        self._offsets[begin + 1 : self._rows + 1] = self._offsets[begin] + np.cumsum(sizes)
        if self._offsets[self._rows] > _MOST_BYTES:
            raise UsageError(
                f"--to=mds: a shard takes more than {_MOST_BYTES:,} bytes, which is the most that "
                "a file of MDS may have: build the set with a larger --num_shards"
            )
        self._file.write(content)

    def close(self) -> None:
        """Writes what stands before the rows."""
        self._file.seek(0)
        self._file.write(np.array(self._rows, "<u4").tobytes())
        self._file.write(self._offsets.astype("<u4").tobytes() + self._configuration)

    @classmethod
    def index(cls, schema: pa.Schema, files: Sequence[FileSize]) -> bytes:
        """The files that have rows, each with the configuration."""
        shards = [
            {
                **_configuration(schema),
                "samples": file.rows,
                "raw_data": {"basename": file.name, "bytes": file.bytes, "hashes": {}},
                "zip_data": None,
            }
            for file in files
            if file.rows
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
    """What MDS calls a type of columns, and bytes of a value: uint16[16] -> ndarray:uint16:16."""
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size * kind.value_type.bit_width // 8
        return f"ndarray:{kind.value_type}:{kind.list_size}", size
    if pa.types.is_list(kind):
        return "json", None
    return str(kind), kind.bit_width // 8


def _cells(column: pa.Array) -> np.ndarray | list[bytes]:
    """A column's values as bytes: uint8 [rows, size], or where sizes differ a value an item."""
    if pa.types.is_list(column.type):
        return [json.dumps(texts).encode() for texts in column.to_pylist()]
    values = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
    array = values.to_numpy()
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return little.view(np.uint8).reshape(len(column), -1)


def _row(cells: Sequence[Any]) -> bytes:
    """A row of which some columns have no fixed size."""
    sizes = [len(cell) for cell in cells if isinstance(cell, bytes)]
    return np.array(sizes, "<u4").tobytes() + b"".join(map(bytes, cells))
