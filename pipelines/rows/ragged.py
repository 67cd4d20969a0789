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
    ids: np.ndarray, offsets: np.ndarray, prefix: Sequence[int], suffix: Sequence[int]
) -> Ragged:
    """Puts ids around each piece: [5, 6, 7], [0, 2, 3] -> [<s> 5 6 </s> <s> 7 </s>], [0, 4, 7]."""
    return gather([Ragged(ids, offsets)], np.arange(len(offsets) - 1), prefix, suffix)


def gather(
    parts: Sequence[Ragged],
    index_E: np.ndarray,
    prefix: Sequence[int] = (),
    suffix: Sequence[int] = (),
) -> Ragged:
    """The items with these indices among those of all parts, each between `prefix` and `suffix`.

    [[5, 6], [7]] and [[8]], [2, 0], [1], [] -> [1 8 1 5 6], [0, 2, 5]

    Args:
      parts: at least one; their values have one type.
      index_E: int64, in any order, none twice.
      prefix: values before each item.
      suffix: values after each item.
    """
    lengths = np.concatenate([part.lengths for part in parts])
    sizes_E = lengths[index_E] + (len(prefix) + len(suffix))
    stream, offsets = Ragged.of(np.empty(sizes_E.sum(), parts[0].values.dtype), sizes_E)
    for place, value in enumerate(prefix):
        stream[offsets[:-1] + place] = value
    for place, value in enumerate(suffix):
        stream[offsets[1:] - len(suffix) + place] = value
    to = np.full(len(lengths), -1)
    to[index_E] = offsets[:-1] + len(prefix)
    first = 0
    for part in parts:
        last = first + len(part.offsets) - 1
        _copy_values(part.values, part.offsets[:-1], part.offsets[1:], to[first:last], stream)
        first = last
    return Ragged(stream, offsets)


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
    to = np.cumsum(lengths_ExP.ravel()) - lengths_ExP.ravel()
    _copy_values(np.ascontiguousarray(pool), starts_ExP.ravel(), stops_ExP.ravel(), to, joined)
    return Ragged(joined, offsets)


def _copy_values(
    values: np.ndarray, starts: np.ndarray, stops: np.ndarray, to: np.ndarray, joined: np.ndarray
) -> None:
    """Copies slices of values to their places in an array of the same type; below 0: to none."""
    spans = (place * values.itemsize for place in (starts, stops, to))
    _copy_slices(values.view(np.uint8), *spans, joined.view(np.uint8))


def _slice_types(types: Any) -> Any:
    data, places = types.Array(types.uint8, 1, "C", readonly=True), types.int64[::1]
    return types.void(data, places, places, places, types.uint8[::1])


@entry(_slice_types)
def _copy_slices(data, starts, stops, to, joined):
    for i in range(len(starts)):
        if to[i] >= 0:
            first, begin = starts[i], to[i]
            for place in range(stops[i] - first):  # unsigned indices, for vector instructions
                joined[np.uint64(begin + place)] = data[np.uint64(first + place)]


def insert(ids: np.ndarray, places: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Inserts ids before places, ascending: [7 8 9], [1, 1, 3], [0, 1, 2] -> [7 0 1 8 9 2].

    Args:
      ids: [n] of any type.
      places: int64 [m], 0 to n.
      new: [m].
    """
    joined = np.empty(len(ids) + len(places), ids.dtype)
    number = np.arange(len(places) + 1)
    starts, stops = np.append(0, places), np.append(places, len(ids))
    _copy_values(ids, starts, stops, starts + number, joined)
    joined[places + number[:-1]] = new
    return joined


def grow(array: np.ndarray, used: int, more: int) -> np.ndarray:
    """`array` if it has room for `used + more` items, else a copy with twice that room."""
    if used + more <= len(array):
        return array
    larger = np.zeros(2 * (used + more), array.dtype)
    larger[:used] = array[:used]
    return larger
