"""Applies rules to documents, in order."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.corpus.decontamination.matches import Hit
from pipelines.corpus.rules.rule import Rule
from pipelines.host.arrow import pc
from schemas.drops import Observed, add_observed


@dataclass(frozen=True)
class Applied:
    """Documents after all rules.

    Attributes:
      left: int64, numbers of the kept documents.
      columns: columns of the kept documents, edited.
      reasons: number -> reason of each dropped document.
      observed: further counts, see `Judged`; `edited` has the number of documents that a rule
        edited and kept, `edited_bytes` the bytes that they lost.
      hits: see `Judged`.
      measured: number -> measured value and limit of dropped documents, if the rule has them.
    """

    left: np.ndarray
    columns: pa.RecordBatch
    reasons: dict[int, str]
    observed: Observed
    hits: tuple[tuple[int, Hit], ...] = ()
    measured: dict[int, tuple[Any, Any]] = field(default_factory=dict)


def apply_rules(columns: pa.RecordBatch, rules: tuple[Rule, ...]) -> Applied:
    """Applies each rule to the documents that the rules before it keep.

    Args:
      columns: columns of all roles, the text first.
      rules: rules in the order in which they run.
    """
    left, text = np.arange(len(columns)), columns.column(0)
    reasons: dict[int, str] = {}
    observed: Observed = {}
    hits: list[tuple[int, Hit]] = []
    measured: dict[int, tuple[Any, Any]] = {}
    is_edited = False
    for rule in rules:
        judged = rule.judge(text, *(columns[role].take(pa.array(left)) for role in rule.roles))
        reason, after = judged.reason.astype(np.int64), judged.text
        if after is not None:
            reason[(reason == 0) & _is_empty(after)] = 1
        hits += [(int(left[place]), hit) for place, hit in judged.hits]
        dropped, kept = np.flatnonzero(reason), pa.array(reason == 0)
        reasons |= {
            document: rule.reasons[code - 1]
            for document, code in zip(left[dropped].tolist(), reason[dropped].tolist(), strict=True)
        }
        if judged.measured is not None:
            values, limits = judged.measured[dropped].tolist(), reason[dropped] - 1
            measured |= {
                document: (value, rule.limits[limit] if rule.limits else None)
                for document, value, limit in zip(
                    left[dropped].tolist(), values, limits, strict=True
                )
            }
        left, before = left[reason == 0], text.filter(kept)
        text = before if after is None else after.filter(kept)
        add_observed(observed, judged.observed)
        if after is not None:
            is_edited = True
            add_observed(observed, _count_edits(rule.edits, before, text))
    columns = columns.take(pa.array(left)) if reasons else columns
    if is_edited:
        columns = columns.set_column(0, "text", text)
    return Applied(left, columns, reasons, observed, tuple(hits), measured)


def _is_empty(text: pa.LargeStringArray) -> np.ndarray:
    return pc.binary_length(text).to_numpy() == 0


def _count_edits(name: str, before: pa.LargeStringArray, after: pa.LargeStringArray) -> Observed:
    lengths = pc.binary_length
    changed = pc.sum(pc.not_equal(before, after)).as_py() or 0
    lost = int(lengths(before).to_numpy().sum() - lengths(after).to_numpy().sum())
    return {"edited": {name: changed}, "edited_bytes": {name: lost}}
