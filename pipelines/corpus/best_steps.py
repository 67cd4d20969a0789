"""The last steps of build_corpus: write partitions, with --keep_best the best documents of each.

`keep_best` has the logic. In round 0, the step that would write a partition counts its documents.
"""

import json
import time
from abc import ABC
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.counting import drop_rows
from textmill.pipelines.corpus.job import CorpusJob, CorpusReport
from textmill.pipelines.corpus.keep_best import (
    LAST,
    RANKED,
    SHIFTS,
    count_ranks,
    find_best,
    find_last,
    ranks_of,
    score_of,
)
from textmill.pipelines.corpus.near_duplicates.rows import take_rows, to_batch
from textmill.pipelines.corpus.near_duplicates.signature_files import write_signatures
from textmill.pipelines.corpus.partition import read_partition, stage_partition
from textmill.pipelines.corpus.partition_files import write_documents
from textmill.pipelines.corpus.shuffles import Shuffle
from textmill.pipelines.linear_model.scores import COLUMN
from textmill.pipelines.runners.steps import KeyedStep, count
from textmill.pipelines.writers.rejects import stash
from textmill.schemas.format.corpus_metadata import NOT_BEST

_COMPLETE, _SCORES = "-complete", "-scores"  # stages of a partition, and its column of scores


class WritingStep(KeyedStep[CorpusJob], ABC):
    """A step on partitions, whose documents it may write."""

    REPORT = CorpusReport

    def finish(self, batch: pa.RecordBatch, key: int) -> None:
        """Writes a partition; with --keep_best, stages it and counts its documents by rank."""
        job = self._job
        if job.keep_best is None:
            self.write(batch, key)
            return
        stage_partition(job.scratch, key, batch, _COMPLETE)
        stage_partition(job.scratch, key, batch.select([COLUMN]), _SCORES)
        self._count(batch, key, 0)

    def write(self, batch: pa.RecordBatch, key: int) -> None:
        """Writes the file of a partition."""
        began = time.monotonic()
        job = self._job
        self.add(write_documents(batch, key, job))
        if job.near:
            self.add(write_signatures(batch, key, job, job.near))
        self._journal.add(rows=len(batch))
        count("documents_kept", len(batch))
        count("file_milliseconds", round(1000 * (time.monotonic() - began)))

    def _count(
        self, batch: pa.RecordBatch, key: int, number: int, last: np.void | None = None
    ) -> None:
        rows = count_ranks(_ranks(batch, key), number, last)
        self.put(Shuffle.RANKS + number, [(0, to_batch(rows))])


def _ranks(batch: pa.RecordBatch, key: int) -> np.ndarray:
    return ranks_of(batch[COLUMN].to_numpy(), key)


class _RoundStep(WritingStep, ABC):
    """A step of a round; rounds count from 0."""

    def __init__(self, job: CorpusJob, receives: int, number: int):
        super().__init__(job, receives)
        self._number = number

    @property
    def phase(self) -> str:
        """The name of the step in the progress display."""
        return f"best documents, round {self._number + 1} of {len(SHIFTS)}"


class FindLast(_RoundStep):
    """The numbers of all partitions -> the last document to keep, for every partition."""

    def __init__(self, job: CorpusJob, number: int):
        super().__init__(job, Shuffle.RANKS + number, number)

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Adds up the numbers."""
        job = self._job
        last = to_batch(find_last(take_rows(streams, RANKED), job.keep_best or 1.0))
        self.put(Shuffle.LASTS + self._number, ((to, last) for to in range(job.partitions)))
        yield


class CountRanks(_RoundStep):
    """The last document of the round before -> numbers of a partition's documents by rank."""

    def __init__(self, job: CorpusJob, number: int):
        super().__init__(job, Shuffle.LASTS + number - 1, number)

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Counts documents by the next bits of their ranks."""
        [last] = take_rows(streams, LAST)
        self._count(read_partition(self._job.scratch, key, _SCORES), key, self._number, last)
        yield


class WriteBest(WritingStep):
    """A partition and the last document to keep -> its file."""

    PHASE = "writing documents"

    def __init__(self, job: CorpusJob):
        super().__init__(job, Shuffle.LASTS + len(SHIFTS) - 1)

    def handle(self, key: int, streams: list[bytes]) -> Iterator[None]:
        """Drops the other documents, and writes the file."""
        job = self._job
        batch = read_partition(job.scratch, key, _COMPLETE)
        [last] = take_rows(streams, LAST)
        is_best = find_best(_ranks(batch, key), last)
        others = batch.filter(pa.array(~is_best))
        scores = [float(str(score)) for score in others[COLUMN].to_numpy()]
        count(f"documents_dropped_{NOT_BEST}", len(others))
        details = [f"quality {score}" for score in scores]
        statistics = drop_rows(others, NOT_BEST, np.ones(len(others), np.int64), details)
        lines = b""
        if job.filters.keep_rejects:
            lines = _lines(others, scores, score_of(int(last["rank"])))
        stashed = stash(lines, job.scratch, job.blocks + key, 0)  # after all blocks
        self.add(CorpusReport(statistics=statistics, stashed=stashed))
        self.write(batch.filter(pa.array(is_best)), key)
        yield


def _lines(batch: pa.RecordBatch, scores: list[float], limit: float) -> bytes:
    """Lines of rejects/filtered.jsonl; their documents were read in one place or several."""
    own = ("digest", COLUMN, "words", "copies")
    documents = batch.select([name for name in batch.schema.names if name not in own]).to_pylist()
    lines = (
        {"reason": NOT_BEST, "measured": score, "limit": limit, **document}
        for score, document in zip(scores, documents, strict=True)
    )
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
