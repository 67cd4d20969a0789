"""Normalizes documents, then filters and edits them by rules and by the user's function.

Filtered documents are readable input that is not wanted; bad input is in `Documents.rejects`.
Normalization precedes hashing, so documents that it makes equal are exact duplicates.
"""

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.decontamination.matches import Finder, Hit
from textmill.pipelines.corpus.filters import Filters, rules_of
from textmill.pipelines.corpus.rules.rule import Rule
from textmill.pipelines.corpus.scored import FIELDS, Scored, score_documents
from textmill.pipelines.encoding.normal_text import apply_form
from textmill.pipelines.readers.documents import Documents
from textmill.pipelines.runtime.imports import pc
from textmill.pipelines.user_filter import Chosen, ask_filter, load_filter
from textmill.schemas.format.drops import Observed, add_observed, total_counts


@dataclass(frozen=True)
class Filtered(Chosen):
    """Documents after filtering; the kept ones are normalized.

    Attributes:
      before: all documents, normalized.
      reasons: row in `before` -> reason, of the filtered documents.
      lines: the filtered documents as JSON Lines with their reasons; b"" without --keep_rejects.
      observed: further counts of rules, section -> key -> number; see `rules.rule.RuleResult`.
      hits: text that documents share with evaluation texts.
      scored: documents with scores of a model.
      hit_numbers: row in `before` of the document of each hit.
    """

    before: pa.RecordBatch
    reasons: dict[int, str] = field(default_factory=dict)
    lines: bytes = b""
    observed: Observed = field(default_factory=dict)
    hits: tuple[Hit, ...] = ()
    hit_numbers: tuple[int, ...] = ()
    scored: Scored = field(default_factory=Scored)


@dataclass(frozen=True)
class LoadedFilters:
    """Rules with their models and lists; they normalize, filter and edit documents."""

    filters: Filters
    rules: tuple[Rule, ...]

    def apply(self, documents: Documents, finder: Finder | None = None) -> Filtered:
        """Applies the rules in their order; the first that drops a document is the reason.

        Args:
          documents: a piece of a block.
          finder: of evaluation texts; None if the flags name none.

        Raises:
          DataError: the user's function failed or returned no reason; names it and the document.
        """
        filters = self.filters
        if filters == Filters():
            return Filtered(documents, documents.dropped, documents.columns)
        text = apply_form(documents.text, filters.normalize)
        columns = documents.columns.set_column(0, "text", text)
        applied = apply_rules(columns, self.rules, finder)
        kept, left, reasons = applied.columns, applied.left, applied.reasons
        if filters.filter:
            dropped = ask_filter(filters.filter, documents.keep(left, kept))
            reasons |= {int(left[place]): reason for place, reason in dropped.items()}
            left = np.delete(left, list(dropped))
            if dropped:
                kept = kept.take(pa.array(np.delete(np.arange(len(kept)), list(dropped))))
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
            tuple(n for n, _ in applied.hits),
            applied.scored,
        )


def load_filters(filters: Filters) -> LoadedFilters:
    """Loads models, lists and the user's function: once a worker, before the first document.

    Raises:
      UsageError: one of them is not available on this machine.
    """
    rules = rules_of(filters)
    if filters.filter:
        load_filter(filters.filter)
    return LoadedFilters(filters, rules)


@dataclass(frozen=True)
class FilterResult:
    """Documents after all rules.

    Attributes:
      left: int64, numbers of the kept documents.
      columns: columns of the kept documents, edited.
      reasons: number -> reason of each dropped document.
      observed: further counts, see `RuleResult`; `edited` has the number of documents that a rule
        edited and kept, `edited_bytes` the bytes that they lost.
      hits: see `RuleResult`.
      measured: number -> measured value and limit of dropped documents, if the rule has them.
      scored: documents with scores of a model.
    """

    left: np.ndarray
    columns: pa.RecordBatch
    reasons: dict[int, str]
    observed: Observed
    hits: tuple[tuple[int, Hit], ...] = ()
    measured: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    scored: Scored = field(default_factory=Scored)


def apply_rules(
    columns: pa.RecordBatch, rules: tuple[Rule, ...], finder: Finder | None = None
) -> FilterResult:
    """Applies each rule to the documents that the rules before it keep."""
    left, text = np.arange(len(columns)), columns.column(0)
    reasons: dict[int, str] = {}
    observed: Observed = {}
    hits: list[tuple[int, Hit]] = []
    measured: dict[int, tuple[Any, Any]] = {}
    added: dict[str, pa.Array] = {}
    known: dict[str, np.ndarray] = {}  # facts of all documents
    scored = Scored()
    is_edited = False
    for rule in rules:
        fields = [columns[role].take(pa.array(left)) for role in rule.roles]
        judged = rule.judge(text, *fields, *([finder] if rule.searches else ()))
        reason, after = judged.reason.astype(np.int64), judged.text
        if after is not None:
            reason[(reason == 0) & (pc.binary_length(after).to_numpy() == 0)] = 1
        for name, facts in judged.known.items():
            known[name] = np.full(len(columns), "", object)
            known[name][left] = facts
        if judged.scores is not None:
            scored = score_documents(judged.scores, text, _fields(columns, known, left))
        hits += [(int(left[place]), hit) for place, hit in judged.hits]
        dropped, kept = np.flatnonzero(reason), pa.array(reason == 0)
        reasons |= {
            document: rule.reasons[code - 1]
            for document, code in zip(left[dropped].tolist(), reason[dropped].tolist(), strict=True)
        }
        if judged.measured is not None:
            limit = judged.limit
            if limit is None:
                limit = np.array([None, *(rule.limits or [None] * len(rule.reasons))])[reason]
            values = zip(judged.measured[dropped].tolist(), limit[dropped].tolist(), strict=True)
            measured |= dict(zip(left[dropped].tolist(), values, strict=True))
        added = {name: column.filter(kept) for name, column in {**added, **judged.added}.items()}
        left, before = left[reason == 0], text.filter(kept)
        text = before if after is None else after.filter(kept)
        add_observed(observed, judged.observed)
        if after is not None:
            is_edited = True
            changed = pc.sum(pc.not_equal(before, text)).as_py() or 0
            lost = (
                pc.sum(pc.subtract(pc.binary_length(before), pc.binary_length(text))).as_py() or 0
            )
            counts = {"edited": {rule.edits: changed}, "edited_bytes": {rule.edits: lost}}
            add_observed(observed, counts)
    columns = columns.take(pa.array(left)) if reasons else columns
    if is_edited:
        columns = columns.set_column(0, "text", text)
    for name, column in added.items():
        columns = columns.append_column(name, column)
    return FilterResult(left, columns, reasons, observed, tuple(hits), measured, scored)


def _fields(
    columns: pa.RecordBatch, known: dict[str, np.ndarray], left: np.ndarray
) -> dict[str, list[str]]:
    """The fields of some documents that can say their language or host, and facts of rules."""
    names = [name for name in FIELDS if name in columns.schema.names]
    fields = {name: columns[name].take(pa.array(left)).to_pylist() for name in names}
    return fields | {name: facts[left].tolist() for name, facts in known.items()}


def _lines(documents: Documents, reasons: dict[int, str], measured: dict[int, tuple]) -> bytes:
    """One line of JSON for each filtered document; the file can be an input again.

    {"reason": "gopher:min_words", "measured": 37, "limit": 50, "path": "a.jsonl", "offset": 17,
    "text": "..."}
    """
    filtered = documents.columns.take(pa.array(list(reasons), pa.int64())).to_pylist()
    lines = []
    for (number, reason), document in zip(reasons.items(), filtered, strict=True):
        line: dict[str, Any] = {"reason": reason}
        if number in measured:
            line["measured"], line["limit"] = measured[number]
        place = documents.reject(number, reason, "")
        line |= {"path": place.path, "offset": place.offset, **document}
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "".join(lines).encode()
