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
from textmill.pipelines.inspection.report import sections
from textmill.pipelines.inspection.report.content import (
    compact,
    cut_text,
    flag_lines,
    largest,
    list_inputs,
    meter,
    tile,
)
from textmill.pipelines.inspection.report.flow_and_zipf import flow
from textmill.pipelines.inspection.report.page import Sections, render_page
from textmill.pipelines.inspection.set_tables import length_bins
from textmill.pipelines.readers.corpus_metadata import (
    DOCUMENTS,
    CorpusSchema,
    CorpusStatistics,
)
from textmill.pipelines.readers.page_hosts import PageHosts, host_of
from textmill.pipelines.writers.rejects import Rejects
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.format.drops import SIZES, Funnel, Observed, Removed, drop_of, sizes, spaced
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.format.metadata import Inputs

SAMPLED = 10_000  # rows in which hosts are counted
_SHOWN, _LISTED = 12, 20  # documents shown, and entries of a list
_RULES = 60  # rows of the funnel; further rules share the last one
_BARS = 60  # bars of a histogram
_PARTS = ("language",)  # sections of `observed` whose counts add up to all documents
_URLS = ("url", "source_url")  # columns that may hold the address of a page


@dataclass(frozen=True)
class CorpusContent:
    """The content of the page.

    Attributes:
      sample: at most SAMPLED documents, those with the smallest ids, with all columns.
      clusters: the largest clusters of near-duplicates.
      hosts: web pages by host.
      config: content of config.yaml.
    """

    schema: CorpusSchema
    statistics: CorpusStatistics
    inputs: Inputs
    files: Sequence[ManifestFile]
    rejects: Rejects
    sample: pa.Table
    clusters: Sequence[Cluster]
    hosts: PageHosts
    config: bytes


def render_report(content: CorpusContent) -> bytes:
    """Renders the page as UTF-8."""
    return render_page(_SECTIONS, content, "corpus")


def _overview(content: CorpusContent) -> dict[str, Any]:
    total = content.statistics.total()
    files = [file for file in content.files if file.split == DOCUMENTS]
    return {
        "kind": "corpus",
        "sentence": f"{total.documents:,} of "
        f"{number_of(content.statistics.documents_read, 'document')} kept",
        "tiles": {
            "documents": tile(total.documents),
            "words": tile(total.words),
            "text": decimal(total.text_bytes),
            "file" if len(files) == 1 else "files": tile(len(files)),
            "in files": decimal(sum(file.bytes for file in files)),
        },
    }


def _flows(content: CorpusContent) -> dict[str, Any]:
    """Flow diagrams from the input to the kept and removed documents, and bytes of text."""
    statistics, total = content.statistics, content.statistics.total()
    funnel = statistics.funnel
    read, text_read, kept = "read", "bytes read", "kept"
    reasons = [reason for reason, _ in largest(statistics.dropped, _LISTED)]
    documents = [(read, kept, total.documents)]
    documents += [(read, spaced(name), n) for name, n in largest(statistics.dropped, 8)]
    removed = {name: one.text_bytes for name, one in funnel.removed.items()}
    text = [(text_read, kept, total.text_bytes), (text_read, "edits", max(0, funnel.edited_bytes))]
    text += [(text_read, spaced(name), n) for name, n in largest(removed, 8)]
    colors = {read: "ink", text_read: "ink", kept: "blue", "edits": "violet"}
    colors |= {spaced(reason): drop_of(reason).color for reason in reasons}
    return {"Documents": flow(documents, colors), "Bytes of text": flow(text, colors)}


def _funnel(content: CorpusContent) -> dict[str, Any]:
    total = content.statistics.total()
    kept = {"documents": total.documents, "text_bytes": total.text_bytes, "words": total.words}
    return removals(content.statistics.funnel, kept)


def removals(funnel: Funnel, kept: Mapping[str, int]) -> dict[str, Any]:
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
            samples.append((name, removed.documents, removed.samples))
    edited = funnel.edited_bytes
    return {"given": total, "kept": kept, "edited_bytes": edited, "rows": rows, "samples": samples}


def _rules(removed: dict[str, Removed]) -> list[tuple[str, Removed]]:
    """Removed documents in the order of rules; those beyond _RULES as one."""
    ordered = [(reason, removed[reason]) for reason in in_order(removed)]
    if len(ordered) <= _RULES:
        return ordered
    rest = [one for _, one in ordered[_RULES - 1 :]]
    documents, text_bytes, words = (sum(getattr(one, name) for one in rest) for name in SIZES)
    others = Removed(documents, text_bytes, words)
    return [*ordered[: _RULES - 1], (f"{len(rest):,} others", others)]


def observed(counted: Observed) -> list[dict[str, Any]] | None:
    """A figure for each section of further counts: bars for numbers, a list for names."""
    sections = []
    for section, counts in sorted(counted.items()):
        ordered = by_number(counts)[:_BARS]
        rows: list[tuple[Any, ...]] = [(cut_text(name), n) for name, n in largest(counts, _LISTED)]
        if section in _PARTS:
            total = sum(counts.values()) or 1
            rows = [(name, n, n / total, meter(n, total)) for name, n in rows]
        sections.append(
            {
                "title": spaced(section),
                "columns": [(name, n, f"{name}: {n:,}", "blue") for name, n in ordered],
                "rows": rows,
            }
        )
    return sections or None


def by_number(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Counts of ranges ("4 to 7") in ascending order; [] if a name is no range."""
    matches = {name: re.match(r"\d+(\.\d+)?", name) for name in counts}
    starts = {name: float(match[0]) for name, match in matches.items() if match}
    return sorted(counts.items(), key=lambda item: starts[item[0]]) if all(matches.values()) else []


def _figures(content: CorpusContent) -> list[dict[str, Any]]:
    """Figures of document lengths and hosts."""
    columns = []
    lengths = content.statistics.lengths
    for bin_, low, high in length_bins(lengths):
        span = f"{low:,}" if low >= high else f"{low:,} to {high:,}"
        title = f"{lengths[bin_]:,} documents with {span} words"
        label = f"{low:,}" if low < 10_000 else compact(low)
        columns.append((label, lengths[bin_], title, "blue"))
    axis = "words in a document; a number is the lower bound of its bar"
    figures: list[dict[str, Any]] = [
        {"title": "Documents by length", "columns": columns, "axis": axis}
    ]
    for name in _URLS:
        if name in content.sample.schema.names:
            urls = content.sample[name].to_pylist()
            hosts = Counter(host_of(url) or "none" for url in urls)
            title = f"Hosts in a sample of {number_of(len(content.sample), 'document')}"
            figures.append({"title": title, "columns": [], "rows": largest(hosts, _LISTED)})
    return figures


def _documents(content: CorpusContent) -> dict[str, Any]:
    rows = content.sample.slice(0, _SHOWN).to_pylist()
    shown = [name for name in content.schema.columns[2:] if name not in ("file", "record")]
    return {
        "sentence": "A random sample: the documents with the smallest ids.",
        "rows": [
            (row["id"][:8], ", ".join(cut_text(row[n], 80) for n in shown), cut_text(row["text"]))
            for row in rows
        ],
    }


def _clusters(content: CorpusContent) -> dict[str, Any] | None:
    if not content.clusters:
        return None
    return {
        "sentence": "Documents that were kept for the largest clusters of near-duplicates.",
        "rows": [
            (one.document[:8], f"{one.removed:,} removed", one.excerpt) for one in content.clusters
        ],
    }


def _rejects(content: CorpusContent) -> dict[str, Any] | None:
    """Rejected input, by reason; filtered and deduplicated documents are in the funnel."""
    bad = {
        reason: number
        for reason, number in content.statistics.dropped.items()
        if reason not in content.statistics.funnel.removed
    }
    return sections.rejects_of(bad, content.statistics.documents_read, content.rejects)


def _made(content: CorpusContent) -> dict[str, Any]:
    schema = content.schema
    facts = {
        "written by": f"Textmill {schema.code_version}, format {schema.format_version}",
        "fingerprint": schema.fingerprint,
    }
    values: Mapping[str, Any] = schema.parameters
    facts |= {spaced(name): cut_text(str(values[name])) for name in sorted(values)[:40]}
    meanings = {
        "id": "xxh3_128 of the text",
        "text": "the document",
        "file": "the input file",
        "record": "its position in the input file",
    }
    return {
        "command": "python -m pipelines.build_corpus --config=DIR/config.yaml --num_files="
        f"{schema.files} --output=NEW_DIR",
        "flags": flag_lines(content.config, "num_files:"),
        "facts": {name: value for name, value in facts.items() if value},
        "inputs": list_inputs(content.inputs.files),
        "row": "A document",
        "features": [
            (name, "int64" if name == "record" else "string", meanings.get(name, "kept field"))
            for name in schema.columns
        ],
    }


_SECTIONS: Sections = (
    ("", "overview", _overview),
    ("Documents and text", "went", _flows),
    ("Removed by each rule", "removals", _funnel),
    ("Counts by the rules", "observed", lambda content: observed(content.statistics.observed)),
    ("Short main texts", "short_pages", lambda content: show_hosts(content.hosts)),
    ("Corpus", "observed", _figures),
    ("Sample documents", "excerpts", _documents),
    ("Largest clusters of near-duplicates", "excerpts", _clusters),
    ("Rejected input", "rejects", _rejects),
    ("How to reproduce it", "made", _made),
)
