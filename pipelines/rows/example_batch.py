"""Examples, columnar: what travels from blocks to shards; in a shard each document is there once.

Exact duplicates are dropped where they meet: in a block, and again in a shard. Those of a block go
no further, so that a document that is there a million times makes no shard larger than others: one
of each block arrives, with the number of its copies. Pure. Legend: E examples.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from pipelines.host.arrow import pc
from pipelines.rows.ragged import Ragged
from schemas.drops import DROPS, total_counts

DIGEST_BYTES = 16
COPIES = "copies"  # a scalar column: how many equal examples one stands for
MARK = "mark"  # a scalar column: 0, or why documents equal to this one are dropped


def to_stream(batch: pa.RecordBatch) -> bytes:
    """The Arrow IPC stream of a batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def from_stream(stream: bytes) -> pa.RecordBatch:
    """The batch of a stream, without a copy."""
    return pa.ipc.open_stream(pa.py_buffer(stream)).read_next_batch()


@dataclass(frozen=True)
class ExampleBatch:
    """Examples, columnar: what a task made of the documents, one row an example.

    Attributes:
      batch: the columns
        digests: fixed_size_binary(16), xxh3_128 of the content of each example's document.
        text_bytes: int64, UTF-8 bytes of the document; 0 in all its examples but the first.
        ragged ones, large_binary: values of each example one after another, little-endian. (Arrow
          gathers binaries by memcpy and lists value by value: 20 times slower.) `ids` is always
          there.
        scalar ones: a number an example; `copies`, where repeats were left out; `mark`, where an
          example may be none and only say why its document is dropped: see `schemas.drops.mark_of`.
    """

    batch: pa.RecordBatch

    @staticmethod
    def of(
        digests: np.ndarray,
        text_bytes: np.ndarray,
        ragged: Mapping[str, Ragged],
        scalars: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> "ExampleBatch":
        """From columns.

        Args:
          digests: uint8 [n, 16].
          text_bytes: int64 [n].
          ragged: name to values and offsets.
          scalars: name to numbers [n].
        """
        columns: dict[str, pa.Array] = {
            "digests": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(DIGEST_BYTES),
                len(digests),
                [None, pa.py_buffer(np.ascontiguousarray(digests))],
            ),
            "text_bytes": pa.array(text_bytes, pa.int64()),
        }
        for name, (values, offsets) in ragged.items():
            spans = np.ascontiguousarray(offsets * values.itemsize)
            columns[name] = pa.LargeBinaryArray.from_buffers(
                pa.large_binary(),
                len(digests),
                [None, pa.py_buffer(spans), pa.py_buffer(np.ascontiguousarray(values))],
            )
        columns.update({name: pa.array(values) for name, values in scalars.items()})
        return ExampleBatch(pa.record_batch(columns))

    def __len__(self) -> int:
        """The number of examples in the batch."""
        return len(self.batch)

    def digests(self) -> tuple[np.ndarray, np.ndarray]:
        """The upper and lower halves of the content hashes: uint64 [n] each."""
        column = self.batch["digests"]
        data = np.frombuffer(column.buffers()[1] or b"", np.uint8).reshape(-1, DIGEST_BYTES)
        halves = data[column.offset : column.offset + len(column)].view(">u8").astype(np.uint64)
        return halves[:, 0], halves[:, 1]

    def scalar(self, name: str) -> np.ndarray:
        """A scalar column [n]; zeros where no example brought it."""
        if name not in self.batch.schema.names:
            return np.zeros(len(self), np.int64)
        return self.batch[name].to_numpy(zero_copy_only=False)

    def copies(self) -> np.ndarray:
        """How many equal examples each stands for [n]; ones where that was not counted."""
        if COPIES not in self.batch.schema.names:
            return np.ones(len(self), np.int64)
        return self.scalar(COPIES)

    def lengths(self, id_dtype: str) -> np.ndarray:
        """int64 [n]: ids of each example."""
        return np.diff(self.ragged("ids", id_dtype)[1])

    def tokens(self, id_dtype: str) -> np.ndarray:
        """int64 [n]: what each example adds to the tokens that are counted of its document."""
        specials, truncated, repeated = map(self.scalar, ("specials", "truncated", "repeated"))
        return self.lengths(id_dtype) - specials + truncated - repeated

    def ragged(self, name: str, dtype: str) -> Ragged:
        """All values of a ragged column, and int64 [n + 1] offsets of the examples in them."""
        column = self.batch[name]
        _, spans, data = column.buffers()
        offsets = np.frombuffer(spans, np.int64)[column.offset :][: len(column) + 1]
        offsets = offsets // np.dtype(dtype).itemsize
        values = np.frombuffer(data or b"", dtype)[offsets[0] : offsets[-1]]
        return Ragged(values, offsets - offsets[0])

    def take(self, order: np.ndarray) -> "ExampleBatch":
        """The examples of these indices, in their order."""
        return ExampleBatch(self.batch.take(pa.array(order)))

    def slice(self, start: int, stop: int) -> "ExampleBatch":
        """Examples start to stop, without a copy."""
        return ExampleBatch(self.batch.slice(start, stop - start))

    def to_bytes(self) -> bytes:
        """The Arrow IPC stream of the batch."""
        return to_stream(self.batch)


def join(streams: Iterable[bytes]) -> ExampleBatch | None:
    """All examples of many example batches; None if there is none."""
    batches = [from_stream(stream) for stream in streams]
    return ExampleBatch(pa.concat_batches(batches)) if batches else None


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
        lines = pc.rank(examples.batch["evaluation"], tiebreaker="min")
        keys.insert(0, lines.to_numpy())
    order = np.lexsort(keys)
    high, low, part = high[order], low[order], part[order]
    other = np.ones(len(order), bool)
    other[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    fresh = other.copy()
    fresh[1:] |= part[1:] != part[:-1]
    return Ordered(order, high, low, part, other, fresh)


@dataclass(frozen=True)
class Kept:
    """What is left of a shard's examples.

    Attributes:
      examples: in the order in which rows are made of them, no two equal.
      high_E: uint64, the upper halves of their documents' hashes.
      low_E: uint64, the lower halves.
      dropped: reason to number of documents that are not left.
    """

    examples: ExampleBatch
    high_E: np.ndarray
    low_E: np.ndarray
    dropped: dict[str, int]


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
    # A document is counted by its first example; marks are no examples.
    counted = (mark_E == 0) & (found.part_E == 0)
    copies = examples.copies()[found.order_E[counted]]
    numbers = np.bincount(reason_E[counted], copies, len(DROPS) + 1).astype(int).tolist()
    repeats = numbers[0] - int(np.count_nonzero(kept & counted))
    marked = dict(zip(DROPS, numbers[1:], strict=True))
    return Kept(
        examples.take(found.order_E[kept]),
        found.high_E[kept],
        found.low_E[kept],
        total_counts({"duplicates": repeats}, marked),
    )


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
