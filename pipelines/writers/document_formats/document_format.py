"""The interface of the formats of whole documents, and readers of a shard's documents.

A format is a module of this package, named as its row in `schemas.records.DOCUMENT_FORMATS`. That
table has the endings of its files, by which paths and contents are keyed:

    TELLS_DOCUMENTS: whether the files hold the ends of documents; if not, `decode` returns pieces,
      at least one per document.
    encode(documents, schema): the contents of a shard's files, in parts.
    decode(paths, schema): token ids of the documents or pieces of a shard; may map large files.
      Raises DataError, with the file, if one is not of the format or not of this dataset.
    refuse(schema): raises UsageError if ids or settings do not fit the format; optional.
"""

import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pipelines.rows.ragged import Ragged
from schemas.errors import DataError, UsageError
from schemas.metadata import Schema
from schemas.records import DOCUMENT_FORMATS

_CHUNK_TOKENS = 1 << 20


def document_format(name: str) -> Any:
    """The module of a format."""
    return importlib.import_module(f"{__package__}.{name}")


def refuse_formats(schema: Schema) -> None:
    """Raises UsageError if a dataset's ids or settings do not fit one of its formats."""
    for form in map(document_format, schema.file_formats):
        if hasattr(form, "refuse"):
            form.refuse(schema)


def open_documents(schema: Schema, path: str, locate: Callable[[str], str]) -> Ragged:
    """Token ids of the documents or pieces of one shard.

    Args:
      schema: of the dataset.
      path: of the shard's first file in a format, relative to the dataset's directory.
      locate: maps the path of a file in the dataset to its path on this machine.

    Raises:
      DataError: the files are damaged, or of another dataset.
    """
    shard, ending = path.split(".", 1)
    name = next(name for name, row in DOCUMENT_FORMATS.items() if ending == row.endings[0])
    paths = {each: locate(f"{shard}.{each}") for each in DOCUMENT_FORMATS[name].endings}
    return document_format(name).decode(paths, schema)


def document_rows(documents: Ragged, rows: range) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yields chunks of rows, padded to the longest: the number of the first row, the columns.

    [5, 6, 7], [0, 1, 3] -> tokens [[5 0] [6 7]], segment_ids [[1 0] [1 1]]

    Args:
      documents: of a shard.
      rows: numbers of the rows; its step is the largest chunk, and long rows make it smaller.

    Raises:
      DataError: the shard has fewer documents.
    """
    lengths = documents.lengths
    if rows.stop > len(lengths):
        raise DataError(
            f"a shard holds {len(lengths):,} documents, fewer than MANIFEST.json lists: copy or "
            "build the dataset again"
        )
    start = rows.start
    while start < rows.stop:
        stop = min(start + rows.step, rows.stop)
        longest = np.maximum.accumulate(lengths[start:stop])
        room = longest * np.arange(1, len(longest) + 1) <= _CHUNK_TOKENS
        stop = start + max(1, int(np.count_nonzero(room)))
        used = np.arange(longest[stop - start - 1]) < lengths[start:stop, None]
        tokens = np.zeros(used.shape, documents.values.dtype)
        tokens[used] = documents.values[documents.offsets[start] : documents.offsets[stop]]
        yield start, {"tokens": tokens, "segment_ids": used.astype(np.uint8)}
        start = stop


def refuse_without_edges(name: str, schema: Schema) -> None:
    """Raises UsageError if no special token separates documents."""
    if not schema.parameters["prefix_ids"] and not schema.parameters["suffix_ids"]:
        raise UsageError(
            f"--no_eos: no token would separate documents in the format {name}; leave the flag "
            "out, or set --bos"
        )


def map_documents(path: str, dtype: str, schema: Schema, *, head: int = 0) -> Ragged:
    """Maps the ids of a file and cuts them after each eos, or before each bos if there is no eos.

    A text that contains such a token itself is cut there too. `head` bytes precede the ids.

    Raises:
      DataError: the file does not hold a whole number of ids.
    """
    size = os.path.getsize(path) - head
    if size % np.dtype(dtype).itemsize:
        raise DataError(f"{path} has {size:,} bytes of ids of {dtype}: it was cut or changed")
    ids = np.memmap(path, dtype, "r", head) if size else np.zeros(0, dtype)
    suffix = schema.parameters["suffix_ids"]
    [edge] = suffix or schema.parameters["prefix_ids"]
    cuts = np.flatnonzero(ids == edge) + bool(suffix)
    return Ragged(ids, np.unique(np.concatenate(([0], cuts, [len(ids)]))))
