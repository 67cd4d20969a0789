"""Exports to Arrow's streaming format, which `datasets.Dataset.from_file` memory-maps."""

from collections.abc import Iterable
from typing import BinaryIO

import pyarrow as pa


def write(file: BinaryIO, schema: pa.Schema, rows: int, chunks: Iterable[pa.RecordBatch]) -> None:
    """Writes each chunk as one record batch."""
    with pa.ipc.new_stream(file, schema) as stream:
        for chunk in chunks:
            stream.write_batch(chunk)
