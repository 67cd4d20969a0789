"""Rules of size and of plain repetition: --min_chars to --max_repetition."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.filters.repetition import repetition
from pipelines.filters.rules.rule import Judged, Rule
from pipelines.filters.words import count_words

if TYPE_CHECKING:
    from pipelines.filters.filters import Filters


def make_rules(filters: "Filters", texts: int) -> Iterator[Rule]:
    """Rules of which each drops for one reason.

    Args:
      filters: flags; those that drop nothing give no rule.
      texts: of a document, which a newline joins that does not count.
    """

    def count_chars(text: pa.LargeStringArray) -> np.ndarray:
        return pc.utf8_length(text).to_numpy() - (texts - 1)  # pyright: ignore[reportAttributeAccessIssue]

    if filters.min_chars:
        yield _rule("min_chars", count_chars, np.less, filters.min_chars)
    if filters.max_chars:
        yield _rule("max_chars", count_chars, np.greater, filters.max_chars)
    if filters.min_words:
        yield _rule("min_words", count_words, np.less, filters.min_words)
    if filters.max_repetition < 1:
        yield _rule("max_repetition", repetition, np.greater, filters.max_repetition)


def _rule(
    reason: str,
    measure: Callable[[pa.LargeStringArray], np.ndarray],
    is_beyond: np.ufunc,
    limit: float,
) -> Rule:
    def judge(text: pa.LargeStringArray) -> Judged:
        measured = measure(text)
        return Judged(is_beyond(measured, limit), measured=measured)

    return Rule((reason,), judge, limits=(limit,))
