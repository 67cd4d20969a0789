"""Pieces of shards: runs of rows that a reader fetches and checks apart from the rest of a file.

A shard's pieces have `piece_rows` rows each, the last one the rest. The first begins with the file,
and each ends where its last row ends, so they follow one another; what comes after the last row, an
ArrayRecord's index, is in none. The manifest has the XXH3-64 of each (https://xxhash.com), which
takes a tenth of a sha256's time. Python 3.8 syntax.
"""

from __future__ import annotations

import numpy as np

from textmill.schemas.format.records import CHUNK_HEADER, begin_in_file, framed_bytes, row_head

# Small, since windows of more pieces mix better; large enough for a request to an object store.
PIECE_BYTES = 1 << 20


def piece_rows(stride: int) -> int:
    """The rows of a piece, at least 1, for rows of `stride` bytes."""
    return max(1, PIECE_BYTES // stride)


def piece_count(stride: int, rows: int) -> int:
    """The number of pieces of a shard of `rows` rows of `stride` bytes."""
    return -(-rows // piece_rows(stride))


def piece_ends(file_format: str, stride: int, rows: int) -> np.ndarray:
    """Where each piece of a shard ends: int64 [pieces], offsets in the file.

    Args:
      file_format: array_record or tfrecord.
      stride: bytes of a row.
      rows: number of rows of the shard.
    """
    size = piece_rows(stride)
    ends = np.minimum(np.arange(1, piece_count(stride, rows) + 1, dtype=np.int64) * size, rows)
    if file_format == "tfrecord":
        return ends * framed_bytes(stride)
    return begin_in_file(CHUNK_HEADER + ends * (len(row_head(stride)) + stride))


def sum_pieces(path: str, stride: int, rows: int) -> tuple[str, ...]:
    """The XXH3-64 of each piece of a shard's file, as the manifest lists them.

    Args:
      path: the file, which ends in .array_record or .tfrecord.
      stride: bytes of a row.
      rows: number of rows of the shard; pieces that a shorter file lacks are hashed as far as they
        are there.
    """
    from xxhash import xxh3_64_hexdigest  # on no host that only reads whole shards

    sums, begin = [], 0
    with open(path, "rb") as file:
        for end in piece_ends(path.rsplit(".", 1)[1], stride, rows).tolist():
            sums.append(xxh3_64_hexdigest(file.read(end - begin)))
            begin = end
    return tuple(sums)
