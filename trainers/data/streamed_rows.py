"""Rows of a split whose pieces are fetched from an object store, a few at a time.

`StreamedRows.expect` fetches the pieces of a window and the next one in the background, and
`StreamedRows.gather` waits for those of its rows. Pieces stay mapped while they are in use.

Legend: P pieces of the split, B rows.
"""

from __future__ import annotations

import threading
from itertools import islice
from typing import Sequence

import numpy as np

from textmill.schemas.files.piece_files import PieceFiles
from textmill.schemas.files.set_files import CachedFiles, FilePart
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.format.mapped_rows import MappedPieces
from textmill.schemas.format.pieces import piece_ends
from textmill.schemas.format.records import row_offsets
from textmill.trainers.data.window_order import WindowOrder

WINDOWS_AHEAD = 2  # that are fetched: the one that is read, and the next
_PIECES_AHEAD = 32  # of reading in order
_MOST_OPEN = 3  # windows of pieces that stay mapped


class StreamedRows:
    """The rows of one split; neither pickled nor forked."""

    def __init__(
        self,
        files: CachedFiles,
        shards: Sequence[ManifestFile],
        file_format: str,
        stride: int,
        order: WindowOrder,
    ):
        """Fetches nothing yet.

        Args:
          files: the dataset.
          shards: those of the split, in order, with sums of pieces.
          file_format: of the shards, array_record or tfrecord.
          stride: bytes of a row.
          order: the order of the split, whose pieces are those of the shards.
        """
        self._shards, self._order = shards, order
        self._stride, self._offsets = stride, row_offsets(file_format, stride)
        ends = [piece_ends(file_format, stride, shard.rows or 0) for shard in shards]
        begins = [np.append(0, own)[: len(own)] for own in ends]
        self._end_P = np.concatenate(ends) if ends else np.zeros(0, np.int64)
        self._begin_P = np.concatenate(begins) if ends else np.zeros(0, np.int64)
        counts = [len(own) for own in ends]
        self._first_piece = np.cumsum(counts) - counts  # of each shard
        rows = [shard.rows or 0 for shard in shards]
        self._first_row = np.cumsum(rows) - rows
        largest = int((self._end_P - self._begin_P).max(initial=0))
        self._files = PieceFiles(files, self._part_of, largest=largest)
        self._lock = threading.Lock()  # of all below
        self._open: dict[int, np.ndarray] = {}  # by piece, the least recently used first
        self._sorted, self._mapped = np.zeros(0, np.int64), None  # numbers and maps of `_open`
        self._expected: list[int] = []
        self._key: tuple = ()

    def _part_of(self, piece: int) -> FilePart:
        number = int(self._order.shard_P[piece])
        shard, begin = self._shards[number], int(self._begin_P[piece])
        assert shard.pieces is not None
        digest = shard.pieces[piece - self._first_piece[number]]
        return FilePart(shard.path, int(self._end_P[piece]) - begin, digest, begin)

    def expect(self, position: int, stop: int | None, *, seed: int | None, stream: int = 0) -> None:
        """Fetches in the background what is read from a position on, and stops all other fetches.

        Args:
          position: in the windowed order of `seed`, or in stored order.
          stop: the position before which reading ends; None: it does not end soon.
          seed: None for stored order.
          stream: as in the order.
        """
        if seed is None:
            first, last = self._order.piece_of(np.array([position, (stop or self._order.rows) - 1]))
            due = np.arange(first, min(last + 1, first + _PIECES_AHEAD))
            key = (int(first), len(due))
        else:
            windows = self._order.windows_from(position, stop, seed=seed, stream=stream)
            ahead = list(islice(windows, WINDOWS_AHEAD))
            due = np.concatenate([pieces for _, pieces in ahead])
            key = (seed, stream, *(place for place, _ in ahead))
        if key != self._key:
            with self._lock:
                self._key, expected = key, [n for n in due.tolist() if n not in self._open]
            self._expected = [*dict.fromkeys(expected)]
            self._files.prefetch(self._expected)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Copies rows by their index in the split, int64 [B], at least one: uint8 [B, stride].

        Missing pieces are fetched first.

        Raises:
          DataError: as `PieceFiles.open`.
        """
        piece_B = self._order.piece_of(rows)
        needed = np.unique(piece_B).tolist()
        with self._lock:
            missing = [piece for piece in needed if piece not in self._open]
        if len(missing) > 1:  # in parallel, before others
            self._files.prefetch([*dict.fromkeys([*missing, *self._expected])])
        opened = {piece: self._files.open(piece) for piece in missing}
        with self._lock:
            for piece in needed:
                mapped = self._open.pop(piece, None)
                self._open[piece] = opened[piece] if mapped is None else mapped
            most = max(_MOST_OPEN * self._order.window_pieces, len(needed))
            for piece in [*self._open][: max(0, len(self._open) - most)]:
                del self._open[piece]
            if missing or self._mapped is None:
                self._sorted = np.array(sorted(self._open), np.int64)
                maps = [self._open[piece] for piece in self._sorted.tolist()]
                begins = self._begin_P[self._sorted]
                self._mapped = MappedPieces(maps, begins, self._offsets, self._stride)
            own_rows = rows - self._first_row[self._order.shard_P[piece_B]]
            return self._mapped.gather(np.searchsorted(self._sorted, piece_B), own_rows)
