"""Section of report.html: what each rule removed, with samples. Pure."""

from typing import Any

from pipelines.inspection.report.content import LISTED, SetContent, most, short
from pipelines.inspection.report.figures import columns
from pipelines.inspection.set_tables import by_number
from schemas.drops import drop_of, in_order
from schemas.funnel import SIZES, Removed, sizes

_RULES = 60  # listed; others are one row
_BARS = 60  # of a histogram
_PARTS = ("language",)  # sections whose counts are parts of one whole


def removals(content: SetContent) -> dict[str, Any] | None:
    """The funnel from the given documents to the kept ones; None where nobody asked for it."""
    funnel = content.statistics.funnel
    if funnel is None:
        return None
    given = sizes(funnel)
    left = dict(given)
    rows, samples = [], []
    for reason, removed in _listed(funnel.removed):
        bars = {}
        for name, size in sizes(removed).items():
            left[name] -= size
            bars[name] = _bar(left[name], size, max(given[name], 1), drop_of(reason).color)
        name = short(reason.replace("_", " "))
        rows.append((name, removed, bars))
        if removed.samples:
            samples.append((name, removed.documents, removed.samples))
    return {
        "given": given,
        "kept": {name: getattr(content.total, name) for name in SIZES},
        "edited_bytes": funnel.edited_bytes,
        "rows": rows,
        "samples": samples,
    }


def observed(content: SetContent) -> list[dict[str, Any]] | None:
    """What filters counted besides, a figure a section: numbers as columns, names as a list."""
    sections = []
    for section, counts in sorted(content.statistics.observed.items()):
        ordered = by_number(counts)
        total = sum(counts.values()) or 1
        bars = [(name, n, f"{name}: {n:,}", "blue") for name, n in ordered or ()][:_BARS]
        rows = [(short(name), n, n / total) for name, n in most(counts, LISTED)]
        sections.append(
            {
                "title": section.replace("_", " "),
                "columns": columns(bars),
                "rows": [] if ordered else rows,
                "are_parts": section in _PARTS,
            }
        )
    return sections or None


def _listed(removed: dict[str, Removed]) -> list[tuple[str, Removed]]:
    """Reasons in the order of their rules; those that are left as one."""
    ordered = [(reason, removed[reason]) for reason in in_order(removed)]
    if len(ordered) <= _RULES:
        return ordered
    rest = [one for _, one in ordered[_RULES - 1 :]]
    documents, text_bytes, tokens = (sum(getattr(one, name) for one in rest) for name in SIZES)
    others = Removed(documents, text_bytes, tokens)
    return [*ordered[: _RULES - 1], (f"{len(rest):,} others", others)]


def _bar(left: int, removed: int, given: int, color: str) -> list[tuple[str, str, float]]:
    before = given - left - removed
    shares = (
        ("left", "blue", left),
        ("removed here", color, removed),
        ("removed before", "", before),
    )
    return [(name, kind, count / given) for name, kind, count in shares]
