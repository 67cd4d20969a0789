"""Cutting ragged token ids into pieces, joining them, putting special tokens around them. Pure.

Legend: S pieces.
"""

import numpy as np

_CHUNK = 4096  # of what is joined at once: an index a token takes eight bytes


def cut(offsets: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Cuts what is longer, from its start on: [0, 3, 4], 2 -> [0, 2, 3, 4], [0, 0, 1].

    Args:
      offsets: int64 [n + 1].
      longest: of a piece.

    Returns:
      int64 [S + 1] offsets of the pieces; int64 [S], which of the n each is of.
    """
    pieces = -(-np.diff(offsets) // longest)
    whole_S = np.repeat(np.arange(len(pieces)), pieces)
    number_S = np.arange(len(whole_S)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return np.append(offsets[:-1][whole_S] + number_S * longest, offsets[-1]), whole_S


def wrap(
    ids: np.ndarray, offsets: np.ndarray, prefix: tuple[int, ...], suffix: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Puts ids around each piece: [5, 6, 7], [0, 2, 3] -> [<s> 5 6 </s> <s> 7 </s>], [0, 4, 7].

    Returns:
      The stream, and offsets [S + 1] of the pieces in it.
    """
    added = len(prefix) + len(suffix)
    count = len(offsets) - 1
    wrapped = offsets + np.arange(count + 1) * added
    # The stream is all ids, but for the places of specials: no index a token is ever built.
    is_text = np.ones(len(ids) + count * added, bool)
    stream = np.empty(len(is_text), ids.dtype)
    for i, special in enumerate(prefix):
        stream[wrapped[:-1] + i] = special
        is_text[wrapped[:-1] + i] = False
    for i, special in enumerate(reversed(suffix), start=1):
        stream[wrapped[1:] - i] = special
        is_text[wrapped[1:] - i] = False
    stream[is_text] = ids
    return stream, wrapped


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """[5, 9], [2, 3] -> [5, 6, 9, 10, 11]."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)


def join_slices(
    pool: np.ndarray, starts_ExP: np.ndarray, lengths_ExP: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Slices of one pool, P joined into each of E: [7 8 9], [[2, 0]], [[1, 2]] -> [9 7 8], [0, 3].

    Returns:
      Values, and int64 [E + 1] offsets of the joined ones in them.
    """
    offsets = np.append(0, np.cumsum(lengths_ExP.sum(axis=1)))
    joined = np.empty(offsets[-1], pool.dtype)
    for start in range(0, len(starts_ExP), _CHUNK):
        part = slice(start, start + _CHUNK)
        taken = pool[ranges(starts_ExP[part].ravel(), lengths_ExP[part].ravel())]
        joined[offsets[start] : offsets[start] + len(taken)] = taken
    return joined, offsets
