"""The rules by which filters drop documents, each with the flag that asks for it. Pure."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.filters.repetition import repetition
from pipelines.filters.words import count_words

if TYPE_CHECKING:
    from pipelines.filters.filters import Filters

_JOINT = pa.scalar("\n", pa.large_string())


def find_dropped(columns: pa.RecordBatch, texts: list[str], filters: "Filters") -> dict[int, str]:
    """Document to reason, of those that a rule drops: each for the first reason found.

    Args:
      columns: of all roles.
      texts: names of those that are text; what counts is all of them together.
      filters: flags.
    """
    text = columns[texts[0]]
    if len(texts) > 1:
        join = pc.binary_join_element_wise  # pyright: ignore[reportAttributeAccessIssue]
        text = join(*(columns[name] for name in texts), _JOINT)
    reasons: dict[int, str] = {}
    left = np.arange(len(columns))
    for reason, is_dropped in _rules(filters, len(texts) - 1):
        dropped = is_dropped(text)
        reasons |= dict.fromkeys(left[dropped].tolist(), reason)
        left, text = left[~dropped], text.filter(pa.array(~dropped))
    return reasons


def _rules(
    filters: "Filters", joints: int
) -> Iterator[tuple[str, Callable[[pa.LargeStringArray], np.ndarray]]]:
    """Reasons, each with what tells which of n documents are dropped for it: bool [n].

    Args:
      filters: flags; those that drop nothing give no rule.
      joints: characters of a document that join its texts.
    """
    if filters.min_chars:
        yield "min_chars", lambda text: _count_chars(text) - joints < filters.min_chars
    if filters.max_chars:
        yield "max_chars", lambda text: _count_chars(text) - joints > filters.max_chars
    if filters.min_words:
        yield "min_words", lambda text: count_words(text) < filters.min_words
    if filters.max_repetition < 1:
        yield "max_repetition", lambda text: repetition(text) > filters.max_repetition


def _count_chars(text: pa.LargeStringArray) -> np.ndarray:
    return pc.utf8_length(text).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]
