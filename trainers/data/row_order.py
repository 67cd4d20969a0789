"""The order of rows: a seeded permutation that is computed, not stored.

`position // rows` is the epoch, and inside an epoch a Feistel network permutes the positions. It
takes a few operations a row and no memory, and any process can compute any position: a resumed run
and every host of a cluster see the same order.

Method: J. Black and P. Rogaway, "Ciphers with Arbitrary Finite Domains" (2002), methods 2 and 3: a
Feistel network on a grid just larger than the number of rows, applied again until the result is
inside.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Callable

import numpy as np

ROUNDS = 8
_TABLE = 4096  # hashes that are kept of a round: those of a coordinate of 16 million rows
_Network = Callable[[np.ndarray, int, int, np.ndarray], np.ndarray]


def epoch_and_row(
    positions: np.ndarray, *, rows: int, seed: int, stream: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Epochs int64 [n] and row indices int64 [n] of positions in the stream of all epochs.

    Positions are integers [n] from 0 on; each epoch has every row once. Each `stream` that is read
    with one seed has its own order.
    """
    positions = np.asarray(positions, np.int64)
    epochs = positions // rows
    offsets = positions - epochs * rows
    indices = np.empty_like(offsets)
    last_of_run = np.append(epochs[1:] != epochs[:-1], True)
    for epoch in set(epochs[last_of_run[: len(epochs)]].tolist()):  # faster than np.unique
        here = epochs == epoch
        key = _key(seed, epoch, stream)
        indices[here] = permute(offsets[here], rows=rows, key=key)
    return epochs, indices


def _key(seed: int, epoch: int, stream: int) -> tuple[int, ...]:
    return (seed, epoch) + ((stream,) if stream else ())


def offsets_of(
    row_indices: np.ndarray, *, rows: int, seed: int, epoch: int, stream: int = 0
) -> np.ndarray:
    """The inverse of `epoch_and_row` in one epoch.

    Returns:
      int64 [n], for each row index the number of positions of the epoch before it.
    """
    return find_places(row_indices, rows=rows, key=_key(seed, epoch, stream))


def permute(numbers: np.ndarray, *, rows: int, key: tuple[int, ...]) -> np.ndarray:
    """Permutes numbers below `rows`, integers [n], by a key; returns int64 [n].

    `rows` may be 1 to 2**62.
    """
    return _walk(numbers, rows, key, _feistel)


def find_places(indices: np.ndarray, *, rows: int, key: tuple[int, ...]) -> np.ndarray:
    """The inverse of `permute`: the numbers whose permutation is `indices`; int64 [n]."""
    return _walk(indices, rows, key, _inverse)


def _walk(numbers: np.ndarray, rows: int, key: tuple[int, ...], network: _Network) -> np.ndarray:
    """Applies a permutation of the grid until all results are below `rows`."""
    # The grid has at least `rows` cells and at most a column more, so few results are outside.
    high = int(np.ceil(np.sqrt(rows)))
    low = -(-rows // high)
    text = ",".join(str(part) for part in key).encode()
    keys = np.frombuffer(hashlib.blake2b(text, digest_size=8 * ROUNDS).digest(), "<u8")
    indices = network(np.asarray(numbers, np.int64), high, low, keys)
    outside = np.flatnonzero(indices >= rows)
    while len(outside):
        indices[outside] = network(indices[outside], high, low, keys)
        outside = outside[indices[outside] >= rows]
    return indices


def _feistel(numbers: np.ndarray, high: int, low: int, keys: np.ndarray) -> np.ndarray:
    """Each round adds a hash of one coordinate to the other, which is invertible."""
    numbers = numbers.astype(np.uint64)
    left = numbers // np.uint64(low)
    right = numbers - left * np.uint64(low)
    for number, key in enumerate(keys):
        if number % 2:
            left = _add(left, _hash(right, low, key, np.uint64(high)), np.uint64(high))
        else:
            right = _add(right, _hash(left, high, key, np.uint64(low)), np.uint64(low))
    return (left * np.uint64(low) + right).astype(np.int64)


def _inverse(numbers: np.ndarray, high: int, low: int, keys: np.ndarray) -> np.ndarray:
    """The rounds of `_feistel` backwards, each of which subtracts what it added."""
    numbers = numbers.astype(np.uint64)
    left = numbers // np.uint64(low)
    right = numbers - left * np.uint64(low)
    for number, key in reversed(list(enumerate(keys))):
        modulus = np.uint64(high if number % 2 else low)
        if number % 2:
            left = _add(left, modulus - _hash(right, low, key, modulus), modulus)
        else:
            right = _add(right, modulus - _hash(left, high, key, modulus), modulus)
    return (left * np.uint64(low) + right).astype(np.int64)


def _add(one: np.ndarray, other: np.ndarray, modulus: np.uint64) -> np.ndarray:
    """The sum of numbers below the modulus, modulo it."""
    total = one + other
    return np.minimum(total, total - modulus)  # the difference wraps around if it is negative


def _hash(values: np.ndarray, count: int, key: np.uint64, below: np.uint64) -> np.ndarray:
    """Hashes of values below `count`, looked up if there are few such values."""
    if count > _TABLE:
        return _mix(values, key, below)
    return _table(count, int(key), int(below)).take(values.view(np.int64))


@lru_cache(maxsize=8 * ROUNDS)
def _table(count: int, key: int, below: int) -> np.ndarray:
    return _mix(np.arange(count, dtype=np.uint64), np.uint64(key), np.uint64(below))


def _mix(values: np.ndarray, key: np.uint64, below: np.uint64) -> np.ndarray:
    """Steele et al., "Fast Splittable Pseudorandom Number Generators" (2014): splitmix64's mix."""
    mixed = values * np.uint64(0x9E3779B97F4A7C15)
    mixed += key
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    mixed -= mixed // below * below  # numpy divides by one number faster than it takes remainders
    return mixed
