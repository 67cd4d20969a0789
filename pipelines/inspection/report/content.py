"""The data behind report.html, and how its sections write numbers and names. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from rich.filesize import decimal

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.inspection.row_text import TokenTexts
from textmill.pipelines.writers.rejects import Rejects
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.format.metadata import InputFile, Inputs, Schema
from textmill.schemas.format.statistics import ShardStatistics, Statistics

_LISTED = 20  # input files; the rest is one line


@dataclass(frozen=True)
class SetContent:
    """A dataset as the report needs it."""

    schema: Schema
    statistics: Statistics
    inputs: Inputs
    files: Sequence[ManifestFile]  # the entries of the manifest for shards
    rejects: Rejects
    token_counts: np.ndarray | None  # int64 [vocab_size]; None if not counted
    samples: Mapping[str, Mapping[str, np.ndarray]]  # split to columns, as `sample_rows` reads them
    tokenizer: LoadedTokenizer
    config: bytes  # of config.yaml

    @cached_property
    def texts(self) -> TokenTexts:
        """Turns token ids of the dataset into text."""
        return TokenTexts(self.tokenizer)

    @cached_property
    def splits(self) -> dict[str, ShardStatistics]:
        """Counts by split, training splits first; cached, since there may be 65,536 shards."""
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


def tile(count: int) -> str:
    """Writes a count exactly up to a billion, then in four digits: 5,983; 1.235G."""
    return number(count) if count < 1_000_000_000 else compact(count, 4)


def compact(number: float, digits: int = 2) -> str:
    """Writes a number with few digits and a unit: 950, 1.2k, 36k, 4.5M, 12G."""
    for unit in ("", "k", "M", "G", "T"):
        if number < 999.5:
            whole = len(f"{number:.0f}")
            text = f"{number:.{max(digits - whole, 0) if unit else 0}f}"
            return (text.rstrip("0").rstrip(".") if "." in text else text) + unit
        number /= 1000
    return f"{number:,.0f}P"


def percent(share: float) -> str:
    """0.9993 -> 99.93 %; never 100 % for what is less, nor 0 % for what is more."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    for digits in (1, 2, 3):
        text = f"{100 * share:.{digits}f}"
        if 0 < float(text) < 100:
            return text + " %"
    return "< 0.001 %" if share < 0.5 else "> 99.999 %"


def list_inputs(files: Sequence[InputFile]) -> list[tuple[str, str]]:
    """Paths and sizes of the first input files, and the size of the rest as one."""
    inputs = [(file.path, decimal(file.bytes)) for file in files[:_LISTED]]
    if len(files) > _LISTED:
        rest = sum(file.bytes for file in files[_LISTED:])
        inputs.append((f"and {len(files) - _LISTED:,} more", decimal(rest)))
    return inputs


def flag_lines(config: bytes, *left_out: str) -> list[str]:
    """The lines of config.yaml, without comments and some flags."""
    lines = config.decode().strip().split("\n")
    return [line for line in lines if not line.startswith(("#", *left_out))]


def cut_text(text: str, longest: int = 300) -> str:
    """Returns the text, or its first `longest` characters and an ellipsis."""
    return text if len(text) <= longest else text[:longest] + "…"


def largest(counts: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """Returns the largest counts in order, and the rest as one: ("7 others", 30)."""
    ordered = sorted(((n, c) for n, c in counts.items() if c), key=lambda item: (-item[1], item[0]))
    if len(ordered) <= most:
        return ordered
    rest = ordered[most - 1 :]
    return [*ordered[: most - 1], (f"{len(rest):,} others", sum(count for _, count in rest))]


Bar = list[tuple[str, str, float]]


def meter(count: int, most: int) -> Bar:
    """Returns a bar that shows `count` as a share of `most`."""
    share = count / (most or 1)
    return [("", "blue", share), ("", "", 1 - share)]
