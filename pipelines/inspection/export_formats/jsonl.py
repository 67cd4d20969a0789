"""Exports as JSON Lines, a row a line: `{"input_ids": [0, 17, 2], "segment_ids": [1, 1, 1]}`."""

import json
from typing import Any, BinaryIO

import pyarrow as pa

from pipelines.inspection.export_formats.export_file import ExportFile

_ROWS = 256  # that are Python numbers at once


class Writer(ExportFile):
    """A file of JSON Lines that is being written."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, rows: int):
        """Writes nothing yet: each line names its columns."""
        self._file, self._names = file, schema.names
        self._encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

    def write(self, chunk: pa.RecordBatch) -> None:
        """Appends a line for each row."""
        for start in range(0, len(chunk), _ROWS):
            columns = map(_python_values, chunk.slice(start, _ROWS).columns)
            for row in zip(*columns, strict=True):
                line = self._encode(dict(zip(self._names, row, strict=True)))
                self._file.write(line.encode() + b"\n")


def _python_values(column: pa.Array) -> list[Any]:
    if isinstance(column, pa.FixedSizeListArray):  # by numpy: ten times as fast as to_pylist
        flat = column.flatten().to_numpy()
        return flat.reshape(len(column), column.type.list_size).tolist()
    return column.to_pylist()
