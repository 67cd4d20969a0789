"""Gathers rows of mapped files in any order: a piece of all rows with one numpy call.

    mapped = MappedRows([open_rows(path, codec.stride) for path in paths])
    gathered = mapped.gather(files, rows)                 # row rows[i] of file files[i], for each i
    codec.decode_pieces(gathered.piece)

Files are mapped at addresses that lie apart. One array spans all of them, from the lowest address
to the highest, so the rows of all files are elements of one array. Only bytes of rows are read.

In TFRecord, a row is in one part. In ArrayRecord, block headers cut some rows, whose pieces are
completed one by one.

Legend: B rows, n bytes of a piece.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from textmill.schemas.format.records import RowOffsets, RowReader


class _Memory:
    """The memory from the first to the last of mapped files, as an array; keeps them mapped."""

    def __init__(self, maps: Sequence[np.ndarray]):
        self.maps = maps
        addresses = [_address(mapped) for mapped in maps]
        self.start = min(addresses)
        stop = max(address + len(mapped) for address, mapped in zip(addresses, maps))
        # https://numpy.org/doc/stable/reference/arrays.interface.html
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (stop - self.start,),
            "data": (self.start, True),  # read-only
        }


def _address(mapped: np.ndarray) -> int:
    return mapped.__array_interface__["data"][0]


class MappedRows:
    """Rows of files of one format and one length."""

    def __init__(self, readers: Sequence[RowReader | None]):
        """Takes the files, None for each that is not open yet."""
        self._counts = np.array([len(reader) if reader else 0 for reader in readers], np.int64)
        self._is_open = np.array([reader is not None for reader in readers], bool)
        self._starts = np.zeros(len(readers), np.int64)  # of each file in `_memory`
        full = [reader for reader in readers if reader]  # an empty file is not mapped
        self._memory, self._offsets = np.zeros(0, np.uint8), RowOffsets()
        if full:
            memory = _Memory([reader.mapped for reader in full])
            self._memory, self._offsets = np.asarray(memory), full[0].offsets
            starts = [_address(reader.mapped) - memory.start for reader in full]
            self._starts[self._counts > 0] = starts

    def closed(self, files: np.ndarray) -> list[int]:
        """Those of these files that are not open, ascending."""
        return np.unique(files[~self._is_open[files]]).tolist()

    def gather(self, files: np.ndarray, rows: np.ndarray) -> GatheredRows:
        """Row `rows[i]` of file `files[i]` for each i; int64 [B] both.

        Raises:
          IndexError: a file does not have such a row, or is not open.
        """
        if ((rows < 0) | (rows >= self._counts[files])).any():
            raise IndexError("a file does not have such a row")
        return GatheredRows(self._memory, self._starts[files], rows, self._offsets)


class MappedPieces:
    """Rows of mapped pieces of files of one format and one length.

    Attributes:
      memory: from the first to the last of the pieces, uint8.
      starts: where in `memory` the file of each piece would begin, int64; may be below 0.
    """

    def __init__(self, maps: Sequence[np.ndarray], begins: np.ndarray, offsets: RowOffsets):
        """Takes at least one piece, and the offset in its file at which each begins."""
        memory = _Memory(maps)
        self.memory, self._offsets = np.asarray(memory), offsets
        self.starts = np.array([_address(mapped) - memory.start for mapped in maps]) - begins

    def gather(self, pieces: np.ndarray, rows: np.ndarray) -> GatheredRows:
        """Row `rows[i]` of the file of piece `pieces[i]`, which holds it, for each i."""
        return GatheredRows(self.memory, self.starts[pieces], rows, self._offsets)


class GatheredRows:
    """Some rows, which are copied in pieces."""

    def __init__(
        self, memory: np.ndarray, starts: np.ndarray, rows: np.ndarray, offsets: RowOffsets
    ):
        """Takes for each row its number in its file, and where that begins in `memory`."""
        self._memory, self._offsets = memory, offsets
        stream = rows * offsets.width + offsets.first
        block = stream // offsets.block
        self._in_block = stream - block * offsets.block  # offset of the row without block headers
        self._blocks = starts + block * (offsets.block + offsets.header) + offsets.header

    def piece(self, start: int, stop: int) -> np.ndarray:
        """Bytes `start` to `stop` of every row: uint8 [B, stop - start], a copy."""
        length = stop - start
        if not (length and len(self._blocks)):
            return np.zeros((len(self._blocks), length), np.uint8)
        _, _, in_block, header = self._offsets
        begin = self._in_block + start
        passed = begin // in_block  # block headers between the row's block and the piece
        places = self._blocks + begin + passed * header
        # An element at every byte; selecting one is a memcpy.
        shape = (len(self._memory) - length + 1,)
        windows = np.ndarray(shape, f"V{length}", self._memory, strides=(1,))
        piece = windows[places].view(np.uint8).reshape(-1, length)
        whole = (passed + 1) * in_block - begin  # bytes before the next block header
        for row in np.flatnonzero(whole < length).tolist():
            filled = int(whole[row])
            source = int(places[row]) + filled
            while filled < length:
                source += header
                part = self._memory[source : source + min(in_block, length - filled)]
                piece[row, filled : filled + len(part)] = part
                filled, source = filled + len(part), source + len(part)
        return piece
