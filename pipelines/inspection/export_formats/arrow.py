"""Exports in Arrow's streaming format, which `datasets.Dataset.from_file` maps into memory."""

from typing import BinaryIO

import pyarrow as pa

from pipelines.inspection.export_formats.export_file import ExportFile


class Writer(ExportFile):
    """An Arrow stream that is being written."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, rows: int):
        """Begins the stream with the schema."""
        self._writer = pa.ipc.new_stream(file, schema)

    def write(self, chunk: pa.RecordBatch) -> None:
        """Appends the chunk as one record batch."""
        self._writer.write_batch(chunk)

    def close(self) -> None:
        """Writes the mark that ends a stream."""
        self._writer.close()
