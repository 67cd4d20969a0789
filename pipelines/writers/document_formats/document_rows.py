"""Whole documents as rows of the features `tokens` and `segment_ids`, for who looks at them."""

from collections.abc import Iterator

import numpy as np

from pipelines.rows.ragged import Ragged
from schemas.errors import DataError

_CHUNK_TOKENS = 1 << 20


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
