"""What the steps of the job make of what came for a key. Pure.

    text -> members of buckets -> pairs -> sets of higher documents -> edges -> removed documents

A pair is compared in the partition of its lower document. So a document that very many are similar
to is sent to each partition once, and no worker holds the sets of all that are similar to it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.corpus.near_duplicates.buckets import find_pairs
from pipelines.corpus.near_duplicates.flags import Rule
from pipelines.corpus.near_duplicates.minhash import band_keys, has_shingles, signatures, sketches
from pipelines.corpus.near_duplicates.rows import (
    ASK,
    EDGE,
    MEMBER,
    PAIR,
    PLACE,
    REMOVED,
    batches_by_key,
    by_key,
    distinct,
    of_batch,
    places,
    rows_of,
    sets_of_batch,
    take_values,
    to_batch,
)
from pipelines.corpus.near_duplicates.shingles import shingle_sets, verify
from pipelines.rows.example_batch import from_stream
from pipelines.rows.ragged import Ragged
from pipelines.rows.text_bytes import utf8_bytes
from schemas.drops import Observed

Batches = Iterable[tuple[int, pa.RecordBatch]]
_DOCUMENTS_AT_ONCE = 1 << 14
_BYTES_AT_ONCE = 8 << 20  # of text that becomes sets
_SIZES = 33  # bit lengths of the sizes of clusters


@dataclass(frozen=True)
class Counts:
    """How many documents and pairs there are; adds up.

    Attributes:
      compared: documents that have shingles.
      verified: pairs whose similarity reaches the threshold.
      refuted: pairs that met in a bucket, and whose similarity does not.
      uncompared: members of large buckets that found no room there.
      removed: documents.
      clusters: number of clusters whose size has so many bits: of two or three documents in the
        third place.
    """

    compared: int = 0
    verified: int = 0
    refuted: int = 0
    uncompared: int = 0
    removed: int = 0
    clusters: tuple[int, ...] = (0,) * _SIZES

    def observed(self) -> Observed:
        """The sections of stats.json."""
        names = ("compared", "removed", "verified", "refuted", "uncompared")
        numbers = {name: getattr(self, name) for name in names if getattr(self, name)}
        sections = {"near_duplicates": numbers, "near_duplicate_clusters": self.cluster_sizes()}
        return {name: counts for name, counts in sections.items() if counts}

    def cluster_sizes(self) -> dict[str, int]:
        """Number of clusters by size: {"2 to 3": 10, "4 to 7": 1}."""
        return {
            f"{1 << bits - 1} to {(1 << bits) - 1}": number
            for bits, number in enumerate(self.clusters)
            if number
        }

    @staticmethod
    def sum(parts: "Iterable[Counts]") -> "Counts":
        """Adds them up."""
        parts = list(parts)
        numbers = {
            name: sum(getattr(part, name) for part in parts)
            for name in Counts.__dataclass_fields__
            if name != "clusters"
        }
        clusters = np.sum([part.clusters for part in parts] or [(0,) * _SIZES], axis=0)
        return Counts(**numbers, clusters=tuple(clusters.tolist()))


def make_members(
    partition: int, text: pa.LargeStringArray, rule: Rule, partitions: int
) -> Iterator[tuple[Batches, Counts]]:
    """Documents of a partition -> members of buckets, by the partition of the bucket."""
    for start in range(0, len(text), _DOCUMENTS_AT_ONCE):
        some = text.slice(start, _DOCUMENTS_AT_ONCE)
        signature = signatures(some, rule.shingle, rule.bands)
        chosen = np.flatnonzero(has_shingles(signature))
        signature = signature[chosen]
        members = np.zeros((len(chosen), rule.bands.bands), MEMBER)
        members["key"] = band_keys(signature, rule.bands)
        members["place"] = places(partition, start + chosen)[:, None]
        members["length"] = np.diff(utf8_bytes(some)[1])[chosen, None]
        members["sketch"] = sketches(signature)[:, None]
        members = members.ravel()
        to = (members["key"] >> np.uint64(32)).astype(np.int64) * partitions >> 32
        yield batches_by_key(members, to), Counts(compared=len(chosen))


def propose_pairs(members: np.ndarray, rule: Rule) -> Iterator[tuple[Batches, Batches, Counts]]:
    """Members of whole buckets -> what is to be compared.

    Yields:
      PAIR rows by the lower document's partition; ASK rows by the higher document's.
    """
    for pairs, uncompared in find_pairs(members, rule.bands, rule.threshold):
        lower_in = pairs["lower"] >> 32
        asks = np.empty(len(pairs), ASK)
        asks["higher"], asks["to"] = pairs["higher"], lower_in
        asks = distinct(asks)  # in a hot bucket the higher documents are few
        counts = Counts(uncompared=uncompared)
        yield batches_by_key(pairs, lower_in), batches_by_key(asks, asks["higher"] >> 32), counts


def make_sets(asked: np.ndarray, text: pa.LargeStringArray, rule: Rule) -> Iterator[Batches]:
    """Documents of a partition -> the sets that were asked for, by the partition that asked.

    Args:
      asked: ASK rows, in any order.
      text: of the partition.
      rule: of the job.
    """
    asked = distinct(asked)
    rows = rows_of(asked["higher"])
    for some in _cut(_lengths(text, rows)):
        sets, number = _sets_of(text, rows[some], rule)
        higher = asked["higher"][some]
        yield [
            (to, to_batch(higher[chosen], sets.take(number[chosen])))
            for to, chosen in by_key(np.arange(len(higher)), asked["to"][some].astype(np.int64))
        ]


def _sets_of(text: pa.LargeStringArray, rows: np.ndarray, rule: Rule) -> tuple[Ragged, np.ndarray]:
    """The sets of some rows, each once; the number of each row's set."""
    rows, number = np.unique(rows, return_inverse=True)
    return shingle_sets(text.take(pa.array(rows)), rule.shingle), number


def _lengths(text: pa.LargeStringArray, rows: np.ndarray) -> np.ndarray:
    return np.diff(utf8_bytes(text)[1])[rows]


def _cut(sizes: np.ndarray) -> Iterator[slice]:
    """Slices of about _BYTES_AT_ONCE."""
    starts = np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // _BYTES_AT_ONCE, prepend=-1))
    return map(slice, starts.tolist(), [*starts[1:].tolist(), len(sizes)])


def verify_pairs(
    streams: list[bytes], text: pa.LargeStringArray, rule: Rule
) -> Iterator[tuple[np.ndarray, Counts]]:
    """Compares the pairs of a partition's lower documents, a part at a time.

    Args:
      streams: of PAIR rows, and of places of higher documents with their sets; becomes empty.
      text: of the partition.
      rule: of the job.

    Yields:
      EDGE rows of the pairs that are near.
    """
    batches = [from_stream(stream) for stream in streams]
    streams.clear()
    have_sets = [batch for batch in batches if batch.num_columns > 1]
    pairs = [of_batch(batch, PAIR) for batch in batches if batch.num_columns == 1]
    pairs = distinct(take_values(pairs, PAIR))
    if not len(pairs) or not have_sets:
        return
    known = take_values([of_batch(batch, PLACE) for batch in have_sets], PLACE)
    parts = [sets_of_batch(batch) for batch in have_sets]
    lengths, values = np.concatenate([p.lengths for p in parts]), [p.values for p in parts]
    del batches, have_sets, parts  # or `take_values` cannot free what it has taken
    sets = Ragged.of(take_values(values, "<u8"), lengths)
    order = np.argsort(known)
    # Of a set that was lost another one is compared; the check of what arrived ends such a run.
    number = order.take(np.searchsorted(known[order], pairs["higher"]), mode="clip")
    rows = rows_of(pairs["lower"])
    is_new = np.diff(rows, prepend=-1) != 0
    for some in _cut(np.where(is_new, _lengths(text, rows), 0) + PAIR.itemsize):
        lower_sets, lower = _sets_of(text, rows[some], rule)
        found = verify(lower_sets, lower, sets, number[some], rule.threshold)
        near = pairs[some][found.is_near]
        edges = np.zeros(len(near), EDGE)
        edges["higher"], edges["lower"] = near["higher"], near["lower"]
        edges["similarity"] = found.similarities[found.is_near]
        yield edges, Counts(verified=len(near), refuted=len(lower) - len(near))


def name_removed(edges: np.ndarray, digests: np.ndarray) -> tuple[Batches, Counts]:
    """Edges by which documents are removed -> REMOVED rows, by the partition of the document.

    Args:
      edges: EDGE rows, all whose representatives are in one partition.
      digests: uint8 [n, 16], of the partition.
    """
    removed = np.empty(len(edges), REMOVED)
    removed["row"], removed["similarity"] = rows_of(edges["lower"]), edges["similarity"]
    named = np.ascontiguousarray(digests[rows_of(edges["higher"])])
    removed["representative"] = named.view("V16").reshape(-1)
    sizes = np.unique(edges["higher"], return_counts=True)[1] + 1
    bits = np.frexp(sizes.astype(float))[1]
    clusters = tuple(np.bincount(bits, minlength=_SIZES).tolist())
    to = edges["lower"] >> 32
    return batches_by_key(removed, to), Counts(removed=len(edges), clusters=clusters)
