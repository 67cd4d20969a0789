"""Figures of what rules removed and counted, for the report of a corpus. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from textmill.pipelines.corpus.filters import sort_reasons
from textmill.pipelines.corpus.scored import Scored, ScoreSum
from textmill.pipelines.inspection.report.count_names import (
    EDITED,
    EDITED_BYTES,
    name_of_count,
    name_of_reason,
    name_of_section,
)
from textmill.pipelines.inspection.report.numbers import cut_text, largest, meter
from textmill.pipelines.inspection.report.parts import (
    CellTable,
    ColumnChart,
    Excerpts,
    Figure,
    Pair,
    Shown,
)
from textmill.pipelines.inspection.report.shared_sections import LISTED
from textmill.pipelines.linear_model.scores import COLUMN
from textmill.pipelines.readers.page_hosts import MOST_HOSTS
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.format.drops import SIZES, Funnel, Observed, Removed, drop_of, sizes

_RULES = 60  # rows of the funnel; further rules share the last one
_BARS = 60  # bars of a histogram
_FEWEST_BARS = 3  # fewer ranges are a table
_PARTS = ("language",)  # sections of `observed` whose counts add up to all documents


def removals(funnel: Funnel, kept: Mapping[str, int]) -> Sequence[Shown]:
    """The funnel: documents, bytes and words that each rule removes; `kept` are the final sizes."""
    total = sizes(funnel)
    left = dict(total)
    rows, samples = [], []
    for reason, removed in _rules(funnel.removed):
        name, cells = name_of_reason(cut_text(reason)), {}
        for size, count in sizes(removed).items():
            before, left[size] = left[size], left[size] - count
            parts = (
                ("left", "blue", left[size]),
                ("removed here", drop_of(reason).color, count),
                ("removed before", "", total[size] - before),
            )
            cells[size] = -count, [(*part, n / max(total[size], 1)) for *part, n in parts]
        rows.append((name, *cells["documents"], *cells["words"]))
        if removed.samples:
            of = number_of(removed.documents, "document")
            samples.append(
                Excerpts(
                    [(each.document[:8], each.excerpt, each.detail) for each in removed.samples],
                    f"{name.title}: {len(removed.samples)} of {of}",
                )
            )
    edited = funnel.edited_bytes
    edits = f" Edits {'removed' if edited > 0 else 'added'} {abs(edited):,} bytes." * bool(edited)
    heads = ("rule", "documents", "documents left", "words", "words left")
    return (
        f"{kept['documents']:,} of {total['documents']:,} documents were kept: "
        f"{kept['words']:,} of {total['words']:,} words and "
        f"{kept['text_bytes']:,} of {total['text_bytes']:,} bytes.{edits} "
        "Rejected input is not counted here.",
        *([CellTable(rows, heads)] if rows else []),
        *samples,
    )


def _rules(removed: dict[str, Removed]) -> list[tuple[str, Removed]]:
    """Removed documents in the order of rules; those beyond _RULES as one."""
    ordered = [(reason, removed[reason]) for reason in sort_reasons(removed)]
    if len(ordered) <= _RULES:
        return ordered
    rest = [one for _, one in ordered[_RULES - 1 :]]
    documents, text_bytes, words = (sum(getattr(one, name) for one in rest) for name in SIZES)
    others = Removed(documents, text_bytes, words)
    return [*ordered[: _RULES - 1], (f"{len(rest):,} others", others)]


def observed(counted: Observed) -> Sequence[Shown]:
    """A figure for each section of further counts: columns for ranges, a table for names.

    `show_quality` shows scores.
    """
    figures = []
    for section, counts in sorted(counted.items()):
        if section in (COLUMN, EDITED_BYTES) or not any(counts.values()):
            continue
        title, meaning = name_of_section(section)
        ordered = by_number(counts)[:_BARS]
        if len(ordered) >= _FEWEST_BARS:
            chart = ColumnChart([(name, n, f"{name}: {n:,}", "blue") for name, n in ordered])
            figures.append(Figure(title, chart, meaning))
            continue
        heads: tuple[str, ...] = ()
        rows: list[tuple[Any, ...]] = [
            (name_of_count(section, cut_text(name)), n)
            for name, n in ordered or largest(counts, LISTED)
        ]
        if section in _PARTS:
            total = sum(counts.values()) or 1
            rows = [(name, n, n / total, meter(n, total)) for name, n in rows]
        elif section == EDITED:
            lost, heads = counted.get(EDITED_BYTES, {}), ("", "documents", "bytes removed")
            rows = [
                (name_of_count(section, name), n, lost.get(name, 0))
                for name, n in largest(counts, LISTED)
            ]
        figures.append(Figure(title, CellTable(rows, heads), meaning))
    return (Pair(figures),) if figures else ()


def by_number(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Counts of ranges ("4 to 7") in ascending order; [] if a name is not a range."""
    matches = {name: re.match(r"\d+(\.\d+)?", name) for name in counts}
    starts = {name: float(match[0]) for name, match in matches.items() if match}
    return sorted(counts.items(), key=lambda item: starts[item[0]]) if all(matches.values()) else []


def show_quality(observed: Observed, scored: Scored) -> Sequence[Shown]:
    """The distribution of scores, samples of each tenth, and means by language and host."""
    tenths = observed.get(COLUMN, {})
    if not scored.samples:
        return ()
    columns = [(name, tenths[name], f"{name}: {tenths[name]:,}", "blue") for name in sorted(tenths)]
    figures = [Figure("Documents by score", ColumnChart(columns))]
    for what, sums in (("language", scored.languages), ("host", scored.hosts)):
        if sums:
            figures.append(Figure(f"Mean score by {what}", _means(what, sums)))
    sentence = "All documents that the model scored, also those that were dropped later."
    if len(scored.hosts) == MOST_HOSTS:
        sentence += f" Only {MOST_HOSTS:,} hosts, chosen by the hash of their name, are counted."
    samples = [
        Excerpts(
            [(one.document[:8], one.excerpt, f"{one.score:.3f}") for one in documents],
            f"{tenth}: {len(documents)} of {number_of(tenths[tenth], 'document')}",
        )
        for tenth, documents in scored.samples.items()
    ]
    return (sentence, Pair(figures), *samples)


def _means(what: str, sums: Mapping[str, ScoreSum]) -> CellTable:
    """Those with the most documents."""
    ordered = sorted(sums.items(), key=lambda item: (-item[1].documents, item[0]))[:LISTED]
    rows = []
    for name, one in ordered:
        bar = meter(one.millionths, one.documents * 10**6)
        rows.append((cut_text(name, 80), one.documents, f"{one.mean:.3f}", bar))
    return CellTable(rows, (what, "documents", "mean score", ""))
