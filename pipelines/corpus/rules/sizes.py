"""Rules of size and repetition for any language: --min_chars to --max_repetition.

The repetition of a document is the larger of two shares from Gopher's quality filter (Rae et al.,
"Scaling Language Models", 2021, arXiv:2112.11446), which drops a document above 0.20 of either:
  - the share of characters in repeated lines,
  - the share of characters in the most frequent pair of consecutive words.
Characters between words or lines do not count. A pair that occurs once is not a repetition; of
equally frequent pairs the longest counts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.rules.rule import Rule, RuleGroup, RuleResult, check_numbers
from textmill.pipelines.readers.documents import take_slices
from textmill.pipelines.rows.text_bytes import count_words, slices, spans, utf8_bytes, word_spans
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.commands.values import take_values
from textmill.schemas.errors import FieldError, flag

_SLICE_BYTES = 2 << 20  # bytes of text judged together: the tables take many times as much
_NEWLINE = 10
SHORT_DOCUMENTS = (
    f"documents are short; if each is a line of a text file, give {flag('document', 'paragraph')} "
    "or file"
)


@dataclass(frozen=True)
class Sizes(RuleGroup):
    """Limit the size and repetition of documents, in any language."""

    REASONS = ("min_chars", "max_chars", "min_words", "max_repetition")
    CAUSES = {
        "min_chars": SHORT_DOCUMENTS,
        "min_words": "documents are short, or in a script that has no spaces between words: use "
        f"{flag('min_chars')} there",
    }

    min_chars: int = 0
    """Minimum number of characters of a document."""
    max_chars: int = 0
    """Maximum number of characters of a document; 0 for no limit."""
    min_words: int = 0
    """Minimum number of words of a document, separated by white space."""
    max_repetition: float = 1.0
    """Maximum share of characters in repeated lines, or in the most frequent pair of words.
    Gopher's limit is 0.2."""

    def __post_init__(self) -> None:
        """Rejects impossible numbers."""
        take_values(self)
        check_numbers(self)
        if 0 < self.max_chars < self.min_chars:
            raise FieldError(
                "max_chars",
                self.max_chars,
                f"this is below min_chars={self.min_chars}, which would drop every document",
            )
        if self.max_repetition > 1:
            raise FieldError(
                "max_repetition",
                self.max_repetition,
                "give a share from 0 to 1; Gopher's limit is 0.2, and 1 keeps all documents",
            )

    def make_rules(self) -> Iterator[Rule]:
        """A rule for each flag that is set."""
        if self.min_chars:
            yield _rule("min_chars", _count_chars, np.less, self.min_chars)
        if self.max_chars:
            yield _rule("max_chars", _count_chars, np.greater, self.max_chars)
        if self.min_words:
            yield _rule("min_words", count_words, np.less, self.min_words)
        if self.max_repetition < 1:
            yield _rule("max_repetition", repetition, np.greater, self.max_repetition)


def _count_chars(text: pa.LargeStringArray) -> np.ndarray:
    return pc.utf8_length(text).to_numpy()


def _rule(
    reason: str,
    measure: Callable[[pa.LargeStringArray], np.ndarray],
    is_beyond: np.ufunc,
    limit: float,
) -> Rule:
    def judge(text: pa.LargeStringArray) -> RuleResult:
        measured = measure(text)
        return RuleResult(is_beyond(measured, limit), measured=measured)

    return Rule((reason,), judge, limits=(limit,))


def repetition(text: pa.LargeStringArray) -> np.ndarray:
    """float64 [n]: the larger of the two shares, from 0 to 1; 0 for a document without words.

    "no no no no" -> 1.0: of 8 characters, the pair `no no` covers all. "a b c" -> 0.0.
    """
    return np.concatenate([np.zeros(0), *map(_of_slice, slices(text, _SLICE_BYTES))])


def _of_slice(text: pa.LargeStringArray) -> np.ndarray:
    data, bounds = utf8_bytes(text)
    return np.maximum(_repeated_lines(data, bounds), _most_frequent_pair(data, bounds))


def _repeated_lines(data: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """float64 [n]: share of characters in repeated lines."""
    starts, stops = spans(data == _NEWLINE, bounds)
    document = np.searchsorted(bounds, starts, side="right") - 1
    line, characters = _name_spans(data, starts, stops)
    seen = _number_by_appearance(document * (line.max(initial=0) + 1) + line)
    # Numbers are in order of first appearance: one that is not above all before is a repeat.
    repeats = seen <= np.concatenate([[-1], np.maximum.accumulate(seen)[:-1]])[: len(seen)]
    return _share(
        np.bincount(document, characters * repeats, len(bounds) - 1),
        np.bincount(document, characters, len(bounds) - 1),
    )


def _most_frequent_pair(data: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """float64 [n]: share of characters in the most frequent pair of words."""
    starts, stops = word_spans(data, bounds)
    document = np.searchsorted(bounds, starts, side="right") - 1
    word, characters = _name_spans(data, starts, stops)
    follows = np.flatnonzero(document[1:] == document[:-1])
    within, covered = document[follows], characters[follows] + characters[follows + 1]
    # Below 2**63: 2 MB have less than 2**20 words, in less than 2**20 documents of two words.
    words = word.max(initial=0) + 1
    number = _number_by_appearance((within * words + word[follows]) * words + word[follows + 1])
    count = np.bincount(number)[number] if len(number) else number
    rank = np.where(count > 1, (count << 32) + covered, 0)
    best = np.zeros(len(bounds) - 1, np.int64)
    if len(within):
        firsts = np.flatnonzero(np.diff(within, prepend=-1))
        best[within[firsts]] = np.maximum.reduceat(rank, firsts)
    total = np.bincount(document, characters, len(bounds) - 1)
    return _share((best >> 32) * (best & 0xFFFFFFFF), total)


def _name_spans(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """int64 [spans] each: a number, equal for equal spans, and the number of characters."""
    if not len(starts):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    spans = take_slices(data, starts, stops).dictionary_encode()
    number = spans.indices.to_numpy().astype(np.int64)
    lengths = pc.utf8_length(spans.dictionary.cast(pa.large_string()))
    return number, lengths.to_numpy().astype(np.int64)[number]


def _number_by_appearance(keys: np.ndarray) -> np.ndarray:
    """[7, 3, 7] -> [0, 1, 0]: numbers keys in order of first appearance."""
    return pa.array(keys).dictionary_encode().indices.to_numpy().astype(np.int64)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.minimum(part / np.maximum(whole, 1), 1.0)
