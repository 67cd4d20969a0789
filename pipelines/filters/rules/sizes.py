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
    joints = texts - 1
    if filters.min_chars:
        yield _rule("min_chars", lambda text: _count_chars(text) - joints < filters.min_chars)
    if filters.max_chars:
        yield _rule("max_chars", lambda text: _count_chars(text) - joints > filters.max_chars)
    if filters.min_words:
        yield _rule("min_words", lambda text: count_words(text) < filters.min_words)
    if filters.max_repetition < 1:
        yield _rule("max_repetition", lambda text: repetition(text) > filters.max_repetition)


def _rule(reason: str, is_dropped: Callable[[pa.LargeStringArray], np.ndarray]) -> Rule:
    return Rule((reason,), lambda text: Judged(is_dropped(text)))


def _count_chars(text: pa.LargeStringArray) -> np.ndarray:
    return pc.utf8_length(text).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]
