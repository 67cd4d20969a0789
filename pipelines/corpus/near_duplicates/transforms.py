"""The Beam wiring of near-duplicates: staged partitions -> documents to remove.

    ComputeSignatures  partition        -> members of buckets
    Recall             older files      -> members of buckets, with --against
    Propose            buckets          -> pairs, and requests for sets
    Fetch              partition, asks  -> sets of the higher documents of pairs
    Verify             pairs, sets      -> edges: pairs that are near
    ResolveLocally     edges            -> edges that are still open, and removed documents
    AttachIds          representatives  -> removed documents, by their partition

The logic of the steps is in `steps` and `resolve`.
"""

from collections.abc import Iterable

import apache_beam as beam
from apache_beam.pvalue import PCollection

from textmill.pipelines.corpus.ancestors import load_older
from textmill.pipelines.corpus.near_duplicates.comparing_steps import (
    AttachIds,
    Fetch,
    Propose,
    Resolve,
    ResolveLocally,
    Verify,
)
from textmill.pipelines.corpus.near_duplicates.job import FindJob
from textmill.pipelines.corpus.near_duplicates.signing_steps import ComputeSignatures, Recall
from textmill.pipelines.corpus.shuffles import Shuffle
from textmill.pipelines.runners.steps import Wiring


def _number_files(staged: str) -> Iterable[int]:
    """The numbers of the files of older corpora."""
    return range(len(load_older(staged).files))


class FindNear(beam.PTransform):
    """Numbers of staged partitions -> removed documents, and reports."""

    def __init__(self, job: FindJob):
        super().__init__()
        self._job = job

    def expand(self, numbers: PCollection):  # no return type: Beam warns about dict
        """Wires the steps.

        Returns:
          `removed`: (partition, REMOVED rows) of the shuffle REMOVALS; `reports`: (ALL, report).
        """
        job, named = self._job, []
        wiring = Wiring(job.shuffle_by, job.memory)
        apply, group = wiring.apply, wiring.group
        members, markers = apply(ComputeSignatures(job), numbers, Shuffle.MEMBERS, Shuffle.ASKS)
        found = [members]
        if job.against:
            older = (
                numbers.pipeline
                | "Older" >> beam.Create([job.against], reshuffle=False)
                | "OlderFiles" >> beam.FlatMap(_number_files)
                | "SpreadFiles" >> beam.Reshuffle()
            )
            found += apply(Recall(job), older, Shuffle.MEMBERS)
        pairs, asks = apply(
            Propose(job, Shuffle.MEMBERS),
            group("Bucket", *found),
            Shuffle.PAIRS,
            Shuffle.ASKS,
        )
        [sets] = apply(Fetch(job, Shuffle.ASKS), group("Asked", markers, asks), Shuffle.PAIRS)
        [edges] = apply(Verify(job), group("Pair", pairs, sets), Shuffle.ROUNDS)
        for number in range(1, job.rounds + 1):
            grouped = group(f"Round{number}", edges)
            edges, removed = apply(
                ResolveLocally(job, number),
                grouped,
                Shuffle.ROUNDS + number,
                Shuffle.NAMES,
                name=f"ResolveLocally{number}",
            )
            named.append(removed)
        [removed] = apply(
            Resolve(job, Shuffle.ROUNDS + job.rounds), group("Rest", edges), Shuffle.NAMES
        )
        [removed] = apply(
            AttachIds(job, Shuffle.NAMES), group("Removed", *named, removed), Shuffle.REMOVALS
        )
        return {"removed": removed, "reports": wiring.reports | "Reports" >> beam.Flatten()}
