"""Rules that limit measures of English text: Gopher's (Rae et al. 2021), FineWeb's (Penedo 2024).

Gopher's are on quality and repetition; FineWeb adds its own to Gopher's and C4's. Words are cut as
English, with punctuation as words of its own, as in datatrove's filters, so that documents get the
same verdicts as in published corpora.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.english.metrics import (
    find_runs,
    measure_lines,
    measure_ngrams,
    measure_text,
    measure_words,
    repeated_spans,
)
from textmill.pipelines.corpus.english.tables import character_table, hash_spelling
from textmill.pipelines.corpus.english.tokenizer import Words, english_words
from textmill.pipelines.corpus.rules.rule import Rule, RuleGroup, RuleResult, check_numbers, paper
from textmill.pipelines.corpus.rules.shares import NgramLimits
from textmill.pipelines.corpus.rules.sizes import SHORT_DOCUMENTS
from textmill.schemas.commands.values import spelled, take_values

_Limits = dict[str, float]
_Measure = Callable[[Words, _Limits], Mapping[str, np.ndarray]]
_SHORT_LINE = 30
_NGRAMS = ("gopher_max_top_ngrams", "gopher_max_repeated_ngrams")
_NGRAM_RULE = spelled(NgramLimits, "NGRAMS", none="None")
_STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


@dataclass(frozen=True)
class Gopher(RuleGroup):
    """Gopher's rules for English (Rae et al. 2021); --quality=gopher turns all of them on."""

    CAUSES = {
        "min_words": SHORT_DOCUMENTS,
        "min_word_length": "the text may be a list, code, or in a script without spaces",
        "max_word_length": "the text may be in a script without spaces, or have long compounds",
        "min_alphabetic": "the text may be tables, code, in a script without spaces, or have many "
        "numbers and punctuation marks, which count as words",
        "min_stop_words": "the text may not be English, for which Gopher's rules were made",
    }

    gopher_min_words: int | None = paper(50)
    """Minimum number of words, not counting punctuation."""
    gopher_max_words: int | None = paper(100_000)
    """Maximum number of words, not counting punctuation."""
    gopher_min_word_length: float | None = paper(3)
    """Minimum mean length of words, in characters."""
    gopher_max_word_length: float | None = paper(10)
    """Maximum mean length of words, in characters."""
    gopher_max_symbols: float | None = paper(0.1)
    """Maximum number of hash signs per word, and of ellipses per word."""
    gopher_max_bullet_lines: float | None = paper(0.9)
    """Maximum share of lines that start with a bullet."""
    gopher_max_ellipsis_lines: float | None = paper(0.3)
    """Maximum share of lines that end in an ellipsis."""
    gopher_min_alphabetic: float | None = paper(0.8)
    """Minimum share of words, counting punctuation, that have a letter."""
    gopher_min_stop_words: int | None = paper(2)
    """Minimum number of different stop words: the, be, to, of, and, that, have, with."""
    gopher_max_repeated_paragraphs: float | None = paper(0.3)
    """Maximum share of repeated paragraphs."""
    gopher_max_repeated_paragraph_chars: float | None = paper(0.2)
    """Maximum share of characters in repeated paragraphs."""
    gopher_max_repeated_lines: float | None = paper(0.3)
    """Maximum share of repeated lines."""
    gopher_max_repeated_line_chars: float | None = paper(0.2)
    """Maximum share of characters in repeated lines."""
    gopher_max_top_ngrams: Annotated[NgramLimits | None, _NGRAM_RULE] = paper(
        NgramLimits({2: 0.2, 3: 0.18, 4: 0.16})
    )
    """Maximum share of characters in the most frequent run of n words, for each n: 2:0.2,3:0.18."""
    gopher_max_repeated_ngrams: Annotated[NgramLimits | None, _NGRAM_RULE] = paper(
        NgramLimits({5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.1})
    )
    """Maximum share of characters in repeated runs of n words, for each n: 5:0.15,6:0.14."""

    def __post_init__(self) -> None:
        """Rejects impossible numbers."""
        take_values(self)
        check_numbers(self)

    def limits(self) -> _Limits:
        """The limits that are set, by name, in the order in which they apply."""
        limits = self.settings()
        for name in _NGRAMS:
            form, own = name.replace("_ngrams", "_{}_grams"), limits.pop(name, {})
            limits |= {form.format(n): share for n, share in own.items()}
        return limits

    def make_rules(self) -> Iterator[Rule]:
        """One rule with all the limits that are set."""
        if limits := self.limits():
            yield _rule_of(limits, measure_gopher)


def measure_gopher(words: Words, limits: _Limits) -> Mapping[str, np.ndarray]:
    """Values that Gopher's rules limit, by flag; repetition only if it is limited."""
    data, bounds, table = words.data, words.bounds, character_table()
    stop_words = np.array([hash_spelling(word.encode()) for word in _STOP_WORDS], np.uint64)
    all_words, solid, characters, alphabetic, stops = measure_words(
        data, words.spans, words.offsets, table, stop_words
    )
    lines, bullets, dotted, hashes, ellipses, total = measure_text(data, bounds, table)
    mean = _share(characters, solid)
    values = {
        "gopher_min_words": solid,
        "gopher_max_words": solid,
        "gopher_min_word_length": mean,
        "gopher_max_word_length": mean,
        "gopher_max_symbols": _share(np.maximum(hashes, ellipses), all_words),
        "gopher_max_bullet_lines": _share(bullets, lines),
        "gopher_max_ellipsis_lines": _share(dotted, lines),
        "gopher_min_alphabetic": _share(alphabetic, all_words),
        "gopher_min_stop_words": stops,
    }
    if not any("_repeated_" in name or "_top_" in name for name in limits):
        return values
    for unit, newlines in (("paragraph", 2), ("line", 1)):
        spans, offsets = find_runs(data, bounds, newlines, table, newlines == 2)
        repeats, characters = repeated_spans(data, spans, offsets)
        values[f"gopher_max_repeated_{unit}s"] = _share(repeats, np.diff(offsets))
        values[f"gopher_max_repeated_{unit}_chars"] = _share(characters, total)
    names = [name for name in limits if name.endswith("_grams")]
    top, repeated = (
        np.array([int(name.split("_")[3]) for name in names if kind in name], np.int64)
        for kind in ("_top_", "_repeated_")
    )
    parts = measure_ngrams(data, words.spans, words.offsets, top, repeated)
    return values | {name: _share(part, total) for name, part in zip(names, parts, strict=True)}


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return part / np.maximum(whole, 1)


@dataclass(frozen=True)
class FineWeb(RuleGroup):
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
        take_values(self)
        check_numbers(self)

    def make_rules(self) -> Iterator[Rule]:
        """One rule with all the limits that are set."""
        limits = self.settings()
        short = limits.pop("fineweb_short_line", _SHORT_LINE)
        if limits:
            yield _rule_of(limits, partial(measure_fineweb, short=short))


def measure_fineweb(words: Words, limits: _Limits, short: int) -> Mapping[str, np.ndarray]:
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


def _rule_of(limits: _Limits, measure: _Measure) -> Rule:
    """Makes a rule that drops documents below a minimum or above a maximum.

    Args:
      limits: flag -> limit. A value below gopher_min_words, or above gopher_max_words, drops a
        document for the reason gopher:min_words or gopher:max_words; the first limit counts.
      measure: returns the values of D documents for each limit, by name, each [D].
    """

    def judge(text: pa.LargeStringArray) -> RuleResult:
        reasons, measured = [np.zeros(0, np.int64)], [np.zeros(0)]
        for words in english_words(text):
            values = measure(words, limits)
            is_dropped = np.stack(
                [
                    values[name] < limit if "_min_" in name else values[name] > limit
                    for name, limit in limits.items()
                ]
            )
            first = is_dropped.argmax(axis=0)
            reasons.append(np.where(is_dropped.any(axis=0), first + 1, 0))
            measured.append(np.choose(first, [values[name] for name in limits]))
        return RuleResult(np.concatenate(reasons), measured=np.concatenate(measured))

    names = tuple(name.replace("_", ":", 1) for name in limits)
    return Rule(names, judge, limits=tuple(limits.values()))
