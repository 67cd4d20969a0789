"""Gathers rows of mapped files in any order with one numpy call.

    mapped = MappedRows([open_rows(path, codec.stride) for path in paths], codec.stride)
    codec.decode(mapped.gather(files, rows))              # row rows[i] of file files[i], for each i

Files are mapped at addresses that lie apart. One array spans all of them, from the lowest address
to the highest, so the rows of all files are elements of one array. Only bytes of rows are read.

In TFRecord, a row is in one part. In ArrayRecord, block headers cut some rows, which are completed
one by one.

Legend: B rows.
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

    def __init__(self, readers: Sequence[RowReader | None], stride: int):
        """Takes the files, None for each that is not open yet, and the bytes of a row."""
        self._stride = stride
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

    def gather(self, files: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Copies row `rows[i]` of file `files[i]` for each i, int64 [B] both: uint8 [B, stride].

        Raises:
          IndexError: a file does not have such a row, or is not open.
        """
        if ((rows < 0) | (rows >= self._counts[files])).any():
            raise IndexError("a file does not have such a row")
        return _copy_rows(self._memory, self._starts[files], rows, self._offsets, self._stride)


class MappedPieces:
    """Rows of mapped pieces of files of one format and one length.

    Attributes:
      memory: from the first to the last of the pieces, uint8.
      starts: where in `memory` the file of each piece would begin, int64; may be below 0.
    """

    def __init__(
        self, maps: Sequence[np.ndarray], begins: np.ndarray, offsets: RowOffsets, stride: int
    ):
        """Takes one or more pieces, where in its file each begins, and the bytes of a row."""
        memory = _Memory(maps)
        self.memory, self._offsets, self._stride = np.asarray(memory), offsets, stride
        self.starts = np.array([_address(mapped) - memory.start for mapped in maps]) - begins

    def gather(self, pieces: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Copies row `rows[i]` of the file of piece `pieces[i]`, which holds it, for each i."""
        return _copy_rows(self.memory, self.starts[pieces], rows, self._offsets, self._stride)


def _copy_rows(
    memory: np.ndarray, starts: np.ndarray, rows: np.ndarray, offsets: RowOffsets, stride: int
) -> np.ndarray:
    """Rows whose numbers in their files and whose files' places in `memory` are given."""
    if not (stride and len(rows)):
        return np.zeros((len(rows), stride), np.uint8)
    _, _, in_block, header = offsets
    stream = rows * offsets.width + offsets.first
    block = stream // in_block
    begin = stream - block * in_block  # offset of the row in its block, without block headers
    places = starts + block * (in_block + header) + header + begin
    # An element at every byte; selecting one is a memcpy.
    shape = (len(memory) - stride + 1,)
    windows = np.ndarray(shape, f"V{stride}", memory, strides=(1,))
    found = windows[places].view(np.uint8).reshape(-1, stride)
    whole = in_block - begin  # bytes before the next block header
    for row in np.flatnonzero(whole < stride).tolist():
        filled = int(whole[row])
        source = int(places[row]) + filled
        while filled < stride:
            source += header
            part = memory[source : source + min(in_block, stride - filled)]
            found[row, filled : filled + len(part)] = part
            filled, source = filled + len(part), source + len(part)
    return found
