"""What every worker that looks for near-duplicates needs to know, and what it says."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from pipelines.corpus.filter_documents import Filtered
from pipelines.corpus.near_duplicates.buckets import GIVEN
from pipelines.corpus.near_duplicates.flags import Rule
from pipelines.corpus.near_duplicates.steps import Batches, Counts
from pipelines.readers.sources import Block
from pipelines.rows.routing import Routes
from pipelines.runners.block_run import BlockJob, BlockReport
from pipelines.runners.shuffle import place_of_key
from schemas.features import is_training
from schemas.manifest import ManifestFile

_PARTITION_BYTES = 64 << 20  # of text: of its members 46 MB, with 14 bands and 1.5 kB a document
_MOST_PARTITIONS = 1 << 16
ROUNDS_BEFORE = 3  # one place decides the rest
_PARTITIONS_OF_ONE_PLACE = 64  # whose pairs it takes at once: a round costs more than it spares
PASSES = 2  # over the text
# Shuffles, as tallies number them; that of build_shards' routes is PLACED too.
PLACED, MEMBERS, ASKS, SETS, SIZES, ROUNDS = range(6)
_SHUFFLES = ("the result's part {}", "the buckets of partition {}", "what was asked of block {}")
_SHUFFLES += ("the sets of partition {}", "the clusters of partition {}", "the pairs of round {}")


def name_tally(key: int) -> str:
    """What a tally's key stands for, in words."""
    shuffle, of = place_of_key(key)
    return _SHUFFLES[min(shuffle, ROUNDS)].format(shuffle - ROUNDS if shuffle >= ROUNDS else of)


def count_partitions(total_bytes: int) -> int:
    """How many partitions buckets and documents are dealt with in: a power of two."""
    wanted = max(0, total_bytes - 1) // _PARTITION_BYTES
    return min(1 << wanted.bit_length(), _MOST_PARTITIONS)


class Placing(Protocol):
    """Where it is written that documents are removed."""

    def place(self, removed: np.ndarray) -> Batches:
        """EDGE rows of removed documents -> what is said of them, by the key of who is told."""
        ...


@dataclass(frozen=True, kw_only=True)
class FindJob(BlockJob):
    """What every worker needs to know.

    Attributes:
      rule: which are near.
      placing: where it is written what is removed.
      partitions: that buckets and documents are dealt with in.
      reads: how often somebody else reads, and reports, each block.
      routes: which splits documents are of; None where there are none.
    """

    rule: Rule
    placing: Placing
    partitions: int
    reads: int = 0
    routes: Routes | None = None

    @property
    def rounds(self) -> int:
        """In which partitions decide, before one place does."""
        return ROUNDS_BEFORE if self.partitions > _PARTITIONS_OF_ONE_PLACE else 0

    def levels(self, block: Block, digests: np.ndarray) -> np.ndarray:
        """Whether documents are of a training split, as `Members` has it: uint8 [n]."""
        if block.split:
            return np.full(len(digests), 0 if is_training(block.split) else GIVEN, np.uint8)
        if self.routes is None:
            return np.zeros(len(digests), np.uint8)
        return levels_of(self.routes, digests)


def levels_of(routes: Routes, digests: np.ndarray) -> np.ndarray:
    """0 of documents that go to a training split, 1 of others: uint8 [n]."""
    is_trained = np.array([is_training(name) for name in routes.split_names()])
    return np.where(is_trained[routes.of(digests)], 0, 1).astype(np.uint8)


def text_of(filtered: Filtered) -> pa.LargeStringArray:
    """What is compared: the first role."""
    return filtered.documents.text


@dataclass(frozen=True, kw_only=True)
class FindReport(BlockReport):
    """What a bundle has to say.

    Attributes:
      read: documents found in the inputs.
      dropped: reason to number of those that filters and readers left out.
      counts: of documents and pairs.
      files: of the result.
    """

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    files: tuple[ManifestFile, ...] = ()
