"""The settings of build_corpus' workers, and their reports."""

from dataclasses import dataclass, field
from itertools import chain
from typing import Self

from textmill.pipelines.corpus.decontamination.matches import Hit, add_hits
from textmill.pipelines.corpus.filters import Filters
from textmill.pipelines.corpus.near_duplicates.flags import NearDuplicateRule
from textmill.pipelines.corpus.near_duplicates.steps import (
    Cluster,
    add_clusters,
)
from textmill.pipelines.corpus.options import Paragraphs
from textmill.pipelines.corpus.scored import Scored
from textmill.pipelines.readers.page_hosts import PageHosts
from textmill.pipelines.runners.block_run import BlockJob, BlockReport
from textmill.pipelines.writers.rejects import Stashed
from textmill.schemas.format.corpus_metadata import CorpusSchema, CorpusStatistics
from textmill.schemas.format.drops import Observed
from textmill.schemas.format.manifest import ManifestFile


@dataclass(frozen=True, kw_only=True)
class CorpusJob(BlockJob):
    """The settings that every worker needs."""

    filters: Filters
    index: str | None = None  # path of the n-grams of evaluation texts
    schema: CorpusSchema
    output: str  # the directory of the corpus, which holds the staging folder
    keep_source: bool
    max_rejects: int  # the run fails if it rejects more; no limit below 0
    config: bytes  # content of config.yaml, which repeats the run
    near: NearDuplicateRule | None = None  # None if near-duplicates are kept
    paragraphs: Paragraphs | None = None  # None if repeated paragraphs are kept
    against: str = ""  # path of the list of older corpora; "" for none

    @property
    def is_staged(self) -> bool:
        """Whether later steps read partitions again."""
        return self.near is not None or self.paragraphs is not None

    @property
    def keep_best(self) -> float | None:
        """The share of documents that --keep_best keeps; None for all."""
        return self.filters.quality_model.keep_best

    @property
    def partitions(self) -> int:
        """Number of partitions: one for each file of the corpus."""
        return self.schema.files

    @property
    def keys(self) -> int:
        """The partitions."""
        return self.partitions


@dataclass(frozen=True, kw_only=True)
class CorpusReport(BlockReport):
    """The report of a bundle of blocks or of partitions."""

    ADDED = {"hits": lambda hits: add_hits(chain(*hits)), "clusters": add_clusters}

    statistics: CorpusStatistics = field(default_factory=CorpusStatistics)
    files: tuple[ManifestFile, ...] = ()
    hits: tuple[Hit, ...] = ()  # text that documents share with evaluation texts
    stashed: tuple[Stashed, ...] = ()  # filtered documents, with --keep_rejects
    clusters: tuple[Cluster, ...] = ()  # the largest clusters of near-duplicates
    hosts: PageHosts = field(default_factory=PageHosts)
    scored: Scored = field(default_factory=Scored)

    @classmethod
    def of_counts(cls, counts: Observed) -> Self:
        """The report of counts, section to key to number."""
        return cls(statistics=CorpusStatistics(observed=counts))
