"""Renders report.html of a corpus.

The page depends only on the content of the corpus. It shows the documents and counts the hosts of
the rows with the smallest ids, which are a random sample.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from rich.filesize import decimal

from textmill.pipelines.corpus.near_duplicates.steps import Cluster
from textmill.pipelines.corpus.rule_figures import observed, removals, show_quality
from textmill.pipelines.corpus.scored import URLS, Scored
from textmill.pipelines.corpus.short_pages import show_hosts
from textmill.pipelines.inspection.report.flow_and_zipf import Flow, flow
from textmill.pipelines.inspection.report.numbers import cut_text, largest, tile
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
    name_reasons,
    show_flows,
    show_making,
    show_rejects,
)
from textmill.pipelines.readers.page_hosts import PageHosts, host_of
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import flag
from textmill.schemas.format.corpus_metadata import DOCUMENTS, CorpusSchema, CorpusStatistics
from textmill.schemas.format.manifest import ManifestFile

SAMPLED = 10_000  # rows in which hosts are counted
SHOWN = 12  # documents


@dataclass(frozen=True, kw_only=True)
class CorpusContent(ReportContent):
    """A corpus as the report needs it.

    Attributes:
      shown: at most SHOWN documents, those with the smallest ids, with all columns.
      sampled: at most SAMPLED of them, with their columns of URLS.
      clusters: the largest clusters of near-duplicates.
      hosts: web pages by host.
      scored: documents with scores of a model of quality.
    """

    schema: CorpusSchema
    statistics: CorpusStatistics
    shown: pa.Table
    sampled: pa.Table
    clusters: Sequence[Cluster]
    hosts: PageHosts
    scored: Scored


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
    sizes = {name: one.text_bytes for name, one in funnel.removed.items()}
    removed = name_reasons(largest(sizes, 8))
    text = [(read, "kept", kept), (read, "edits", max(0, funnel.edited_bytes))]
    text += [(read, name, n) for name, n, _ in removed]
    colors = {read: "ink", "kept": "blue", "edits": "violet"}
    colors |= {name: color for name, _, color in removed}
    documents = corpus_flow(content.statistics)
    return (show_flows({"Documents": documents, "Bytes of text": flow(text, colors)}),)


def _funnel(content: CorpusContent) -> Sequence[Shown]:
    total = content.statistics.total()
    kept = {"documents": total.documents, "text_bytes": total.text_bytes, "words": total.words}
    return removals(content.statistics.funnel, kept)


def _quality(content: CorpusContent) -> Sequence[Shown]:
    return show_quality(content.statistics.observed, content.scored)


def _figures(content: CorpusContent) -> Sequence[Shown]:
    """Figures of document lengths and hosts."""
    lengths = length_columns(content.statistics.lengths, "with {} words")
    columns = [(label, documents, title, "blue") for _, _, label, documents, title in lengths]
    axis = "words in a document; a number is the lower bound of its bar"
    figures = [Figure("Documents by length", ColumnChart(columns, has_edges=True), axis)]
    for name in URLS:
        if name in content.sampled.schema.names:
            urls = content.sampled[name].to_pylist()
            hosts = Counter(host_of(url) or "none" for url in urls)
            title = f"Hosts in a sample of {number_of(len(content.sampled), 'document')}"
            figures.append(Figure(title, CellTable(largest(hosts, LISTED))))
    return (Pair(figures),)


def _documents(content: CorpusContent) -> Sequence[Shown]:
    shown = [name for name in content.schema.columns[2:] if name not in ("file", "record")]
    rows = [
        (row["id"][:8], cut_text(row["text"]), ", ".join(cut_text(row[n], 80) for n in shown))
        for row in content.shown.to_pylist()
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
        "quality": "score of the model of quality",
    }
    kinds = {"record": "int64", "quality": "float32"}
    columns = [
        (name, meanings.get(name, "kept field"), kinds.get(name, "string"))
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
    ("Quality by the model", _quality),
    ("Counts by the rules", lambda content: observed(content.statistics.observed)),
    ("Short main texts", lambda content: show_hosts(content.hosts)),
    ("Corpus", _figures),
    ("Sample documents", _documents),
    ("Largest clusters of near-duplicates", _clusters),
    ("Rejected input", _rejects),
    ("How to reproduce it", _made),
)
