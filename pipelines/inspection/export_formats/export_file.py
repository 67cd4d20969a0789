"""What a format of exports is: a class `Writer` in a module of the format's name."""

import importlib
from typing import BinaryIO, Protocol

import pyarrow as pa


class ExportFile(Protocol):
    """A file that is written chunk by chunk."""

    def __init__(self, file: BinaryIO, schema: pa.Schema):
        """Begins a file with these columns; `file` is open for writing and stays open."""

    def write(self, chunk: pa.RecordBatch) -> None:
        """Appends some rows to the file."""

    def close(self) -> None:
        """Ends the file, where a format has an end: without it, it cannot be read."""

    def abandon(self) -> None:
        """Leaves the file as it is, since writing failed."""


def writer_class(file_format: str) -> type[ExportFile]:
    """The class of a format: `parquet` -> pipelines.inspection.export_formats.parquet.Writer."""
    return importlib.import_module(f"pipelines.inspection.export_formats.{file_format}").Writer
