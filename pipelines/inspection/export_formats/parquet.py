"""Exports as Parquet, a row group a chunk."""

from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.inspection.export_formats.export_file import ExportFile


class Writer(ExportFile):
    """A Parquet file that is being written."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, rows: int):
        """Begins the file with the schema."""
        self._writer = pq.ParquetWriter(file, schema, compression="zstd", compression_level=1)

    def write(self, chunk: pa.RecordBatch) -> None:
        """Appends the chunk as one row group."""
        self._writer.write_batch(chunk)

    def close(self) -> None:
        """Writes the footer, without which nobody can read the file."""
        self._writer.close()

    def abandon(self) -> None:
        """Keeps the library from writing the footer when its writer is deleted."""
        self._writer.is_open = False
