"""What report.html is made of, and how its sections write numbers and names. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.inspection.row_text import TokenTexts
from pipelines.writers.rejects import Rejects
from schemas.manifest import ManifestFile
from schemas.metadata import Inputs, Schema
from schemas.statistics import ShardStatistics, Statistics


@dataclass(frozen=True)
class SetContent:
    """All that the page is made of."""

    schema: Schema
    statistics: Statistics
    inputs: Inputs
    files: Sequence[ManifestFile]  # of the manifest; the page is made of shards alone
    rejects: Rejects
    token_counts: np.ndarray | None  # int64 [vocabulary], if they were counted
    samples: Mapping[str, Mapping[str, np.ndarray]]  # split to columns, as `sample_rows` reads them
    tokenizer: LoadedTokenizer
    config: bytes  # of config.yaml

    @cached_property
    def texts(self) -> TokenTexts:
        """What turns the set's token ids into text."""
        return TokenTexts(self.tokenizer)

    @cached_property
    def splits(self) -> dict[str, ShardStatistics]:
        """Counts by split, those for training first; added up once for 65,536 shards."""
        counted = self.statistics.splits()
        names = sorted(self.schema.splits, key=lambda name: (not name.startswith("train"), name))
        return {name: counted.get(name, ShardStatistics()) for name in names}

    @cached_property
    def total(self) -> ShardStatistics:
        """The counts of all splits together."""
        return self.statistics.total()


def number(value: float) -> str:
    """Writes a number with commas, and a minus as wide as a digit: -1234567 -> −1,234,567."""
    return f"{value:,.0f}".replace("-", "−")


def percent(share: float) -> str:
    """0.9993 -> 99.93 %; never 100 % for what is less, nor 0 % for what is more."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    for digits in (1, 2, 3):
        text = f"{100 * share:.{digits}f}"
        if 0 < float(text) < 100:
            return text + " %"
    return "< 0.001 %" if share < 0.5 else "> 99.999 %"


def spaced(name: str) -> str:
    """A name as words: min_words -> min words."""
    return name.replace("_", " ")


def cut_text(text: str, longest: int = 300) -> str:
    """The beginning of a text that may be of any length."""
    return text if len(text) <= longest else text[:longest] + "…"


def largest(counts: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """The largest counts in order, those that are left as one: ("7 others", 30)."""
    ordered = sorted(((n, c) for n, c in counts.items() if c), key=lambda item: (-item[1], item[0]))
    if len(ordered) <= most:
        return ordered
    rest = ordered[most - 1 :]
    return [*ordered[: most - 1], (f"{len(rest):,} others", sum(count for _, count in rest))]


Bar = list[tuple[str, str, float]]


def meter(count: int, most: int) -> Bar:
    """A bar as long as the part of the longest one."""
    share = count / (most or 1)
    return [("", "blue", share), ("", "", 1 - share)]
