"""What must hold of inputs and targets in rows of span corruption. Pure.

Legend: B rows, L and T places for inputs and targets.
"""

from collections.abc import Iterator

import numpy as np

from pipelines.inspection.checks.row_problem import MOST, RowProblem, problems_where
from schemas.sidecar import Schema

Columns = dict[str, np.ndarray]
Numbered = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows, segments, numbers of sentinels


def span_problems(columns: Columns, schema: Schema) -> Iterator[RowProblem]:
    """Targets have the inputs' segments and sentinels, these count up from 0, and EOS ends all.

    Args:
      columns: of B rows, whose input segments are as they should be.
      schema: their contract.
    """
    yield from _target_segments(columns, schema)
    found = {}
    for name in ("input", "target"):
        ids, segment_ids = columns[f"{name}_ids"], columns[_segments_of(name)]
        yield from _ends(name, ids, segment_ids, schema)
        found[name] = _sentinels(ids, segment_ids, schema)
        yield from _count_up(name, found[name])
    yield from _equal_counts(found["input"], found["target"], columns)


def _segments_of(name: str) -> str:
    return "segment_ids" if name == "input" else "target_segment_ids"


def _target_segments(columns: Columns, schema: Schema) -> Iterator[RowProblem]:
    ids, segment_ids = columns["target_ids"], columns["target_segment_ids"]
    pad = schema.special_ids.get("pad", 0)
    yield from problems_where(
        (segment_ids == 0) & (ids != pad),
        lambda row, i: f"target_ids[{i}] is {ids[row, i]} in padding, not {pad}",
    )
    before, after = segment_ids[:, :-1].astype(np.int64), segment_ids[:, 1:].astype(np.int64)
    follows = (after == before) | (after == 0) | ((after - before == 1) & (before != 0))
    yield from problems_where(
        ~follows,
        lambda row, i: (
            f"target_segment_ids[{i + 1}] is {after[row, i]} after {before[row, i]}: segments "
            "count up by one, and padding is at the end only"
        ),
    )
    most_B, due_B = segment_ids.max(axis=1), columns["segment_ids"].max(axis=1)
    yield from problems_where(
        ((most_B != due_B) | (segment_ids[:, 0] != 1))[:, None],
        lambda row, _: (
            f"the targets are of segments {segment_ids[row, 0]} to {most_B[row]}, the inputs of 1 "
            f"to {due_B[row]}"
        ),
    )


def _ends(
    name: str, ids: np.ndarray, segment_ids: np.ndarray, schema: Schema
) -> Iterator[RowProblem]:
    ends = segment_ids != 0
    ends[:, :-1] &= segment_ids[:, :-1] != segment_ids[:, 1:]
    eos = schema.special_ids["eos"]
    yield from problems_where(
        ends & (ids != eos),
        lambda row, i: f"{name}_ids[{i}] is {ids[row, i]} at the end of a segment, not {eos}",
    )


def _sentinels(ids: np.ndarray, segment_ids: np.ndarray, schema: Schema) -> Numbered:
    number_of = np.full(schema.vocab_size, -1)
    sentinels = schema.parameters["sentinel_ids"]
    number_of[sentinels] = np.arange(len(sentinels))
    numbers = number_of[np.minimum(ids, schema.vocab_size - 1)]
    rows, places = np.nonzero((numbers >= 0) & (segment_ids > 0))
    return rows, segment_ids[rows, places], numbers[rows, places]


def _count_up(name: str, sentinels: Numbered) -> Iterator[RowProblem]:
    rows, segments, numbers = sentinels
    due = np.zeros_like(numbers)
    goes_on = (rows[1:] == rows[:-1]) & (segments[1:] == segments[:-1])
    due[1:] = np.where(goes_on, numbers[:-1] + 1, 0)
    for i in np.flatnonzero(numbers != due)[:MOST].tolist():
        yield RowProblem(
            int(rows[i]),
            f"segment {segments[i]} of {name}_ids has sentinel {numbers[i]} where {due[i]} is due",
        )


def _equal_counts(inputs: Numbered, targets: Numbered, columns: Columns) -> Iterator[RowProblem]:
    most = int(max(columns["segment_ids"].max(), columns["target_segment_ids"].max())) + 1
    counts = [
        np.bincount(rows * most + segments, minlength=len(columns["segment_ids"]) * most)
        for rows, segments, _ in (inputs, targets)
    ]
    for i in np.flatnonzero(counts[0] != counts[1])[:MOST].tolist():
        yield RowProblem(
            i // most,
            f"segment {i % most} has {counts[0][i]} sentinels in its inputs and {counts[1][i]} in "
            "its targets",
        )
