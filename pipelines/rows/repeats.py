"""Repeats of documents, found where they meet: in a block, and again in a shard. Pure.

Those of a block go no further, so that a document that is there a million times makes no shard
larger than others: one of each block arrives, with the number of its copies.

Legend: E examples.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.rows.example_batch import COPIES, MARK, ExampleBatch
from schemas.drops import DROPS, total_counts


@dataclass(frozen=True)
class Ordered:
    """Examples by hash, then part, then by what else equal documents may differ in: their ids.

    Attributes:
      order_E: int64, the example that comes here; all others are in this order too.
      high_E: uint64, the upper half of its document's hash.
      low_E: uint64, the lower half.
      part_E: which of its document's examples it is.
      other_E: bool, whether it is of another document than the one before.
      fresh_E: bool, whether it is no repeat.
    """

    order_E: np.ndarray
    high_E: np.ndarray
    low_E: np.ndarray
    part_E: np.ndarray
    other_E: np.ndarray
    fresh_E: np.ndarray


def sort_examples(examples: ExampleBatch) -> Ordered:
    """Puts equal documents side by side."""
    high, low = examples.digests()
    part = examples.scalar("part")
    keys = [low, high]
    if part.any():
        keys.insert(0, part)
    if "evaluation" in examples.batch.schema.names:
        lines = pc.rank(examples.batch["evaluation"], tiebreaker="min")  # pyright: ignore[reportAttributeAccessIssue]
        keys.insert(0, lines.to_numpy())
    order = np.lexsort(keys)
    high, low, part = high[order], low[order], part[order]
    other = np.ones(len(order), bool)
    other[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    fresh = other.copy()
    fresh[1:] |= part[1:] != part[:-1]
    return Ordered(order, high, low, part, other, fresh)


@dataclass(frozen=True)
class LeftOut:
    """Documents that a shard leaves out, by the examples that tell of them.

    Attributes:
      example_N: int64, of the examples given to `keep`; of equal documents and parts there is one.
      reason_N: their reasons: 0 for repeats, or numbers of `schemas.drops.mark_of`.
      number_N: int64, how often each was left out.
    """

    example_N: np.ndarray
    reason_N: np.ndarray
    number_N: np.ndarray


@dataclass(frozen=True)
class Kept:
    """What is left of a shard's examples.

    Attributes:
      examples: in the order in which rows are made of them, no two equal.
      high_E: uint64, the upper halves of their documents' hashes.
      low_E: uint64, the lower halves.
      dropped: reason to number of documents that are not left.
      left_out: these documents.
    """

    examples: ExampleBatch
    high_E: np.ndarray
    low_E: np.ndarray
    dropped: dict[str, int]
    left_out: LeftOut


def keep(examples: ExampleBatch) -> Kept:
    """Sorts a shard's examples by hash, and drops repeats and the documents that are marked."""
    found = sort_examples(examples)
    mark_E = examples.scalar(MARK)[found.order_E]
    starts = np.flatnonzero(found.other_E)
    reason_E = np.repeat(
        np.maximum.reduceat(mark_E, starts) if len(starts) else mark_E,
        np.diff(np.append(starts, len(mark_E))),
    )
    kept = found.fresh_E & (reason_E == 0)
    left_out, part_N = _left_out(examples, found, mark_E, reason_E)
    firsts = part_N == 0
    numbers = np.bincount(left_out.reason_N[firsts], left_out.number_N[firsts], len(DROPS) + 1)
    repeats, *marked = numbers.astype(int).tolist()
    return Kept(
        examples.take(found.order_E[kept]),
        found.high_E[kept],
        found.low_E[kept],
        total_counts({"duplicates": repeats}, dict(zip(DROPS, marked, strict=True))),
        left_out,
    )


def _left_out(
    examples: ExampleBatch, found: Ordered, mark_E: np.ndarray, reason_E: np.ndarray
) -> tuple[LeftOut, np.ndarray]:
    """What is left out, and the part that each of its examples is; marks are no examples."""
    true_E = np.flatnonzero(mark_E == 0)
    fresh = np.cumsum(found.fresh_E)[true_E]  # one number for equal documents and parts
    starts = np.flatnonzero(np.diff(fresh, prepend=0))
    first_E = true_E[starts]
    copies = examples.copies()[found.order_E[true_E]].astype(np.int64)
    number = np.add.reduceat(copies, starts) if len(starts) else copies
    number = number - (reason_E[first_E] == 0)
    some = number > 0
    places = first_E[some]
    left_out = LeftOut(found.order_E[places], reason_E[places], number[some])
    return left_out, found.part_E[places]


def without_repeats(examples: ExampleBatch) -> tuple[ExampleBatch, np.ndarray]:
    """The examples that are no repeats, in their order, with the number of copies of each.

    Returns:
      The examples; int64, which of the given ones they are.
    """
    found = sort_examples(examples)
    firsts = np.flatnonzero(found.fresh_E)
    copies = np.diff(np.append(firsts, len(found.order_E)))
    kept = found.order_E[firsts]
    by_place = np.argsort(kept)
    kept, copies = kept[by_place], copies[by_place]
    if len(kept) < len(examples):
        examples = examples.take(kept)
    column = pa.array(copies.astype(np.uint32))
    return replace(examples, batch=examples.batch.append_column(COPIES, column)), kept
