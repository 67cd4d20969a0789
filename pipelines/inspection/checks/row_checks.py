"""Checks every row of a dataset. Pure; vectorised over batches.

Legend: B rows of L positions, S segments, K slots for masked tokens.
"""

from collections.abc import Iterator

import numpy as np

from textmill.pipelines.tasks.task import MOST_PROBLEMS, RowProblem, problems_where, task_class
from textmill.schemas.format.features import is_training, positions_from_segments, unmask
from textmill.schemas.format.metadata import Schema

Columns = dict[str, np.ndarray]
# Names as in schemas.format.statistics.ShardStatistics.
COUNTED = ("rows", "tokens_in_rows", "segments", "masked")


def count(columns: Columns) -> dict[str, int]:
    """Counts rows, tokens without padding, segments and masked tokens; keys as in COUNTED."""
    segment_ids_BxL = columns["segment_ids"]
    streams = (values for name, values in columns.items() if name.endswith("segment_ids"))
    return {
        "rows": len(segment_ids_BxL),
        "tokens_in_rows": sum(int(np.count_nonzero(segment_ids)) for segment_ids in streams),
        "segments": int(segment_ids_BxL.max(axis=1, initial=0).sum(dtype=np.int64)),
        "masked": int(columns["masked_weights"].sum()) if "masked_weights" in columns else 0,
    }


def segment_lengths(segment_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Segments of each row int64 [B], and tokens of each segment int64 [S].

    [[1, 1, 2, 0]] -> [2], [2, 1]
    """
    begins = np.ones(segment_ids.shape, bool)
    begins[:, 1:] = segment_ids[:, 1:] != segment_ids[:, :-1]
    at = np.flatnonzero(begins)
    lengths = np.diff(np.append(at, segment_ids.size))
    is_segment = segment_ids.ravel()[at] != 0
    return segment_ids.max(axis=1).astype(np.int64), lengths[is_segment]


def hash_rows(columns: Columns) -> np.ndarray:
    """Hashes each row without masks, uint64 [B]: its ids times odd random numbers, modulo 2**64."""
    input_ids = unmask(columns)
    random = np.random.default_rng(0).integers(0, 1 << 63, input_ids.shape[1], np.uint64)
    return (input_ids.astype(np.uint64) * (random * np.uint64(2) + np.uint64(1))).sum(axis=1)


def row_problems(
    columns: Columns,
    schema: Schema,
    *,
    split: str = "train",
    prefix: tuple[int, ...] = (),
    suffix: tuple[int, ...] = (),
    evaluation: np.ndarray | None = None,
) -> list[RowProblem]:
    """Finds all problems of rows, up to MOST_PROBLEMS of each kind, sorted by row.

    Args:
      columns: B decoded rows.
      schema: the schema of the dataset.
      split: the split of the rows.
      prefix: ids that begin each segment; not checked with packing=concat, which cuts segments.
      suffix: ids that end each segment.
      evaluation: uint64, names of the lines of evaluation.jsonl; None if unknown.
    """
    problems: list[RowProblem] = []
    for name in columns:
        if name.endswith("segment_ids"):  # segment_ids, and target_segment_ids of target_ids
            ids = "input_ids" if name == "segment_ids" else name.replace("_segment", "")
            problems += _segments(name, columns[name], schema)
            problems += _ids(ids, columns[ids], columns[name], schema)
    if "positions" in columns:
        problems += _positions(columns)
    if schema.static_masking:
        problems += _slots(columns, schema)
    if not problems:  # these need valid segments and masks
        problems = list(_check_surroundings(columns, schema, prefix, suffix))
        problems += task_class(schema.task).row_problems(columns, schema, split)
    if "example_id" in columns:
        problems += example_problems(columns, split, evaluation)
    return sorted(problems, key=lambda problem: problem.row)


def _segments(name: str, segment_ids: np.ndarray, schema: Schema) -> Iterator[RowProblem]:
    yield from problems_where(
        segment_ids[:, :1] != 1,
        lambda row, i: f"{name}[0] is {segment_ids[row, i]}: a row begins with segment 1",
    )
    before, after = segment_ids[:, :-1], segment_ids[:, 1:]
    # Unsigned: 255 -> 0 is a step of one too, and valid as padding after a segment.
    follows = (after == before) | (after == 0) | ((after - before == 1) & (before != 0))
    yield from problems_where(
        ~follows,
        lambda row, i: (
            f"{name}[{i + 1}] is {after[row, i]} after {before[row, i]}: segments count up "
            "by one, and padding is at the end only"
        ),
    )
    if schema.packing == "none":
        yield from problems_where(
            segment_ids > 1,
            lambda row, i: (
                f"{name}[{i}] is {segment_ids[row, i]}, but packing=none allows one segment"
            ),
        )


def _ids(
    name: str, ids: np.ndarray, segment_ids: np.ndarray, schema: Schema
) -> Iterator[RowProblem]:
    if schema.vocab_size <= np.iinfo(ids.dtype).max:
        yield from problems_where(
            ids >= schema.vocab_size,
            lambda row, i: (
                f"{name}[{i}] is {ids[row, i]}, not below the vocabulary's {schema.vocab_size}"
            ),
        )
    pad = schema.special_ids.get("pad", 0)
    yield from problems_where(
        (segment_ids == 0) & (ids != pad),
        lambda row, i: f"{name}[{i}] is {ids[row, i]} in padding, not {pad}",
    )


def _positions(columns: Columns) -> Iterator[RowProblem]:
    positions = columns["positions"]
    expected = positions_from_segments(columns["segment_ids"])
    yield from problems_where(
        positions != expected,
        lambda row, i: f"positions[{i}] is {positions[row, i]}, not {expected[row, i]}",
    )


def _slots(columns: Columns, schema: Schema) -> Iterator[RowProblem]:
    positions, ids = columns["masked_positions"], columns["masked_ids"]
    weights = columns["masked_weights"]
    used = weights != 0
    yield from problems_where(
        weights > 1, lambda row, k: f"masked_weights[{k}] is {weights[row, k]}, not 0 or 1"
    )
    yield from problems_where(
        used[:, 1:] & ~used[:, :-1],
        lambda row, k: f"masked_weights[{k + 1}] is 1 after 0: slots in use come first",
    )
    yield from problems_where(
        ~used & ((positions != 0) | (ids != 0)),
        lambda row, k: (
            f"slot {k} is empty, but masked_positions has {positions[row, k]} and masked_ids "
            f"{ids[row, k]}: zeros belong there"
        ),
    )
    yield from problems_where(
        used[:, 1:] & (positions[:, 1:] <= positions[:, :-1]),
        lambda row, k: (
            f"masked_positions[{k + 1}] is {positions[row, k + 1]} after {positions[row, k]}: "
            "they ascend"
        ),
    )
    last = schema.max_length - 1
    bounded = np.minimum(positions, last)
    segments = np.take_along_axis(columns["segment_ids"], bounded, axis=1)
    yield from problems_where(
        used & ((positions > last) | (segments == 0)),
        lambda row, k: f"masked_positions[{k}] is {positions[row, k]}, a position without a token",
    )
    yield from problems_where(
        used & (ids >= schema.vocab_size),
        lambda row, k: (
            f"masked_ids[{k}] is {ids[row, k]}, not below the vocabulary's {schema.vocab_size}"
        ),
    )
    is_special = np.zeros(schema.vocab_size, bool)
    is_special[list(schema.all_special_ids)] = True
    yield from problems_where(
        used & is_special[np.minimum(ids, schema.vocab_size - 1)],
        lambda row, k: f"masked_ids[{k}] is {ids[row, k]}, a special token, which is never masked",
    )
    now = np.take_along_axis(columns["input_ids"], bounded, axis=1)
    odd = is_special[np.minimum(now, schema.vocab_size - 1)] & (now != schema.special_ids["mask"])
    yield from problems_where(
        used & odd,
        lambda row, k: (
            f"input_ids[{positions[row, k]}] is {now[row, k]} at a masked position: neither the "
            "mask token nor an ordinary token"
        ),
    )


def _check_surroundings(
    columns: Columns, schema: Schema, prefix: tuple[int, ...], suffix: tuple[int, ...]
) -> Iterator[RowProblem]:
    """Checks that segments, without masks, begin and end with the ids that wrap a text."""
    if schema.packing == "concat" or not prefix + suffix:
        return
    input_ids, segment_ids = unmask(columns), columns["segment_ids"]
    length = input_ids.shape[1]
    edge = np.ones((len(segment_ids), 1), bool)
    changes = segment_ids[:, 1:] != segment_ids[:, :-1]
    starts = np.flatnonzero(np.hstack((edge, changes)) & (segment_ids != 0))
    ends = np.flatnonzero(np.hstack((changes, edge)) & (segment_ids != 0))
    wanted = [("begins", starts, step, i) for step, i in enumerate(prefix)]
    wanted += [("ends", ends, -step, i) for step, i in enumerate(reversed(suffix))]
    note = " in the unmasked row" * schema.static_masking
    for what, at, step, expected in wanted:
        rows, edges = np.divmod(at, length)  # of the flat rows
        inside = (edges + step >= 0) & (edges + step < length)
        found = np.where(inside, input_ids.reshape(-1)[(at + step) * inside], -1)
        for n in np.flatnonzero(found != expected)[:MOST_PROBLEMS].tolist():
            yield RowProblem(
                int(rows[n]),
                f"the segment that {what} at {int(edges[n])} has id {int(found[n])} at "
                f"{int(edges[n]) + step}, not {expected}{note}",
            )


def example_names(columns: Columns) -> np.ndarray:
    """Returns the feature `example_id` as one number per row: uint64 [B]."""
    halves = columns["example_id"].astype(np.uint64)
    return halves[:, 0] << np.uint64(32) | halves[:, 1]


def example_problems(
    columns: Columns, split: str, evaluation: np.ndarray | None
) -> Iterator[RowProblem]:
    """Checks that rows of evaluation have a line in evaluation.jsonl, and others have id 0.

    Args:
      columns: B rows.
      split: the split of the rows.
      evaluation: uint64, the names of its lines; None if it cannot be read.
    """
    names_B = example_names(columns)
    if is_training(split):
        yield from problems_where(
            (names_B != 0)[:, None],
            lambda row, _: f"example_id is {names_B[row]:016x} in a training row, not 0",
        )
    elif evaluation is not None:
        yield from problems_where(
            ~np.isin(names_B, evaluation)[:, None],
            lambda row, _: f"example_id {names_B[row]:016x} has no line in evaluation.jsonl",
        )
