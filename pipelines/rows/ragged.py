"""Ragged columns: cutting them into pieces, joining them, adding special tokens.

Legend: S pieces.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from textmill.pipelines.runtime.compiled import entry


class Ragged(NamedTuple):
    """Values of documents or examples, one after another.

    Attributes:
      values: [values], those of all documents or examples.
      offsets: int64 [n + 1]; item i has values[offsets[i]:offsets[i + 1]].
    """

    values: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """The number of values of each item: int64 [n]."""
        return np.diff(self.offsets)

    @classmethod
    def of(cls, values: np.ndarray, lengths: np.ndarray | Sequence[int]) -> "Ragged":
        """Takes lengths instead of offsets: `of([7, 8, 9], [1, 0, 2])` has offsets [0, 1, 1, 3]."""
        return cls(values, np.append(0, np.cumsum(lengths)).astype(np.int64))

    @classmethod
    def of_lists(cls, items: Sequence[Sequence[int]]) -> "Ragged":
        """Takes lists of numbers, which become uint32."""
        lengths = [len(item) for item in items]
        numbers = np.fromiter(chain.from_iterable(items), np.uint32, sum(lengths))
        return cls.of(numbers, lengths)

    @classmethod
    def joined(cls, parts: "Sequence[Ragged]") -> "Ragged":
        """The items of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        values = [part.values for part in parts] or [np.zeros(0, np.uint32)]
        lengths = [part.lengths for part in parts] or [np.zeros(0, np.int64)]
        return cls.of(np.concatenate(values), np.concatenate(lengths))

    def astype(self, dtype: str) -> "Ragged":
        """The same values in a different type."""
        return Ragged(self.values.astype(dtype), self.offsets)

    def take(self, order: np.ndarray) -> "Ragged":
        """The items with the indices in `order`, in that order."""
        return join_slices(self.values, self.offsets[:-1][order, None], self.lengths[order, None])


def cut(offsets: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Cuts items that are too long, from their starts on: [0, 3, 4], 2 -> [0, 2, 3, 4], [0, 0, 1].

    Args:
      offsets: int64 [n + 1].
      longest: the most values of a piece.

    Returns:
      int64 [S + 1] offsets of the pieces; int64 [S], the item that each piece belongs to.
    """
    pieces = -(-np.diff(offsets) // longest)
    whole_S = np.repeat(np.arange(len(pieces)), pieces)
    number_S = np.arange(len(whole_S)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return np.append(offsets[:-1][whole_S] + number_S * longest, offsets[-1]), whole_S


def wrap(
    ids: np.ndarray, offsets: np.ndarray, prefix: tuple[int, ...], suffix: tuple[int, ...]
) -> Ragged:
    """Puts ids around each piece: [5, 6, 7], [0, 2, 3] -> [<s> 5 6 </s> <s> 7 </s>], [0, 4, 7]."""
    around = np.array(prefix, ids.dtype), np.array(suffix, ids.dtype)
    wrapped = offsets + np.arange(len(offsets)) * (len(prefix) + len(suffix))
    stream = np.empty(wrapped[-1], ids.dtype)
    _wrap(ids, offsets, *around, stream)
    return Ragged(stream, wrapped)


@entry()
def _wrap(ids, offsets, prefix, suffix, stream):
    to = 0
    for piece in range(len(offsets) - 1):
        start, length = offsets[piece], offsets[piece + 1] - offsets[piece]
        for special in prefix:
            stream[to] = special
            to += 1
        for i in range(length):  # unsigned indices, for vector instructions
            stream[np.uint64(to + i)] = ids[np.uint64(start + i)]
        to += length
        for special in suffix:
            stream[to] = special
            to += 1


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Joins ranges of integers: [5, 9], [2, 3] -> [5, 6, 9, 10, 11]."""
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)


def join_slices(pool: np.ndarray, starts_ExP: np.ndarray, lengths_ExP: np.ndarray) -> Ragged:
    """Joins P slices of a pool for each of E: [7 8 9], [[2, 0]], [[1, 2]] -> [9 7 8], [0, 3].

    Raises:
      IndexError: a slice is not inside the pool.
    """
    stops_ExP = starts_ExP + lengths_ExP
    if ((starts_ExP < 0) | (lengths_ExP < 0) | (stops_ExP > len(pool))).any():
        raise IndexError(f"a slice is not inside the {len(pool)} values")
    offsets = np.append(0, np.cumsum(lengths_ExP.sum(axis=1)))
    joined = np.empty(offsets[-1], pool.dtype)
    spans = (part.ravel() * pool.itemsize for part in (starts_ExP, stops_ExP))
    _copy_slices(np.ascontiguousarray(pool).view(np.uint8), *spans, joined.view(np.uint8))
    return Ragged(joined, offsets)


def _slice_types(types: Any) -> Any:
    data = types.Array(types.uint8, 1, "C", readonly=True)
    return types.void(data, types.int64[::1], types.int64[::1], types.uint8[::1])


@entry(_slice_types)
def _copy_slices(data, starts, stops, joined):
    to = 0
    for i in range(len(starts)):
        for place in range(starts[i], stops[i]):  # unsigned indices, for vector instructions
            joined[np.uint64(to + place - starts[i])] = data[np.uint64(place)]
        to += stops[i] - starts[i]


def insert(ids: np.ndarray, places: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Inserts ids before places, ascending: [7 8 9], [1, 1, 3], [0, 1, 2] -> [7 0 1 8 9 2].

    Args:
      ids: uint32 [n].
      places: int64 [m], 0 to n.
      new: int64 [m].
    """
    joined = np.empty(len(ids) + len(places), np.uint32)
    _insert(ids, places, new, joined)
    return joined


def _insert_types(types: Any) -> Any:
    ids = types.Array(types.uint32, 1, "C", readonly=True)
    return types.void(ids, types.int64[::1], types.int64[::1], types.uint32[::1])


@entry(_insert_types)
def _insert(ids, places, new, joined):
    place = 0
    for i in range(len(places)):
        for k in range(place, places[i]):  # unsigned indices, for vector instructions
            joined[np.uint64(k + i)] = ids[np.uint64(k)]
        place = places[i]
        joined[place + i] = new[i]
    for k in range(place, len(ids)):
        joined[np.uint64(k + len(places))] = ids[np.uint64(k)]


def grow(array: np.ndarray, used: int, more: int) -> np.ndarray:
    """`array` if it has room for `used + more` items, else a copy with twice that room."""
    if used + more <= len(array):
        return array
    larger = np.zeros(2 * (used + more), array.dtype)
    larger[:used] = array[:used]
    return larger
