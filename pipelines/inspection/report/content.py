"""The data behind the report of a dataset. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.inspection.report.shared_sections import ReportContent
from textmill.pipelines.inspection.row_text import TokenTexts
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.statistics import ShardStatistics, Statistics


@dataclass(frozen=True, kw_only=True)
class SetContent(ReportContent):
    """A dataset as the report needs it."""

    schema: Schema
    statistics: Statistics
    token_counts: np.ndarray | None  # int64 [vocab_size]; None if not counted
    samples: Mapping[str, Mapping[str, np.ndarray]]  # split to columns, as `sample_rows` reads them
    tokenizer: LoadedTokenizer

    @cached_property
    def texts(self) -> TokenTexts:
        """Turns token ids of the dataset into text."""
        return TokenTexts(self.tokenizer)

    @cached_property
    def splits(self) -> dict[str, ShardStatistics]:
        """Counts by split, training splits first."""
        return splits_of(self.schema, self.statistics)

    @cached_property
    def total(self) -> ShardStatistics:
        """The counts of all splits together."""
        return self.statistics.total()


def splits_of(schema: Schema, statistics: Statistics) -> dict[str, ShardStatistics]:
    """Counts by split, training splits first."""
    counted = statistics.splits()
    names = sorted(schema.splits, key=lambda name: (not name.startswith("train"), name))
    return {name: counted.get(name, ShardStatistics()) for name in names}
