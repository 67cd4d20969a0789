"""The settings and reports of workers that search for near-duplicates."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pipelines.corpus.near_duplicates.flags import Rule
from pipelines.corpus.near_duplicates.steps import Cluster, add_clusters
from pipelines.runners.shuffle import Deliveries, place_of_key
from schemas.drops import Observed, total_observed

ROUNDS_BEFORE = 3  # before a single worker decides the rest
_PARTITIONS_OF_ONE_PLACE = 64  # a single worker decides up to this many: cheaper than rounds
# Numbers of shuffles in tallies; 0 is the shuffle of documents.
MEMBERS, ASKS, PAIRS, NAMES, REMOVALS, ROUNDS = range(1, 7)
_SHUFFLES = (
    "the documents of partition {}",
    "the buckets of partition {}",
    "the sets requested from partition {}",
    "the pairs and sets of partition {}",
    "the clusters of partition {}",
    "the near-duplicates of partition {}",
    "the edges of round {}",
)


def name_tally(key: int) -> str:
    """Describes a tally's key for messages: `the buckets of partition 3`."""
    shuffle, partition = place_of_key(key)
    number = shuffle - ROUNDS + 1 if shuffle >= ROUNDS else partition
    return _SHUFFLES[min(shuffle, ROUNDS)].format(number)


@dataclass(frozen=True, kw_only=True)
class FindJob:
    """The settings that every worker needs.

    Attributes:
      rule: definition of near-duplicates.
      partitions: number of partitions of the corpus, and of the buckets.
      scratch: folder of staged partitions and shuffle files.
      shuffle_by: how batches travel between workers: files or runner.
      staging: staging folder of the run.
      run: id of the run that waits for this job.
      local: folder of progress files on the machine that launched the run.
      blocks: number of blocks of the plan; a partition is reported as block `blocks + partition`
        when it is signed, and as `blocks + partitions + partition` when its sets are sent.
    """

    rule: Rule
    partitions: int
    scratch: str
    shuffle_by: str
    staging: str
    run: str
    local: str
    blocks: int

    @property
    def rounds(self) -> int:
        """Number of rounds in which partitions decide before a single worker decides the rest."""
        return ROUNDS_BEFORE if self.partitions > _PARTITIONS_OF_ONE_PLACE else 0


@dataclass(frozen=True, kw_only=True)
class FindReport:
    """The report of a bundle.

    Attributes:
      observed: counts of documents and pairs, for stats.json.
      clusters: the largest clusters.
      deliveries: partitions read, and batches sent and received.
    """

    observed: Observed = field(default_factory=dict)
    clusters: tuple[Cluster, ...] = ()
    deliveries: Deliveries = field(default_factory=Deliveries)

    @classmethod
    def sum(cls, reports: "Iterable[FindReport]") -> "FindReport":
        """Adds up reports."""
        reports = list(reports)
        return cls(
            observed=total_observed(report.observed for report in reports),
            clusters=add_clusters(report.clusters for report in reports),
            deliveries=Deliveries.sum(report.deliveries for report in reports),
        )
