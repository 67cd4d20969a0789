"""Exports to Parquet, one row group per chunk."""

from collections.abc import Iterable
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq


def write(file: BinaryIO, schema: pa.Schema, rows: int, chunks: Iterable[pa.RecordBatch]) -> None:
    """Writes each chunk as one row group."""
    with pq.ParquetWriter(file, schema, compression="zstd", compression_level=1) as parquet:
        for chunk in chunks:
            parquet.write_batch(chunk)
