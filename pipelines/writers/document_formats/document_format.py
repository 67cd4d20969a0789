"""What a format of whole documents is: a file with these functions.

It is called as its row in `schemas.records.DOCUMENT_FORMATS`, and nothing else knows it by name.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, cast

import numpy as np

from pipelines.rows.ragged import Ragged
from schemas.records import DOCUMENT_FORMATS
from schemas.sidecar import Schema


class DocumentFormat(Protocol):
    """The functions of a format's file; paths and contents go by the endings of the table."""

    TELLS_DOCUMENTS: bool
    """Whether it tells where each document ends. Others give pieces, which are no fewer."""

    def refuse(self, schema: Schema) -> None:
        """Raises UsageError if the set's ids or settings do not go into the format."""
        ...

    def encode(
        self, documents: Ragged, schema: Schema
    ) -> Mapping[str, Iterator[np.ndarray | bytes]]:
        """What each file of a shard holds, in parts."""
        ...

    def decode(self, paths: Mapping[str, str], schema: Schema) -> Ragged:
        """Token ids of the documents or pieces of a shard; what is large may be mapped.

        Raises:
          DataError: a file is not of the format, or not of this set; names it.
        """
        ...


def document_format(name: str) -> DocumentFormat:
    """The format of a name in the table."""
    return cast(DocumentFormat, importlib.import_module(f"{__package__}.{name}"))


def open_documents(schema: Schema, path: str, locate: Callable[[str], str]) -> Ragged:
    """Token ids of the documents or pieces of one shard.

    Args:
      schema: of the set.
      path: of the first of the shard's files in a format, in the set.
      locate: gives where a file of the set lies on this machine.

    Raises:
      DataError: they are damaged, or of another set.
    """
    shard, ending = path.split(".", 1)
    name = next(name for name, row in DOCUMENT_FORMATS.items() if ending == row.endings[0])
    paths = {each: locate(f"{shard}.{each}") for each in DOCUMENT_FORMATS[name].endings}
    return document_format(name).decode(paths, schema)
