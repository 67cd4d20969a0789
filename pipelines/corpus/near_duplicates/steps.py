"""What the stages of the job make of what came for a key. Pure.

    block -> members of buckets -> asked sets of shingles -> sets, beside each other -> edges

A pair is compared where its lower document belongs, by the digest: so that a document which very
many are like is sent to each partition once, and nobody holds the sets of all that are like it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pipelines.corpus.near_duplicates.buckets import Members, find_pairs
from pipelines.corpus.near_duplicates.flags import Rule
from pipelines.corpus.near_duplicates.jaccard import verify
from pipelines.corpus.near_duplicates.minhash import band_keys, has_shingles, signatures, sketches
from pipelines.corpus.near_duplicates.rows import (
    ASK,
    EDGE,
    MEMBER,
    by_key,
    digest_bytes,
    digest_column,
    distinct,
    of_batch,
    of_streams,
    partition_of,
    to_batch,
)
from pipelines.corpus.near_duplicates.shingles import shingle_sets
from pipelines.rows.example_batch import from_stream
from pipelines.rows.ragged import Ragged
from pipelines.rows.routing import joint_digests
from schemas.drops import Observed
from schemas.errors import DataError

Batches = list[tuple[int, pa.RecordBatch]]
_BAND = np.uint64(0xFF)  # of a key
_PAIRS_AT_ONCE = 1 << 18
_SIZES = 33  # bit lengths of the sizes of clusters


@dataclass(frozen=True)
class Counts:
    """What became of documents and pairs; adds up.

    Attributes:
      compared: documents that have shingles, equal ones too.
      distinct: of them, equal ones counted once.
      verified: pairs that are as similar as the threshold.
      refuted: pairs that met in a bucket and are not.
      uncompared: members of buckets that were compared with others of them only.
      removed: documents, equal ones counted once.
      held_out: of them, those of a training split removed for one of another split.
      clusters: number of clusters whose size has so many bits: of two or three documents in the
        third place.
    """

    compared: int = 0
    distinct: int = 0
    verified: int = 0
    refuted: int = 0
    uncompared: int = 0
    removed: int = 0
    held_out: int = 0
    clusters: tuple[int, ...] = (0,) * _SIZES

    def observed(self) -> Observed:
        """What stats.json of a shard set says of them."""
        names = ("distinct", "removed", "held_out", "verified", "refuted", "uncompared")
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


@dataclass(frozen=True)
class Made:
    """What a stage sends on, by key, and counts."""

    batches: Batches
    counts: Counts = field(default_factory=Counts)


def make_members(
    text: pa.LargeStringArray,
    digests: np.ndarray,
    levels: np.ndarray,
    first_place: int,
    rule: Rule,
    partitions: int,
) -> Made:
    """Documents -> members of buckets, by the partition of the bucket.

    Args:
      text: of documents that lie one after another.
      digests: uint8 [n, 16], of their content.
      levels: uint8 [n], see `Members`.
      first_place: of the first one.
      rule: of the job.
      partitions: of buckets.
    """
    signature = signatures(text, rule.shingle, rule.bands)
    some = np.flatnonzero(has_shingles(signature))
    signature = signature[some]
    members = np.zeros((len(some), rule.bands.bands), MEMBER)
    members["key"] = band_keys(signature, rule.bands)
    members["digest"] = digest_column(digests[some])[:, None]
    members["length"] = text_lengths(text)[some, None]
    members["level"] = levels[some, None]
    members["sketch"] = sketches(signature)[:, None]
    members["place"] = (first_place + some)[:, None]
    members = members.ravel()
    partition = (members["key"] >> np.uint64(32)).astype(np.int64) * partitions >> 32
    batches = [(to, to_batch(rows)) for to, rows in by_key(members, partition)]
    return Made(batches, Counts(compared=len(some)))


def text_lengths(text: pa.LargeStringArray) -> np.ndarray:
    """int64 [n], UTF-8 bytes."""
    bounds = np.frombuffer(text.buffers()[1] or bytes(8), np.int64)
    return np.diff(bounds[text.offset : text.offset + len(text) + 1])


def place_of(block: int, row: int) -> int:
    """Where a document can be read again."""
    return block << 32 | row


def ask_for_sets(streams: Iterable[bytes], rule: Rule, partitions: int) -> Iterator[Made]:
    """Members of the buckets of one partition -> whose sets are wanted where, by block.

    A part of the pairs at a time: in hot buckets they are several for each member.
    """
    members = of_streams(streams, MEMBER)
    digests = members["digest"].copy()
    pairs = find_pairs(
        Members(
            members["key"].copy(),
            digest_bytes(digests),
            members["length"].astype(np.int64),
            members["level"].copy(),
            members["sketch"].copy(),
            members["place"].copy(),
        ),
        rule.bands,
        rule.threshold,
    )
    distinct_here = len(np.unique(digests[members["key"] & _BAND == 0]))
    yield Made([], Counts(distinct=distinct_here, uncompared=pairs.uncompared))
    partition = partition_of(digests, partitions)
    for start in range(0, len(pairs.lower), _PAIRS_AT_ONCE):
        some = slice(start, start + _PAIRS_AT_ONCE)
        lower, higher = pairs.lower[some], pairs.higher[some]
        asked = _ask(members, lower, partition[lower])
        asked["higher"] = digests[higher]
        # The sets of higher documents, once a partition: in a hot bucket they are few.
        to, once = np.divmod(np.unique(partition[lower] * len(members) + higher), len(members))
        asked = np.concatenate([asked, _ask(members, once, to)])
        block = members["place"][np.concatenate([lower, once])] >> 32
        yield Made([(to, to_batch(distinct(rows))) for to, rows in by_key(asked, block)])


def _ask(members: np.ndarray, chosen: np.ndarray, to: np.ndarray) -> np.ndarray:
    asked = np.zeros(len(chosen), ASK)
    asked["to"], asked["row"] = to, members["place"][chosen] & 0xFFFFFFFF
    asked["digest"], asked["level"] = members["digest"][chosen], members["level"][chosen]
    return asked


def make_sets(
    asked: np.ndarray, texts: Iterable[pa.LargeStringArray], place: str, rule: Rule
) -> Iterator[Batches]:
    """A block's documents, read again -> the sets that were asked for, by partition.

    Args:
      asked: ASK rows, in any order.
      texts: of all of the block's documents, in pieces.
      place: of the block, in words.
      rule: of the job.

    Raises:
      DataError: the documents are not those that were read first.
    """
    asked = distinct(asked)
    asked = asked[np.argsort(asked["row"], kind="stable")]
    first = 0
    for text in texts:
        start, stop = np.searchsorted(asked["row"], [first, first + len(text)])
        some = asked[start:stop]
        rows, of_row = np.unique(some["row"], return_inverse=True)
        taken = text.take(pa.array(rows.astype(np.int64) - first))
        found = digest_column(joint_digests([taken]))[of_row] if len(some) else some["digest"]
        _refuse_changed((found != some["digest"]).any(), place)
        if len(some):
            yield _sets_by_partition(some, of_row, shingle_sets(taken, rule.shingle))
        first += len(text)
    _refuse_changed(len(asked) > 0 and int(asked["row"][-1]) >= first, place)


def _refuse_changed(is_changed: bool, place: str) -> None:
    if is_changed:
        raise DataError(
            f"{place} gave other documents when it was read again: let nothing write to the "
            "inputs, and let --filter return the same for the same document; then run again"
        )


def _sets_by_partition(some: np.ndarray, of_row: np.ndarray, sets: Ragged) -> Batches:
    """Each (partition, row) once, with the documents that it is to be compared with."""
    order = np.lexsort((of_row, some["to"]))
    some, of_row = some[order], of_row[order]
    is_new = np.ones(len(some), bool)
    is_new[1:] = (some["to"][1:] != some["to"][:-1]) | (of_row[1:] != of_row[:-1])
    starts = np.flatnonzero(is_new)
    is_pair = digest_bytes(some["higher"]).any(axis=1)
    partners = Ragged.of(some["higher"][is_pair], np.add.reduceat(is_pair.astype(int), starts))
    found = []
    rows = some[starts]
    for to, chosen in by_key(np.arange(len(rows)), rows["to"].astype(np.int64)):
        batch = to_batch(
            rows[chosen],
            set=_binaries(sets.take(of_row[starts[chosen]])),
            higher=_binaries(partners.take(chosen)),
        )
        found.append((to, batch))
    return found


def _binaries(ragged: Ragged) -> pa.Array:
    data = np.ascontiguousarray(ragged.values)
    offsets = ragged.offsets * data.dtype.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data.view(np.uint8))]
    return pa.Array.from_buffers(pa.large_binary(), len(ragged.offsets) - 1, buffers)


def _ragged(column: pa.Array, dtype: str) -> Ragged:
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64)[column.offset :][: len(column) + 1]
    bounds = bounds // np.dtype(dtype).itemsize
    values = np.frombuffer(data or b"", dtype)[bounds[0] : bounds[-1]]
    return Ragged(values, bounds - bounds[0])


def verify_pairs(streams: Iterable[bytes], rule: Rule) -> Iterator[tuple[np.ndarray, Counts]]:
    """Sets, and with whom they are to be compared -> EDGE rows of the pairs that are near.

    A part of the pairs at a time.
    """
    batches = [from_stream(stream) for stream in streams]
    if not batches:
        return
    rows = np.concatenate([of_batch(batch, ASK) for batch in batches])
    sets = Ragged.joined([_ragged(batch["set"], "<u8") for batch in batches])
    partners = Ragged.joined([_ragged(batch["higher"], "V16") for batch in batches])
    order = np.argsort(rows["digest"], kind="stable")
    digests = rows["digest"][order]
    for start in range(0, len(partners.values), _PAIRS_AT_ONCE):
        some = partners.values[start : start + _PAIRS_AT_ONCE]
        numbers = np.arange(start, start + len(some))
        lower = np.searchsorted(partners.offsets, numbers, side="right") - 1
        higher = order[np.searchsorted(digests, some)]
        found = verify(sets, higher, lower, rule.threshold)
        near = np.flatnonzero(found.is_near)
        edges = np.zeros(len(near), EDGE)
        for name, members in (("higher", higher[near]), ("lower", lower[near])):
            edges[name], edges[f"{name}_level"] = rows["digest"][members], rows["level"][members]
        edges["similarity"] = found.similarities[near]
        yield edges, Counts(verified=len(near), refuted=len(some) - len(near))


def cluster_sizes(representatives: np.ndarray) -> Counts:
    """Representatives of removed documents, one each -> the clusters' sizes."""
    sizes = np.unique(representatives, return_counts=True)[1] + 1
    bits = np.frexp(sizes.astype(float))[1]
    return Counts(clusters=tuple(np.bincount(bits, minlength=_SIZES).tolist()))
