"""What every worker of build_shards needs to know, and what it says when it is done."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from pipelines.build.near_marks import Marks
from pipelines.decontamination.hits import Hit, add_hits
from pipelines.duplicates.job import PASSES, FindJob
from pipelines.duplicates.steps import Counts, add_counts
from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.filters.filters import Filters
from pipelines.readers.documents import Reject
from pipelines.readers.source import Source
from pipelines.rows.evaluation import EvaluationLine
from pipelines.rows.routing import Routes
from pipelines.runners.deliveries import Deliveries, add_deliveries
from pipelines.storage import store
from pipelines.tasks.task import Task
from pipelines.writers.rejects import Stashed
from pipelines.writers.staging import STAGING
from pipelines.writers.token_counts import NO_COUNTS, add_token_counts
from schemas.errors import DataError
from schemas.manifest import ManifestFile
from schemas.sidecar import Schema
from schemas.statistics import Statistics


@dataclass(frozen=True)
class Job:
    """What every worker needs to know.

    Attributes:
      schema: the contract of the set.
      task: what makes examples and rows.
      source: how inputs are read.
      filters: which documents are kept.
      output: the set's directory; the staging folder lies in it.
      local: a folder of the machine that launched the run, for those who watch it.
      scratch: the folder for what workers hand on to each other.
      run: names the run that waits for this job.
      exchange: what carries example batches to shards: files or runner.
      max_rejects: a run with more refused documents fails; below 0 for no limit.
      config: the file that repeats the run.
      blocks: how many the plan has, each of which must be reported.
      explain: whether what is left out is measured by reason, and sampled.
      near: how near-duplicates are found; None where none are looked for.
      found: the directory of near-duplicates that are known; "" for none.
    """

    schema: Schema
    task: Task
    source: Source
    filters: Filters
    output: str
    local: str
    scratch: str
    run: str
    exchange: str
    max_rejects: int
    config: bytes
    blocks: int
    explain: bool = False
    near: FindJob | None = None
    found: str = ""

    @property
    def staging(self) -> str:
        """Where files wait to be published."""
        return os.path.join(self.output, STAGING)

    def locate(self, name: str) -> str:
        """Where a file of the set lies: staged, or in place, if this is a retry of publishing."""
        staged = os.path.join(self.staging, name)
        return staged if store.exists(staged) else os.path.join(self.output, name)

    @property
    def reads(self) -> int:
        """How often each block is read."""
        return 1 + (self.near is not None) * PASSES

    @property
    def marks(self) -> Marks:
        """Where removed near-duplicates go."""
        return Marks(self.routes, not any(self.schema.splits.values()))

    @property
    def routes(self) -> Routes:
        """Splits and shards, which tell where a document goes."""
        return Routes(self.schema.splits, self.schema.shards)

    def tokenizer(self) -> LoadedTokenizer:
        """The tokenizer as the set carries it."""
        sha256 = self.schema.tokenizer_sha256
        if sha256 not in _loaded_tokenizers:
            path = self.locate("tokenizer.json")
            tokenizer = LoadedTokenizer.from_json(store.read(path))
            if tokenizer.sha256 != sha256:
                raise DataError(f"{path} is not the tokenizer that the run began with: run again")
            share_tokenizer(tokenizer.with_roles(self.schema.special_ids))
        return _loaded_tokenizers[sha256]


# Parsing one takes 0.4 s and the first encode another 0.5: once a process is enough.
_loaded_tokenizers: dict[str, LoadedTokenizer] = {}


def share_tokenizer(tokenizer: LoadedTokenizer) -> None:
    """Lets workers in this process use a tokenizer that is loaded already."""
    _loaded_tokenizers[tokenizer.sha256] = tokenizer


@dataclass(frozen=True)
class Report:
    """What a bundle of blocks or a shard has to say; reports add up."""

    statistics: Statistics = field(default_factory=Statistics)
    files: tuple[ManifestFile, ...] = ()
    rejects: tuple[Reject, ...] = ()
    digests: tuple[tuple[str, int, int, str], ...] = ()
    evaluation: tuple[EvaluationLine, ...] = ()
    stashed: tuple[Stashed, ...] = ()
    token_counts: np.ndarray = field(default_factory=lambda: NO_COUNTS, compare=False)
    deliveries: Deliveries = field(default_factory=Deliveries)
    near: Counts = field(default_factory=Counts)
    hits: tuple[Hit, ...] = ()


def add_reports(reports: Iterable[Report]) -> Report:
    """All of them as one, in linear time."""
    reports = list(reports)

    def all_of(name: str) -> tuple:
        return tuple(chain.from_iterable(getattr(report, name) for report in reports))

    return Report(
        Statistics.sum(report.statistics for report in reports),
        all_of("files"),
        all_of("rejects"),
        all_of("digests"),
        all_of("evaluation"),
        all_of("stashed"),
        add_token_counts(report.token_counts for report in reports),
        add_deliveries([report.deliveries for report in reports]),
        add_counts(report.near for report in reports),
        add_hits(all_of("hits")),
    )
