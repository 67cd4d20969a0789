"""Renders report.html of a corpus.

The page depends on the content of the corpus only. It shows the documents and counts the hosts of
the rows with the smallest ids, which are a random sample.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from rich.filesize import decimal

from textmill.pipelines.corpus.filters import in_order
from textmill.pipelines.corpus.near_duplicates.steps import Cluster
from textmill.pipelines.corpus.short_pages import show_hosts
from textmill.pipelines.inspection.report.flow_and_zipf import Flow, flow
from textmill.pipelines.inspection.report.numbers import cut_text, largest, meter, tile
from textmill.pipelines.inspection.report.page import render_page
from textmill.pipelines.inspection.report.parts import (
    CellTable,
    ColumnChart,
    Excerpts,
    Figure,
    Pair,
    ReportHead,
    Section,
    Shown,
)
from textmill.pipelines.inspection.report.shared_sections import (
    LISTED,
    ReportContent,
    flow_of_documents,
    length_columns,
    show_flows,
    show_making,
    show_rejects,
)
from textmill.pipelines.readers.page_hosts import PageHosts, host_of
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import flag
from textmill.schemas.format.corpus_metadata import DOCUMENTS, CorpusSchema, CorpusStatistics
from textmill.schemas.format.drops import SIZES, Funnel, Observed, Removed, drop_of, sizes, spaced
from textmill.schemas.format.manifest import ManifestFile

SAMPLED = 10_000  # rows in which hosts are counted
_SHOWN = 12  # documents
_RULES = 60  # rows of the funnel; further rules share the last one
_BARS = 60  # bars of a histogram
_PARTS = ("language",)  # sections of `observed` whose counts add up to all documents
_URLS = ("url", "source_url")  # columns that may hold the address of a page


@dataclass(frozen=True, kw_only=True)
class CorpusContent(ReportContent):
    """A corpus as the report needs it.

    Attributes:
      sample: at most SAMPLED documents, those with the smallest ids, with all columns.
      clusters: the largest clusters of near-duplicates.
      hosts: web pages by host.
    """

    schema: CorpusSchema
    statistics: CorpusStatistics
    sample: pa.Table
    clusters: Sequence[Cluster]
    hosts: PageHosts


def render_report(content: CorpusContent) -> bytes:
    """Renders the page as UTF-8."""
    return render_page(SECTIONS, content, "corpus")


def corpus_head(statistics: CorpusStatistics, files: Sequence[ManifestFile]) -> ReportHead:
    """The corpus in one line and a few numbers."""
    total = statistics.total()
    own = [file for file in files if file.split == DOCUMENTS]
    return ReportHead(
        "corpus",
        f"{total.documents:,} of {number_of(statistics.documents_read, 'document')} kept",
        {
            "documents": tile(total.documents),
            "words": tile(total.words),
            "text": decimal(total.text_bytes),
            "file" if len(own) == 1 else "files": tile(len(own)),
            "in files": decimal(sum(file.bytes for file in own)),
        },
    )


def corpus_flow(statistics: CorpusStatistics) -> Flow | None:
    """The flow of documents from the input to the corpus, and to the reasons to remove them."""
    kept = [("kept", statistics.total().documents, "blue")]
    return flow_of_documents(kept, largest(statistics.dropped, 8))


def _overview(content: CorpusContent) -> Sequence[Shown]:
    return (corpus_head(content.statistics, content.files),)


def _flows(content: CorpusContent) -> Sequence[Shown]:
    """Flow diagrams of documents, and of bytes of text."""
    funnel = content.statistics.funnel
    read, kept = "bytes read", content.statistics.total().text_bytes
    removed = largest({name: one.text_bytes for name, one in funnel.removed.items()}, 8)
    text = [(read, "kept", kept), (read, "edits", max(0, funnel.edited_bytes))]
    text += [(read, spaced(name), n) for name, n in removed]
    colors = {read: "ink", "kept": "blue", "edits": "violet"}
    colors |= {spaced(reason): drop_of(reason).color for reason, _ in removed}
    documents = corpus_flow(content.statistics)
    return (show_flows({"Documents": documents, "Bytes of text": flow(text, colors)}),)


def _funnel(content: CorpusContent) -> Sequence[Shown]:
    total = content.statistics.total()
    kept = {"documents": total.documents, "text_bytes": total.text_bytes, "words": total.words}
    return removals(content.statistics.funnel, kept)


def removals(funnel: Funnel, kept: Mapping[str, int]) -> Sequence[Shown]:
    """The funnel: documents, bytes and words that each rule removes; `kept` are the final sizes."""
    total = sizes(funnel)
    left = dict(total)
    rows, samples = [], []
    for reason, removed in _rules(funnel.removed):
        name, cells = cut_text(spaced(reason)), {}
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
                    f"{name}: {len(removed.samples)} of {of}",
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
    ordered = [(reason, removed[reason]) for reason in in_order(removed)]
    if len(ordered) <= _RULES:
        return ordered
    rest = [one for _, one in ordered[_RULES - 1 :]]
    documents, text_bytes, words = (sum(getattr(one, name) for one in rest) for name in SIZES)
    others = Removed(documents, text_bytes, words)
    return [*ordered[: _RULES - 1], (f"{len(rest):,} others", others)]


def observed(counted: Observed) -> Sequence[Shown]:
    """A figure for each section of further counts: columns for ranges, a table for names."""
    figures = []
    for section, counts in sorted(counted.items()):
        if ordered := by_number(counts)[:_BARS]:
            chart = ColumnChart([(name, n, f"{name}: {n:,}", "blue") for name, n in ordered])
            figures.append(Figure(spaced(section), chart))
            continue
        rows: list[tuple[Any, ...]] = [(cut_text(name), n) for name, n in largest(counts, LISTED)]
        if section in _PARTS:
            total = sum(counts.values()) or 1
            rows = [(name, n, n / total, meter(n, total)) for name, n in rows]
        figures.append(Figure(spaced(section), CellTable(rows)))
    return (Pair(figures),) if figures else ()


def by_number(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Counts of ranges ("4 to 7") in ascending order; [] if a name is no range."""
    matches = {name: re.match(r"\d+(\.\d+)?", name) for name in counts}
    starts = {name: float(match[0]) for name, match in matches.items() if match}
    return sorted(counts.items(), key=lambda item: starts[item[0]]) if all(matches.values()) else []


def _figures(content: CorpusContent) -> Sequence[Shown]:
    """Figures of document lengths and hosts."""
    lengths = length_columns(content.statistics.lengths, "with {} words")
    columns = [(label, documents, title, "blue") for _, _, label, documents, title in lengths]
    axis = "words in a document; a number is the lower bound of its bar"
    figures = [Figure("Documents by length", ColumnChart(columns, has_edges=True), axis)]
    for name in _URLS:
        if name in content.sample.schema.names:
            urls = content.sample[name].to_pylist()
            hosts = Counter(host_of(url) or "none" for url in urls)
            title = f"Hosts in a sample of {number_of(len(content.sample), 'document')}"
            figures.append(Figure(title, CellTable(largest(hosts, LISTED))))
    return (Pair(figures),)


def _documents(content: CorpusContent) -> Sequence[Shown]:
    shown = [name for name in content.schema.columns[2:] if name not in ("file", "record")]
    rows = [
        (row["id"][:8], cut_text(row["text"]), ", ".join(cut_text(row[n], 80) for n in shown))
        for row in content.sample.slice(0, _SHOWN).to_pylist()
    ]
    return ("A random sample: the documents with the smallest ids.", Excerpts(rows))


def _clusters(content: CorpusContent) -> Sequence[Shown]:
    rows = [(one.document[:8], one.excerpt, f"{one.removed:,} removed") for one in content.clusters]
    what = "Documents that were kept for the largest clusters of near-duplicates."
    return (what, Excerpts(rows)) if rows else ()


def _rejects(content: CorpusContent) -> Sequence[Shown]:
    """Rejected input, by reason; filtered and deduplicated documents are in the funnel."""
    bad = {
        reason: number
        for reason, number in content.statistics.dropped.items()
        if reason not in content.statistics.funnel.removed
    }
    return show_rejects(bad, content.statistics.documents_read, content.rejects)


def _made(content: CorpusContent) -> Sequence[Shown]:
    meanings = {
        "id": "xxh3_128 of the text",
        "text": "the document",
        "file": "the input file",
        "record": "its position in the input file",
    }
    columns = [
        (name, meanings.get(name, "kept field"), "int64" if name == "record" else "string")
        for name in content.schema.columns
    ]
    return show_making(
        content,
        command=f"python -m pipelines.build_corpus {flag('config', 'DIR/config.yaml')} "
        f"{flag('num_files', content.schema.files)} {flag('output', 'NEW_DIR')}",
        left_out=("num_files:",),
        facts={},
        columns=Figure("A document", Excerpts(columns)),
    )


SECTIONS: tuple[Section, ...] = (
    ("", _overview),
    ("Documents and text", _flows),
    ("Removed by each rule", _funnel),
    ("Counts by the rules", lambda content: observed(content.statistics.observed)),
    ("Short main texts", lambda content: show_hosts(content.hosts)),
    ("Corpus", _figures),
    ("Sample documents", _documents),
    ("Largest clusters of near-duplicates", _clusters),
    ("Rejected input", _rejects),
    ("How to reproduce it", _made),
)
