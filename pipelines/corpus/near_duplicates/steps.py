"""The logic of the steps that find near-duplicates, without Beam. Pure.

    text -> members of buckets -> pairs -> sets of higher documents -> edges -> removed documents

A pair is compared in the partition of its lower document. So the set of a document with very many
near-duplicates is sent to each partition once, and no worker holds the sets of all of them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.near_duplicates.buckets import (
    band_keys,
    find_pairs,
    has_shingles,
    signatures,
    sketches,
)
from textmill.pipelines.corpus.near_duplicates.flags import NearDuplicateRule
from textmill.pipelines.corpus.near_duplicates.rows import (
    ASK,
    EDGE,
    MEMBER,
    REMOVED,
    batches_by_key,
    by_key,
    distinct,
    is_older,
    places,
    rows_of,
    signed_type,
    to_batch,
)
from textmill.pipelines.corpus.near_duplicates.shingles import shingle_sets, verify
from textmill.pipelines.rows.ragged import Ragged, ranges
from textmill.pipelines.rows.text_bytes import utf8_bytes
from textmill.schemas.format.drops import Observed, shorten

Batches = Iterable[tuple[int, pa.RecordBatch]]
_CLUSTERS = 10  # clusters reported
_DOCUMENTS_AT_ONCE = 1 << 14
_BYTES_AT_ONCE = 8 << 20  # bytes of text whose sets are sent together
_LOWER_BYTES = 64 << 20  # bytes of text of lower documents whose sets are in memory together
_PAIRS_AT_ONCE = 1 << 18
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


def observe(**numbers: int) -> Observed:
    """Counts of documents and pairs, for stats.json.

    Args:
      numbers: counts by name. compared: documents with shingles. verified: pairs that reach the
        threshold. refuted: pairs that met in a bucket but do not reach the threshold. uncompared:
        members of large buckets that were not compared there. removed: documents removed.
        for_older: those whose representatives are in older corpora.
    """
    counts = {name: number for name, number in numbers.items() if number}
    return {"near_duplicates": counts} if counts else {}


def sign(text: pa.LargeStringArray, rule: NearDuplicateRule) -> Iterator[np.ndarray]:
    """Documents -> rows of `signed_type`, in parts; none of a document without shingles."""
    for start in range(0, len(text), _DOCUMENTS_AT_ONCE):
        some = text.slice(start, _DOCUMENTS_AT_ONCE)
        signature = signatures(some, rule.shingle, rule.bands)
        chosen = np.flatnonzero(has_shingles(signature))
        signature = signature[chosen]
        signed = np.empty(len(chosen), signed_type(rule.bands.bands))
        signed["row"], signed["keys"] = start + chosen, band_keys(signature, rule.bands)
        signed["length"] = np.diff(utf8_bytes(some)[1])[chosen]
        signed["sketch"] = sketches(signature)
        yield signed


def make_members(partition: int, signed: np.ndarray, partitions: int) -> Batches:
    """Signed documents of a partition -> MEMBER rows of buckets, by the bucket's partition."""
    members = np.zeros(signed["keys"].shape, MEMBER)
    members["key"], members["place"] = signed["keys"], places(partition, signed["row"])[:, None]
    members["length"], members["sketch"] = signed["length"][:, None], signed["sketch"][:, None]
    members = members.ravel()
    to = (members["key"] >> np.uint64(32)).astype(np.int64) * partitions >> 32
    return batches_by_key(members, to)


def propose_pairs(
    members: np.ndarray, rule: NearDuplicateRule
) -> Iterator[tuple[Batches, Batches, Observed]]:
    """Members of whole buckets -> pairs to compare.

    Yields:
      PAIR rows by the lower document's partition; ASK rows by the higher document's; counts.
    """
    for pairs, uncompared in find_pairs(members, rule.bands, rule.threshold):
        lower_in = pairs["lower"] >> 32
        asks = np.empty(len(pairs), ASK)
        asks["higher"], asks["to"] = pairs["higher"], lower_in
        asks = distinct(asks)  # a large bucket has few higher documents
        counts = observe(uncompared=uncompared)
        yield batches_by_key(pairs, lower_in), batches_by_key(asks, asks["higher"] >> 32), counts


def make_sets(
    requests: np.ndarray,
    text: pa.LargeStringArray,
    rule: NearDuplicateRule,
    texts_of: np.ndarray | None = None,
) -> Iterator[Batches]:
    """Documents of a partition -> sets that ASK rows request, by the partition that requests.

    `texts_of` has the rows, ascending, whose texts are given; None for all.
    """
    requests = distinct(requests)
    rows = rows_of(requests["higher"])
    rows = rows if texts_of is None else np.searchsorted(texts_of, rows)
    for some in _cut(_lengths(text, rows), _BYTES_AT_ONCE):
        own, number = np.unique(rows[some], return_inverse=True)
        sets = shingle_sets(text.take(pa.array(own)), rule.shingle)
        higher = requests["higher"][some]
        yield [
            (to, to_batch(higher[chosen], sets.take(number[chosen])))
            for to, chosen in by_key(np.arange(len(higher)), requests["to"][some].astype(np.int64))
        ]


def _lengths(text: pa.LargeStringArray, rows: np.ndarray) -> np.ndarray:
    return np.diff(utf8_bytes(text)[1])[rows]


def _cut(sizes: np.ndarray, limit: int) -> Iterator[slice]:
    """Slices of items with these sizes; each slice has about `limit` in total."""
    starts = np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // limit, prepend=-1))
    return map(slice, starts.tolist(), [*starts[1:].tolist(), len(sizes)])


def verify_pairs(
    pairs: np.ndarray,
    read_sets: Callable[[], Iterator[tuple[np.ndarray, Ragged]]],
    text: pa.LargeStringArray,
    rule: NearDuplicateRule,
) -> Iterator[tuple[np.ndarray, Observed]]:
    """Compares the pairs of a partition's lower documents.

    Args:
      pairs: distinct PAIR rows, sorted.
      read_sets: iterates over places of higher documents and their sets, in parts; memory holds
        one part beside the sets of lower documents.
      text: texts of the partition.
      rule: definition of near-duplicates.

    Yields:
      EDGE rows of the pairs that are near, in parts; counts.
    """
    rows, lower = np.unique(rows_of(pairs["lower"]), return_inverse=True)
    starts = np.append(np.flatnonzero(np.diff(lower, prepend=-1)), len(pairs))
    for some in _cut(_lengths(text, rows), _LOWER_BYTES):
        sets = shingle_sets(text.take(pa.array(rows[some])), rule.shingle)
        own = slice(starts[some.start], starts[some.stop])
        order = np.argsort(pairs["higher"][own], kind="stable")
        own_pairs, number = pairs[own][order], lower[own][order] - some.start
        for higher, higher_sets in read_sets():
            first, stop = (np.searchsorted(own_pairs["higher"], higher, side) for side in _SIDES)
            others = np.repeat(np.arange(len(higher)), stop - first)
            all_chosen = ranges(first, stop - first)
            for begin in range(0, len(others), _PAIRS_AT_ONCE):
                chosen = all_chosen[begin : begin + _PAIRS_AT_ONCE]
                other = others[begin : begin + _PAIRS_AT_ONCE]
                found = verify(sets, number[chosen], higher_sets, other, rule.threshold)
                near = own_pairs[chosen[found > 0]]
                edges = np.zeros(len(near), EDGE)
                edges["higher"], edges["lower"] = near["higher"], near["lower"]
                edges["similarity"] = found[found > 0]
                yield edges, observe(verified=len(near), refuted=len(chosen) - len(near))


def name_removed(edges: np.ndarray, digests: np.ndarray) -> tuple[Batches, Observed]:
    """Edges of removed documents -> REMOVED rows, by partition; counts clusters by size.

    `digests`, uint8 [n, 16], are those of the partition of all representatives.
    """
    removed = np.empty(len(edges), REMOVED)
    removed["row"], removed["similarity"] = rows_of(edges["lower"]), edges["similarity"]
    representatives = np.ascontiguousarray(digests[rows_of(edges["higher"])])
    removed["representative"] = representatives.view("V16").reshape(-1)
    counts = observe(removed=len(edges), for_older=int(np.count_nonzero(is_older(edges["higher"]))))
    if len(edges):
        sizes = np.unique(edges["higher"], return_counts=True)[1]
        counts["near_duplicate_clusters"] = count_sizes(sizes)
    return batches_by_key(removed, edges["lower"] >> 32), counts


def count_sizes(removed: np.ndarray) -> dict[str, int]:
    """Counts clusters by their number of documents: {"2 to 3": 10, "4 to 7": 1}.

    Args:
      removed: int64, number of removed documents of each cluster; its representative stays.
    """
    bits, numbers = np.unique(np.frexp((removed + 1).astype(float))[1], return_counts=True)
    return {
        f"{1 << bit - 1} to {(1 << bit) - 1}": number
        for bit, number in zip(bits.tolist(), numbers.tolist(), strict=True)
    }


class Cluster(NamedTuple):
    """A kept document with near-duplicates.

    Attributes:
      removed: number of its near-duplicates, which were removed.
      document: hash of the kept document, 32 hexadecimal digits.
      excerpt: beginning of its text.
    """

    removed: int
    document: str
    excerpt: str


def largest_clusters(edges: np.ndarray, batch: pa.RecordBatch) -> tuple[Cluster, ...]:
    """The largest clusters of removed documents whose representatives are in a partition."""
    places_, removed = np.unique(edges["higher"], return_counts=True)
    rows = rows_of(places_)[np.argsort(-removed, kind="stable")[:_CLUSTERS]]
    removed = -np.sort(-removed)[:_CLUSTERS]
    some = batch.select(["digest", "text"]).take(pa.array(rows))
    texts = [shorten(text) for text in some["text"].to_pylist()]
    names = [digest.hex() for digest in some["digest"].to_pylist()]
    return add_clusters([tuple(map(Cluster, removed.tolist(), names, texts))])


def add_clusters(parts: Iterable[tuple[Cluster, ...]]) -> tuple[Cluster, ...]:
    """The largest clusters of several partitions, whatever their order."""
    clusters = (cluster for part in parts for cluster in part)
    return tuple(sorted(clusters, key=lambda one: (-one.removed, one.document))[:_CLUSTERS])


# ---- number of rounds ----

ROUNDS_BEFORE = 3  # before a single worker decides the rest
_PARTITIONS_OF_ONE_PLACE = 64  # a single worker decides up to this many: cheaper than rounds


def count_rounds(partitions: int) -> int:
    """Number of rounds in which partitions decide before a single worker decides the rest."""
    return ROUNDS_BEFORE if partitions > _PARTITIONS_OF_ONE_PLACE else 0
