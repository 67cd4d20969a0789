"""The core of near-duplicates from texts to what is removed, in one process."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.corpus.near_duplicates.buckets import Members, find_pairs
from pipelines.corpus.near_duplicates.jaccard import verify
from pipelines.corpus.near_duplicates.minhash import band_keys, has_shingles, signatures, sketches
from pipelines.corpus.near_duplicates.resolve import resolve
from pipelines.corpus.near_duplicates.rule import Bands, Shingle
from pipelines.corpus.near_duplicates.shingles import shingle_sets
from pipelines.rows.routing import content_digests
from pipelines.rows.text_bytes import utf8_bytes


class Found(NamedTuple):
    """What came of some texts, by their numbers.

    Attributes:
      pairs: int64 [p, 2], candidates, each once, the higher rank first.
      is_near: bool [p].
      removed: {document: (representative, similarity)}.
      uncompared: as in `Pairs`.
    """

    pairs: np.ndarray
    is_near: np.ndarray
    removed: dict[int, tuple[int, float]]
    uncompared: int


def plain_set(text: str, shingle: str = "word:5") -> set[tuple[str, ...]]:
    """The shingles of a text of letters, spaces and full stops, as tuples."""
    unit, size = shingle.split(":")
    words = text.lower().replace(".", "").split()
    units = words if unit == "word" else " ".join(words)
    starts = range(max(len(units) - int(size) + 1, 1))
    return {tuple(units[start : start + int(size)]) for start in starts} if units else set()


def plain_similarity(one: str, other: str, shingle: str = "word:5") -> Fraction:
    """Jaccard's of two such texts."""
    sets = plain_set(one, shingle), plain_set(other, shingle)
    union = len(sets[0] | sets[1])
    return Fraction(len(sets[0] & sets[1]), union) if union else Fraction(0)


def members_of(
    text: pa.LargeStringArray, shingle: Shingle, bands: Bands, levels: np.ndarray | None = None
) -> Members:
    """Members of all buckets; `places` are the numbers of documents."""
    signature = signatures(text, shingle, bands)
    kept = np.flatnonzero(has_shingles(signature))
    levels = np.zeros(len(text), np.uint8) if levels is None else levels
    lengths = np.diff(utf8_bytes(text)[1])
    columns = content_digests(text), lengths, levels, sketches(signature), np.arange(len(text))
    digests, lengths, levels, bits, places = (
        np.repeat(column[kept], bands.bands, axis=0) for column in columns
    )
    keys = band_keys(signature[kept], bands).ravel()
    return Members(keys, digests, lengths, levels, bits, places)


def find_near(
    texts: list[str] | pa.LargeStringArray,
    shingle: str = "word:5",
    bands: str = "14x8",
    threshold: str = "0.8",
    levels: np.ndarray | None = None,
) -> Found:
    """Finds what is removed."""
    text = pa.array(texts, pa.large_string()) if isinstance(texts, list) else texts
    cut, run, least = Bands.parse(bands), Shingle.parse(shingle), Fraction(threshold)
    members, parts, uncompared = members_of(text, run, cut, levels), [], 0
    for band in range(cut.bands):  # a band at a time, as partitions would be
        some = Members(*(column[band :: cut.bands] for column in members))
        found = find_pairs(some, cut, least)
        parts.append(np.stack([some.places[found.higher], some.places[found.lower]], axis=1))
        uncompared += found.uncompared
    pairs = np.unique(np.concatenate(parts), axis=0)
    documents, numbers = np.unique(pairs, return_inverse=True)
    numbers = numbers.reshape(-1, 2)
    sets = shingle_sets(text.take(pa.array(documents)), run)
    verified = verify(sets, numbers[:, 0], numbers[:, 1], least)
    edges, similarity = pairs[verified.is_near], verified.similarities[verified.is_near]
    digests = content_digests(text)
    chosen = resolve(digests[edges[:, 0]], digests[edges[:, 1]], similarity)
    removed = {
        int(edges[edge, 1]): (int(edges[edge, 0]), float(similarity[edge])) for edge in chosen
    }
    return Found(pairs, verified.is_near, removed, uncompared)
