"""FineWeb's own rules of quality (Penedo et al. 2024, section 3.6), beside Gopher's and C4's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pipelines.corpus.english.characters import character_table
from pipelines.corpus.english.cutting import Words
from pipelines.corpus.english.measure_loop import measure_lines
from pipelines.corpus.english.repeat_loop import repeated_spans
from pipelines.corpus.rules.presets import Limits, asked_for, check_numbers, rule_of
from pipelines.corpus.rules.rule import Rule

if TYPE_CHECKING:
    from pipelines.corpus.filters import Filters


@dataclass(frozen=True)
class FinewebFlags:
    """Each of FineWeb's own rules by itself; --quality=fineweb asks for all."""

    fineweb_min_line_ends: float | None = None
    """Drop documents of which a smaller share of lines ends a sentence (0.12)."""
    fineweb_max_short_lines: float | None = None
    """Drop documents of which a larger share of lines is short (0.67)."""
    fineweb_short_line: int | None = None
    """Characters of a short line, at most (30)."""
    fineweb_max_repeated_line_chars: float | None = None
    """Drop documents of which a larger share of characters is in lines that were there before
    (0.01)."""
    fineweb_max_newlines: float | None = None
    """Drop documents with more newlines a word: lists (0.3)."""

    def __post_init__(self) -> None:
        """Refuses numbers that cannot be meant."""
        check_numbers(self)


FINEWEB = FinewebFlags(
    fineweb_min_line_ends=0.12,
    fineweb_max_short_lines=0.67,
    fineweb_short_line=30,
    fineweb_max_repeated_line_chars=0.01,
    fineweb_max_newlines=0.3,
)


def make_rules(filters: "Filters", texts: int) -> Iterator[Rule]:
    """One rule with all the limits that are asked for."""
    limits = asked_for(filters.fineweb, FINEWEB, "fineweb" in filters.presets)
    short = limits.pop("fineweb_short_line", FINEWEB.fineweb_short_line)
    if limits:
        yield rule_of(limits, partial(measure, short=short))


def measure(words: Words, limits: Limits, short: int) -> Mapping[str, np.ndarray]:
    """What FineWeb's rules look at, by the names of their flags; blank lines are none."""
    spans, offsets, counts = measure_lines(words.data, words.bounds, character_table(), short)
    ends, short_lines, newlines, characters = counts
    lines = np.maximum(np.diff(offsets), 1)
    repeated = repeated_spans(words.data, spans, offsets)[1]
    return {
        "fineweb_min_line_ends": ends / lines,
        "fineweb_max_short_lines": short_lines / lines,
        "fineweb_max_repeated_line_chars": repeated / np.maximum(characters, 1),
        "fineweb_max_newlines": newlines / np.maximum(np.diff(words.offsets), 1),
    }
