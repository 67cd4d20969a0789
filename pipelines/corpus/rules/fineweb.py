"""FineWeb's own quality rules (Penedo et al. 2024), which it adds to Gopher's and C4's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from pipelines.corpus.english.cutting import Words
from pipelines.corpus.english.measures import measure_lines, repeated_spans
from pipelines.corpus.english.tables import character_table
from pipelines.corpus.rules.rule import Family, Limits, Rule, check_numbers, paper, rule_of

_SHORT_LINE = 30


@dataclass(frozen=True)
class FineWeb(Family):
    """FineWeb's rules for English (Penedo et al. 2024); --quality=fineweb turns all of them on."""

    CAUSES = {
        "min_line_ends": "lines are wrapped at a fixed width, or are titles and lists: the rule "
        "treats each line as a paragraph",
        "max_short_lines": "the text is lists or verse, or its lines are wrapped at a small width",
        "max_newlines": "the text is lists or verse, or its lines are wrapped at a small width",
    }

    fineweb_min_line_ends: float | None = paper(0.12)
    """Minimum share of lines that end a sentence."""
    fineweb_max_short_lines: float | None = paper(0.67)
    """Maximum share of short lines."""
    fineweb_short_line: int | None = paper(_SHORT_LINE)
    """Maximum number of characters of a short line."""
    fineweb_max_repeated_line_chars: float | None = paper(0.01)
    """Maximum share of characters in repeated lines."""
    fineweb_max_newlines: float | None = paper(0.3)
    """Maximum number of newlines per word. Lists have more."""

    def __post_init__(self) -> None:
        """Rejects impossible numbers."""
        check_numbers(self)

    def make_rules(self) -> Iterator[Rule]:
        """One rule with all the limits that are set."""
        limits = self.parameters()
        short = limits.pop("fineweb_short_line", _SHORT_LINE)
        if limits:
            yield rule_of(limits, partial(measure, short=short))


def measure(words: Words, limits: Limits, short: int) -> Mapping[str, np.ndarray]:
    """Values that FineWeb's rules limit, by flag; blank lines do not count as lines."""
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
