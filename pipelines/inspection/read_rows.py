"""Rows of a finished set, decoded, once the file that they lie in is known to be as published."""

from collections.abc import Iterator
from contextlib import closing, nullcontext

import numpy as np

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
