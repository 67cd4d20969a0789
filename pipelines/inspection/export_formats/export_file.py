"""What a format of exports is: a class `Writer` in a module of the format's name."""

import importlib
from collections.abc import Sequence
from typing import BinaryIO, ClassVar, NamedTuple, Protocol

import pyarrow as pa


class FileSize(NamedTuple):
    """What an index tells of a file; `name` is without its folder."""

    name: str
    rows: int
    bytes: int


class ExportFile(Protocol):
    """A file that is written chunk by chunk.

    Attributes:
      index_name: of a file that lists those of a split, which then have a folder of their own, of
        the split's name; "" where a format has none.
    """

    index_name: ClassVar[str] = ""

    def __init__(self, file: BinaryIO, schema: pa.Schema, rows: int):
        """Begins a file of so many rows with these columns; `file` is open and stays so."""

    def write(self, chunk: pa.RecordBatch) -> None:
        """Appends some rows to the file."""

    def close(self) -> None:
        """Ends the file, where a format has an end: without it, it cannot be read."""

    def abandon(self) -> None:
        """Leaves the file as it is, since writing failed."""

    @classmethod
    def index(cls, schema: pa.Schema, files: Sequence[FileSize]) -> bytes:
        """What the file `index_name` holds for these files of a split; nothing without a name."""
        return b""


def writer_class(file_format: str) -> type[ExportFile]:
    """The class of a format: `parquet` -> pipelines.inspection.export_formats.parquet.Writer."""
    return importlib.import_module(f"pipelines.inspection.export_formats.{file_format}").Writer
