"""MinHash signatures of documents, cut into bands for locality-sensitive hashing. Pure.

Broder, "On the resemblance and containment of documents", 1997; Indyk and Motwani, "Approximate
nearest neighbors", 1998. A signature holds the minima of many hash functions over a document's
shingles. The probability that two documents share a minimum is their Jaccard similarity. Documents
that share all minima of a band meet in a bucket; few but similar ones do.

Legend: H hashes of a signature, B bands, D documents, S shingles.
"""

import numpy as np
import pyarrow as pa
import xxhash
from numba import types

from pipelines.corpus.near_duplicates.flags import Bands, Shingle
from pipelines.corpus.near_duplicates.shingles import AT_ONCE, shingle_hashes
from pipelines.host.compiled import entry
from pipelines.rows.text_bytes import slices, utf8_bytes

_NONE = np.uint32(0xFFFFFFFF)  # all of the signature of a document without shingles
SKETCH_HASHES = 128  # maximum number of hashes in a sketch


def signatures(text: pa.LargeStringArray, shingle: Shingle, bands: Bands) -> np.ndarray:
    """Signatures of documents: uint32 [n, H]."""
    factors, addends = _functions(bands.hashes)
    minima = np.full((len(text), bands.hashes), _NONE)
    first = 0
    for some in slices(text, AT_ONCE):
        runs = shingle_hashes(*utf8_bytes(some), shingle)
        take_minima(runs.values, runs.offsets, factors, addends, minima[first : first + len(some)])
        first += len(some)
    return minima


def has_shingles(signature: np.ndarray) -> np.ndarray:
    """Bool [n]: false for documents without words, which are similar to none."""
    return (signature != _NONE).any(axis=1)


def _functions(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Odd factors and addends of hash functions: uint32 [count] each."""
    numbers = [xxhash.xxh3_64_intdigest(i.to_bytes(8, "little")) for i in range(count)]
    halves = np.array(numbers, "<u8").view("<u4").reshape(-1, 2)
    return np.ascontiguousarray(halves[:, 0] | 1), np.ascontiguousarray(halves[:, 1])


def band_keys(signature: np.ndarray, bands: Bands) -> np.ndarray:
    """Keys of buckets: uint64 [n, B], a hash of each band, whose lowest byte is its number."""
    keys = np.zeros((len(signature), bands.bands), np.uint64)
    for row in range(bands.rows):
        keys = (keys ^ signature[:, row :: bands.rows]) * np.uint64(0xD6E8FEB86659FD93)
        keys ^= keys >> np.uint64(32)
    return keys & ~np.uint64(0xFF) | np.arange(bands.bands, dtype=np.uint64)


def sketches(signature: np.ndarray) -> np.ndarray:
    """Two bits of each of the first SKETCH_HASHES hashes: uint64 [n, 4].

    The share of hashes in which two documents agree is their similarity, plus a quarter of the
    rest by chance. This rules out pairs that are surely not similar (b-bit minwise hashing: Li and
    König, 2010).
    """
    bits = np.zeros((len(signature), SKETCH_HASHES), np.uint8)
    some = signature[:, : bits.shape[1]]
    bits[:, : some.shape[1]] = some * np.uint32(0x9E3779B1) >> np.uint32(30)
    fours = bits.reshape(len(bits), SKETCH_HASHES // 4, 4) << np.array([0, 2, 4, 6], np.uint8)
    joined = np.bitwise_or.reduce(fours, axis=2, dtype=np.uint8)
    return np.ascontiguousarray(joined).view("<u8").astype(np.uint64)


_32 = np.uint64(32)
_HASHES = types.Array(types.uint64, 1, "C", readonly=True)
_INTS = types.Array(types.int64, 1, "C", readonly=True)
_FACTORS = types.Array(types.uint32, 1, "C", readonly=True)


@entry(types.void(_HASHES, _INTS, _FACTORS, _FACTORS, types.uint32[:, ::1]))
def take_minima(values, offsets, factors, addends, minima):
    """Computes signatures: the minimum of each hash function over each document's shingles.

    Args:
      values: uint64[S], hashes of shingles.
      offsets: int64[D + 1], where the shingles of each document begin.
      factors: uint32[H], odd.
      addends: uint32[H].
      minima: uint32[D, H], filled with the largest value; out: the signatures.
    """
    for document in range(offsets.size - 1):
        for place in range(offsets[document], offsets[document + 1]):
            value = np.uint32(values[place] >> _32)
            for number in range(factors.size):
                hashed = np.uint32(value * factors[number] + addends[number])
                minima[document, number] = min(minima[document, number], hashed)
