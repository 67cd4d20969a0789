"""Rows of a finished set, decoded, once the file that they lie in is known to be as published."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, nullcontext

import numpy as np

from pipelines.writers.document_formats.document_format import open_documents
from pipelines.writers.document_formats.document_rows import document_rows
from schemas.errors import DataError
from schemas.manifest import ManifestFile, check_unchanged
from schemas.records import open_rows
from schemas.sidecar import SetInfo


def read_rows(
    info: SetInfo, shard: ManifestFile, rows: range, *, keep: bool = False
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yields the number of the first row of some, and their columns.

    Args:
      info: the set.
      shard: one of its files.
      rows: which: range(0, 5000, 1024) gives those rows by 1,024.
      keep: whether a file that comes from a store stays in the cache, for the next who asks.

    Raises:
      DataError: the file was changed, or its rows are damaged or of another set.
    """
    if info.schema.holds_documents:
        yield from _read_documents(info, shard, rows, keep=keep)
        return
    codec = info.schema.codec()
    located = nullcontext(info.locate(shard.path)) if keep else info.borrow(shard.path)
    with located as path, closing(open_rows(path, codec.stride)) as reader:
        check_unchanged(path, shard)
        for start in rows:
            stop = min(start + rows.step, rows.stop)
            try:
                columns = codec.decode(reader.read_range(start, stop), first_row=start)
            except DataError as error:
                place = "" if str(error).startswith(path) else f"{path}: "
                raise DataError(f"{place}{error}; copy the set again or build it anew") from error
            yield start, columns


def _read_documents(
    info: SetInfo, shard: ManifestFile, rows: range, *, keep: bool
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Whole documents as `read_rows` gives rows, padded with zeros."""
    listed = {file.path: file for file in info.manifest.files}
    with ExitStack() as stack:

        def locate(path: str) -> str:
            located = info.locate(path) if keep else stack.enter_context(info.borrow(path))
            check_unchanged(located, listed[path])
            return located

        yield from document_rows(open_documents(info.schema, shard.path, locate), rows)
