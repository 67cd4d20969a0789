"""Filters from flags as a command line has them."""

from typing import Any

from pipelines.corpus.filters import Filters


def filters_of(**flags: Any) -> Filters:
    """Each flag goes to its row: filters_of(min_chars=3, normalize="nfc")."""
    rows: dict[str, Any] = {}
    for row, family in Filters().families():
        own = {*vars(family)} & {*flags}
        rows[row] = type(family)(**{flag: flags.pop(flag) for flag in own})
    return Filters(**flags, **rows)
