"""What every worker that looks for near-duplicates needs to know, and what it reports."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pipelines.corpus.near_duplicates.flags import Rule
from pipelines.corpus.near_duplicates.steps import Cluster, add_clusters
from pipelines.runners.shuffle import Deliveries, place_of_key
from schemas.drops import Observed, total_observed

ROUNDS_BEFORE = 3  # one place decides the rest
_PARTITIONS_OF_ONE_PLACE = 64  # whose pairs it takes at once: a round costs more than it spares
# Shuffles, as tallies number them: 0 is that of the documents.
MEMBERS, ASKS, PAIRS, NAMES, REMOVALS, ROUNDS = range(1, 7)
_SHUFFLES = (
    "the documents of partition {}",
    "the buckets of partition {}",
    "the sets that partition {} is asked for",
    "the pairs and sets of partition {}",
    "the clusters of partition {}",
    "the near-duplicates of partition {}",
    "the edges of round {}",
)


def name_tally(key: int) -> str:
    """What a tally's key stands for, in words."""
    shuffle, partition = place_of_key(key)
    number = shuffle - ROUNDS + 1 if shuffle >= ROUNDS else partition
    return _SHUFFLES[min(shuffle, ROUNDS)].format(number)


@dataclass(frozen=True, kw_only=True)
class FindJob:
    """What every worker needs to know.

    Attributes:
      rule: which documents are near.
      partitions: of the corpus; buckets have as many.
      scratch: the folder of staged partitions, and of what workers hand on to each other.
      shuffle_by: what carries batches from worker to worker: files or runner.
      staging: the folder of the run.
      run: names the run that waits for this job.
      local: a folder of the machine that launched the run, for those who watch it.
      blocks: of the plan; a partition is reported as block `blocks + partition` when it is signed,
        and as `blocks + partitions + partition` when its sets are sent.
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
        """In which partitions decide, before one place does."""
        return ROUNDS_BEFORE if self.partitions > _PARTITIONS_OF_ONE_PLACE else 0


@dataclass(frozen=True, kw_only=True)
class FindReport:
    """What a bundle reports; adds up.

    Attributes:
      observed: counts of documents and pairs, for stats.json.
      clusters: the largest ones.
      deliveries: which partitions were read, and what was sent and received.
    """

    observed: Observed = field(default_factory=dict)
    clusters: tuple[Cluster, ...] = ()
    deliveries: Deliveries = field(default_factory=Deliveries)

    @classmethod
    def sum(cls, reports: "Iterable[FindReport]") -> "FindReport":
        """All of them as one."""
        reports = list(reports)
        return cls(
            observed=total_observed(report.observed for report in reports),
            clusters=add_clusters(report.clusters for report in reports),
            deliveries=Deliveries.sum(report.deliveries for report in reports),
        )
