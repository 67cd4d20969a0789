"""Documents in memory, and filters from flags as a command line has them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from textmill.pipelines.corpus.english.tokenizer import english_words
from textmill.pipelines.corpus.filters import Filters
from textmill.pipelines.readers.documents import Documents, Role, batch_of

TEXT = Role("text", "string", "text")


def column(texts: Sequence[str]) -> pa.LargeStringArray:
    """Texts as readers give them."""
    return pa.array(texts, pa.large_string())


def english_words_of(texts: Sequence[str]) -> list[list[str]]:
    """The words of each text."""
    found = []
    for words in english_words(column(texts)):
        data = words.data.tobytes()
        spelt = [data[start:stop].decode() for start, stop in words.spans.T.tolist()]
        found += [spelt[first:last] for first, last in pairwise(words.offsets)]
    return found


def documents_of(
    *columns: Sequence[Any], roles: tuple[Role, ...] = (TEXT,), empty: int = 0
) -> Documents:
    """Documents of 100 bytes with a column for each role, as a reader gives them."""
    arrays = [pa.array(c, role.type) for c, role in zip(columns, roles, strict=True)]
    return Documents(batch_of(arrays, roles), empty, (), 100)


def filters_of(**flags: Any) -> Filters:
    """Each flag goes to its row: filters_of(min_chars=3, normalize="nfc")."""
    rows: dict[str, Any] = {}
    for row, group in Filters().groups():
        own = {*vars(group)} & {*flags}
        rows[row] = type(group)(**{flag: flags.pop(flag) for flag in own})
    return Filters(**flags, **rows)
