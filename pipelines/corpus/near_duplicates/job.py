"""The settings of a run that removes near-duplicates, for every worker."""

from dataclasses import dataclass

from textmill.pipelines.corpus.job import CorpusJob
from textmill.pipelines.corpus.near_duplicates.flags import NearDuplicateRule
from textmill.pipelines.corpus.near_duplicates.steps import count_rounds


@dataclass(frozen=True, kw_only=True)
class FindJob(CorpusJob):
    """The settings of a run that removes near-duplicates.

    A partition is reported as block `blocks + partition` when it is signed, and as
    `blocks + partitions + partition` when its sets are sent.
    """

    rule: NearDuplicateRule

    @property
    def rounds(self) -> int:
        """Number of rounds in which partitions decide."""
        return count_rounds(self.partitions)

    def phase(self, step: int, what: str) -> str:
        """The name of a step in the progress display; the steps count from 1."""
        return f"near-duplicates, step {step} of {self.rounds + 6} ({what})"
