"""Applies filters to documents.

What is dropped here was good input that is not wanted; `Documents.rejects` are the refused ones.
Normalization comes first, before the hash, so that documents which it makes equal are duplicates.
"""

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.corpus.decontamination.hits import Hit
from pipelines.corpus.filters import Filters, rules_of
from pipelines.corpus.normalization import apply_form
from pipelines.corpus.rules.apply_rules import apply_rules
from pipelines.readers.documents import Documents
from pipelines.user_filter import Chosen, ask_filter, load_filter
from schemas.drops import Observed, total_counts


@dataclass(frozen=True)
class Filtered(Chosen):
    """What filters made of documents; those that are kept are normalized.

    Attributes:
      given: all of them, normalized.
      reasons: why some of these are dropped, by their places.
      lines: the dropped documents as JSON Lines with their reasons, if they are to be kept.
      observed: what rules counted besides, section to key to number; see `rules.rule.Judged`.
      hits: what documents have in common with evaluation texts.
    """

    given: pa.RecordBatch
    reasons: dict[int, str] = field(default_factory=dict)
    lines: bytes = b""
    observed: Observed = field(default_factory=dict)
    hits: tuple[Hit, ...] = ()


def load_filters(filters: Filters) -> None:
    """Loads what rules need, and the user's function: once a worker, before the first document.

    Raises:
      UsageError: something cannot be had here.
    """
    rules_of(filters)
    if filters.filter:
        load_filter(filters.filter)


def filter_documents(filters: Filters, documents: Documents) -> Filtered:
    """Normalizes documents, and drops or edits what is not wanted.

    A document is dropped for the first reason found.

    Raises:
      UsageError: the function cannot be imported here.
      DataError: the function failed or returned no reason; names it and the document.
    """
    if filters == Filters():
        return Filtered(documents, documents.dropped, documents.columns)
    text = apply_form(documents.text, filters.normalize)
    columns = documents.columns.set_column(0, "text", text)
    applied = apply_rules(columns, rules_of(filters))
    kept, left, reasons = applied.columns, applied.left, applied.reasons
    if filters.filter:
        asked = ask_filter(filters.filter, documents.keep(left, kept))
        reasons |= {int(left[place]): reason for place, reason in asked.items()}
        left = np.delete(left, list(asked))
        kept = kept.take(pa.array(np.delete(np.arange(len(kept)), list(asked)))) if asked else kept
    reasons = dict(sorted(reasons.items()))
    return Filtered(
        documents.keep(left, kept),
        total_counts(documents.dropped, Counter(reasons.values())),
        columns,
        reasons,
        _lines(replace(documents, columns=columns), reasons, applied.measured)
        if filters.keep_rejects
        else b"",
        applied.observed,
        tuple(replace(hit, path=documents.reject(n, "", "").path) for n, hit in applied.hits),
    )


def _lines(read: Documents, reasons: dict[int, str], measured: dict[int, tuple]) -> bytes:
    """A line of JSON a dropped document: the file can be an input again.

    {"reason": "gopher:min_words", "measured": 37, "limit": 50, "path": "a.jsonl", "offset": 17,
    "text": "..."}
    """
    dropped = read.columns.take(pa.array(list(reasons), pa.int64())).to_pylist()
    lines = []
    for (number, reason), document in zip(reasons.items(), dropped, strict=True):
        line: dict[str, Any] = {"reason": reason}
        if number in measured:
            line["measured"], line["limit"] = measured[number]
        place = read.reject(number, reason, "")
        line |= {"path": place.path, "offset": place.offset, **document}
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "".join(lines).encode()
