"""An order of rows that needs a few pieces of a dataset at a time, for one larger than a disk.

The rows of each shard are cut into pieces of `piece_rows` neighbours. An epoch permutes all pieces,
takes `window_pieces` of them at a time, a window, and permutes the rows of each window. So it has
each row once, and a batch needs the pieces of one window, or of two where it crosses their border.
Like that of `row_order`, the order is a function of (seed, position): nothing is stored, and any
position can be computed.

With two shards of 5 and 3 rows, pieces of 2 rows and windows of 2 pieces, an epoch may be

    pieces    [0 1] [2 3] [4]   [5 6] [7]
    permuted  [5 6] [4] | [0 1] [7] | [2 3]
    rows      6 4 5 | 0 7 1 | 3 2

Legend: P pieces of a split, n positions.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Sequence

import numpy as np

from textmill.trainers.data.row_order import find_places, permute

WINDOW_PIECES = 128  # of a dataset; more of them mix better, and must be fetched first
_PIECES, _WINDOW = 1, 2  # what a key permutes; those of `row_order` are shorter


class Epoch(NamedTuple):
    """The pieces of an epoch in its order.

    Attributes:
      pieces: their numbers, int64 [P].
      begins: the position in the epoch at which each begins, then the number of rows: int64 [P+1].
    """

    pieces: np.ndarray
    begins: np.ndarray


class WindowOrder:
    """The windowed order of a split.

    Attributes:
      rows: the number of rows.
      window_pieces: pieces of a window.
      first_P: int64 [P], the index of each piece's first row in the split.
      rows_P: int64 [P], its number of rows.
      shard_P: int64 [P], its shard.
    """

    def __init__(self, shard_rows: Sequence[int], piece_rows: int, window_pieces: int):
        """Cuts shards with these numbers of rows into pieces."""
        self.window_pieces = window_pieces
        counts = np.asarray(shard_rows, np.int64)
        pieces = -(-counts // piece_rows)
        self.rows = int(counts.sum())
        self.shard_P = np.repeat(np.arange(len(counts)), pieces)
        number_in_shard = np.arange(len(self.shard_P)) - (np.cumsum(pieces) - pieces)[self.shard_P]
        begin_in_shard = number_in_shard * piece_rows
        self.rows_P = np.minimum(piece_rows, counts[self.shard_P] - begin_in_shard)
        self.first_P = (np.cumsum(counts) - counts)[self.shard_P] + begin_in_shard
        self._kept: dict[tuple[int, ...], Epoch] = {}

    def epoch(self, epoch: int, *, seed: int, stream: int = 0) -> Epoch:
        """The order of the pieces in an epoch; the last two are kept."""
        key, count = (seed, epoch, stream, _PIECES), len(self.rows_P)
        found = self._kept.get(key)
        if found is None:
            pieces = permute(np.arange(count), rows=max(count, 1), key=key)
            found = Epoch(pieces, np.concatenate(([0], np.cumsum(self.rows_P[pieces]))))
            self._kept = {**dict([*self._kept.items()][-1:]), key: found}
        return found

    def epoch_and_row(
        self, positions: np.ndarray, *, seed: int, stream: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Epochs and row indices of positions; see `row_order.epoch_and_row`."""
        epochs, offsets = np.divmod(np.asarray(positions, np.int64), self.rows)
        indices = np.empty_like(offsets)
        for epoch in np.unique(epochs).tolist():
            here = np.flatnonzero(epochs == epoch)
            pieces, begins = self.epoch(epoch, seed=seed, stream=stream)
            windows = self._windows(begins)
            window = np.searchsorted(windows, offsets[here], side="right") - 1
            placed = np.empty_like(here)
            for number in np.unique(window).tolist():
                begin, end = windows[number : number + 2].tolist()
                inside, key = window == number, (seed, epoch, stream, _WINDOW, number)
                mixed = permute(offsets[here[inside]] - begin, rows=end - begin, key=key)
                placed[inside] = begin + mixed
            at = np.searchsorted(begins, placed, side="right") - 1
            indices[here] = self.first_P[pieces[at]] + placed - begins[at]
        return epochs, indices

    def offsets_of(
        self, row_indices: np.ndarray, *, seed: int, epoch: int, stream: int = 0
    ) -> np.ndarray:
        """The inverse of `epoch_and_row` in one epoch; see `row_order.offsets_of`."""
        pieces, begins = self.epoch(epoch, seed=seed, stream=stream)
        place = np.empty_like(pieces)  # of each piece in the epoch
        place[pieces] = np.arange(len(pieces))
        piece = self.piece_of(row_indices)
        placed = begins[place[piece]] + row_indices - self.first_P[piece]
        windows, offsets = self._windows(begins), np.empty_like(placed)
        window = np.searchsorted(windows, placed, side="right") - 1
        for number in np.unique(window).tolist():
            begin, end = windows[number : number + 2].tolist()
            inside, key = window == number, (seed, epoch, stream, _WINDOW, number)
            offsets[inside] = begin + find_places(placed[inside] - begin, rows=end - begin, key=key)
        return offsets

    def _windows(self, begins: np.ndarray) -> np.ndarray:
        """The position at which each window begins, and the number of rows: int64 [windows + 1]."""
        return np.append(begins[:-1][:: self.window_pieces], begins[-1])

    def windows_from(
        self, position: int, stop: int | None = None, *, seed: int, stream: int = 0
    ) -> Iterator[tuple[int, np.ndarray]]:
        """The position of each window from that of a position on, and its pieces; endless.

        With `stop`, the windows of the positions before it, at least one.
        """
        epoch, offset = divmod(position, self.rows)
        while True:
            pieces, begins = self.epoch(epoch, seed=seed, stream=stream)
            windows = self._windows(begins)
            first = int(np.searchsorted(windows, offset, side="right")) - 1
            for number in range(first, len(windows) - 1):
                begin = epoch * self.rows + int(windows[number])
                if stop is not None and begin >= stop and begin > position:
                    return
                own = slice(number * self.window_pieces, (number + 1) * self.window_pieces)
                yield begin, pieces[own]
            epoch, offset = epoch + 1, 0

    def piece_of(self, rows: np.ndarray) -> np.ndarray:
        """The piece of each row index, integers [n]: int64 [n]."""
        return np.searchsorted(self.first_P, rows, side="right") - 1
