"""What a format of whole documents is, and the documents of a shard for those who read it.

A format is a file with these functions, called as its row in `schemas.records.DOCUMENT_FORMATS`;
paths and contents go by the endings of that table:

    TELLS_DOCUMENTS: whether it holds where each document ends. Others give pieces, no fewer.
    encode(documents, schema): what each file of a shard holds, in parts, by ending.
    decode(paths, schema): token ids of the documents or pieces of a shard; what is large may be
      mapped. Raises DataError if a file is not of the format, or not of this dataset; names it.
    refuse(schema): raises UsageError if ids or settings do not fit; a format may lack it.
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
    """The file of a format of the table."""
    return importlib.import_module(f"{__package__}.{name}")


def refuse_formats(schema: Schema) -> None:
    """Raises UsageError if a dataset's ids or settings do not go into one of its formats."""
    for form in map(document_format, schema.file_formats):
        if hasattr(form, "refuse"):
            form.refuse(schema)


def open_documents(schema: Schema, path: str, locate: Callable[[str], str]) -> Ragged:
    """Token ids of the documents or pieces of one shard.

    Args:
      schema: of the dataset.
      path: in the dataset, of the first of the shard's files in a format.
      locate: gives the path on this machine of a file of the dataset.

    Raises:
      DataError: they are damaged, or of another dataset.
    """
    shard, ending = path.split(".", 1)
    name = next(name for name, row in DOCUMENT_FORMATS.items() if ending == row.endings[0])
    paths = {each: locate(f"{shard}.{each}") for each in DOCUMENT_FORMATS[name].endings}
    return document_format(name).decode(paths, schema)


def document_rows(documents: Ragged, rows: range) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yields the number of the first row of some, and their columns, as long as the longest.

    [5, 6, 7], [0, 1, 3] -> tokens [[5 0] [6 7]], segment_ids [[1 0] [1 1]]

    Args:
      documents: of a shard.
      rows: which; no more of them at a time than its step, and fewer where they are long.

    Raises:
      DataError: there are not so many documents.
    """
    lengths = documents.lengths
    if rows.stop > len(lengths):
        raise DataError(
            f"a shard holds {len(lengths):,} documents, fewer than the manifest says: copy the set "
            "again or build it anew"
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
    """Raises UsageError if nothing tells documents apart."""
    if not schema.parameters["prefix_ids"] and not schema.parameters["suffix_ids"]:
        raise UsageError(
            f"--no_eos: nothing would tell documents apart in a file of {name}; leave the flag "
            "out, or give --bos"
        )


def map_documents(path: str, dtype: str, schema: Schema, *, head: int = 0) -> Ragged:
    """The ids of a file, mapped, cut behind each eos, or before each bos if there is no eos.

    A text that spells such a token itself is cut there too. `head` bytes precede the ids.

    Raises:
      DataError: it has no whole number of ids.
    """
    size = os.path.getsize(path) - head
    if size % np.dtype(dtype).itemsize:
        raise DataError(f"{path} has {size:,} bytes of ids of {dtype}: it was cut or changed")
    ids = np.memmap(path, dtype, "r", head) if size else np.zeros(0, dtype)
    suffix = schema.parameters["suffix_ids"]
    [edge] = suffix or schema.parameters["prefix_ids"]
    cuts = np.flatnonzero(ids == edge) + bool(suffix)
    return Ragged(ids, np.unique(np.concatenate(([0], cuts, [len(ids)]))))
