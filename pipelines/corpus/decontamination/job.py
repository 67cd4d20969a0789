"""The settings of the job that counts n-grams of evaluation texts, for every worker."""

from dataclasses import dataclass

from textmill.pipelines.corpus.filters import Filters
from textmill.pipelines.runners.block_run import BlockJob


@dataclass(frozen=True, kw_only=True)
class GramJob(BlockJob):
    """The settings of the job that counts n-grams.

    Attributes:
      filters: rules that filter documents before n-grams are counted.
      index: path of the n-gram index.
      limit: number of documents above which an n-gram is common.
    """

    filters: Filters
    index: str
    limit: int
