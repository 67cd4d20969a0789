"""The order of rows: a seeded permutation of every row's index that is computed, not stored.

Row number `position // rows` is the epoch, and inside an epoch a Feistel network permutes the
positions. It costs a few operations a row and no memory, whatever the number of rows, and any
process can ask for any place of it: a resumed run and every host of a cluster see the same order.

Method: J. Black and P. Rogaway, "Ciphers with Arbitrary Finite Domains" (2002), methods 2 and 3: a
Feistel network on a grid just larger than the number of rows, walked until it lands inside.
"""

import hashlib
from typing import Tuple

import numpy as np

ROUNDS = 8


def epoch_and_row(
    positions: np.ndarray, *, rows: int, seed: int, stream: int = 0
) -> Tuple[np.ndarray, np.ndarray]:
    """Where in a split's rows a run's positions are: epochs int64 [n], row indices int64 [n].

    Positions are integers [n] from 0 on, counted over all epochs; in an epoch every row comes once.
    Each `stream` of several that are read with one seed has an order of its own.
    """
    positions = np.asarray(positions, np.int64)
    epochs, places = np.divmod(positions, rows)
    indices = np.empty_like(places)
    for epoch in np.unique(epochs):  # one, or two where a batch crosses into the next epoch
        here = epochs == epoch
        key = (seed, int(epoch)) + ((stream,) if stream else ())
        indices[here] = permute(places[here], rows=rows, key=key)
    return epochs, indices


def permute(places: np.ndarray, *, rows: int, key: Tuple[int, ...]) -> np.ndarray:
    """The permutation of 0..rows-1 that `key` names, at these places: integers [n] to int64 [n].

    There may be 1 to 2**62 rows.
    """
    # Sides of a grid of at least `rows` cells, with fewer than one side to spare: a place lands
    # outside so seldom that the walk below hardly ever takes a second turn.
    high = int(np.ceil(np.sqrt(rows)))
    while high * high < rows:  # sqrt of a large int64 is rounded
        high += 1
    low = -(-rows // high)
    text = ",".join(str(part) for part in key).encode()
    keys = np.frombuffer(hashlib.blake2b(text, digest_size=8 * ROUNDS).digest(), "<u8")
    indices = _feistel(np.asarray(places, np.int64), high, low, keys)
    outside = np.flatnonzero(indices >= rows)
    while len(outside):
        indices[outside] = _feistel(indices[outside], high, low, keys)
        outside = outside[indices[outside] >= rows]
    return indices


def _feistel(places: np.ndarray, high: int, low: int, keys: np.ndarray) -> np.ndarray:
    """Each round adds to one coordinate a hash of the other, so that it can be undone."""
    left, right = np.divmod(places, low)
    for number, key in enumerate(keys):
        if number % 2:
            left = (left + _hash(right, key, high)) % high
        else:
            right = (right + _hash(left, key, low)) % low
    return left * low + right


def _hash(values: np.ndarray, key: np.uint64, below: int) -> np.ndarray:
    """Steele et al., "Fast Splittable Pseudorandom Number Generators" (2014): splitmix64's mix."""
    mixed = values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + key
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed % np.uint64(below)).astype(np.int64)
