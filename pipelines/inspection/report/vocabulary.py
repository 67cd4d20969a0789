"""Section of report.html: how often tokens occur. Pure."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from pipelines.inspection.report.content import SetContent, short
from pipelines.inspection.report.figures import zipf

_TOKENS = 24  # listed of each kind


def tokens(content: SetContent) -> dict[str, Any] | None:
    """Counts by rank, the most frequent tokens and the rarest; None if nobody counted."""
    counts = content.token_counts
    if counts is None or not counts.any():
        return None
    every = int(counts.sum())
    order = np.lexsort((np.arange(len(counts)), -counts))
    used = int(np.count_nonzero(counts))
    ranked = np.cumsum(counts[order])
    special = set(content.schema.all_special_ids)

    def rows(ids: Iterable[int]) -> list[tuple[int, str, int, float]]:
        highest = int(counts[order[0]])
        listed = [(i, _token(content, i), int(counts[i])) for i in ids]
        return [(*token, 100 * token[-1] / highest) for token in listed]

    ordinary = [i for i in order[: _TOKENS + len(special)].tolist() if i not in special]
    return {
        "curve": zipf(counts),
        "used": used,
        "vocabulary": len(counts),
        "every": every,
        "unused": len(counts) - used,
        "once": int((counts == 1).sum()),
        "cover": [
            (share, int(np.searchsorted(ranked, share * every)) + 1) for share in (0.5, 0.9, 0.99)
        ],
        "frequent": rows(ordinary[:_TOKENS]),
        "rare": rows(order[max(used - _TOKENS, 0) : used][::-1].tolist()),
        "special": rows(i for i in sorted(special) if counts[i]),
    }


def _token(content: SetContent, token: int) -> str:
    return short(content.texts.text([token])).replace(" ", "␣")
