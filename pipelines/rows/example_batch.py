"""Columnar batches of examples, as the shuffle carries them from blocks to shards.

Exact duplicates are dropped within a block, and again within a shard. A block sends one example
with the number of its copies, so a document that occurs a million times makes no shard larger than
the others. Legend: E examples.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.rows.ragged import Ragged, gather
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.format.drops import DROPS, total_counts

DIGEST_BYTES = 16
COPIES = "copies"  # a scalar column: the number of equal examples that one represents
MARK = "mark"  # a scalar column: 0, or the reason why documents equal to this one are dropped


def to_stream(batch: pa.RecordBatch) -> bytes:
    """The Arrow IPC stream of a batch."""
    return to_buffer(batch).to_pybytes()


def to_buffer(batch: pa.RecordBatch) -> pa.Buffer:
    """The Arrow IPC stream of a batch, without a copy, which would hold the GIL."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def from_stream(stream: bytes) -> pa.RecordBatch:
    """The batch of a stream, without a copy."""
    return pa.ipc.open_stream(pa.py_buffer(stream)).read_next_batch()


@dataclass(frozen=True)
class ExampleBatch:
    """The examples that a task makes of documents, in columns.

    Attributes:
      batch: the columns
        digests: fixed_size_binary(16), xxh3_128 of the content of each example's document.
        text_bytes: int64, UTF-8 bytes of the document; 0 in all its examples except the first.
        ragged columns, large_binary: the values of each example, little-endian; `ids` is always
          among them. (Arrow gathers binaries by memcpy, but lists value by value, 20 times slower.)
        scalar columns: a number per example; `copies`, if duplicates were dropped; `mark`, if some
          rows are not examples, but reasons why a document is dropped: see `drops.mark_of`.
    """

    batch: pa.RecordBatch

    @staticmethod
    def of(
        digests: np.ndarray,
        text_bytes: np.ndarray,
        ragged: Mapping[str, Ragged],
        scalars: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> "ExampleBatch":
        """Makes a batch of columns.

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
        """A scalar column [n]; zeros if the batch does not have it."""
        if name not in self.batch.schema.names:
            return np.zeros(len(self), np.int64)
        return self.batch[name].to_numpy(zero_copy_only=False)

    def copies(self) -> np.ndarray:
        """The number of equal examples that each represents [n]; ones if duplicates were kept."""
        if COPIES not in self.batch.schema.names:
            return np.ones(len(self), np.int64)
        return self.scalar(COPIES)

    def lengths(self, id_dtype: str) -> np.ndarray:
        """int64 [n]: ids of each example."""
        return self._column("ids", id_dtype).lengths

    def tokens(self, id_dtype: str) -> np.ndarray:
        """int64 [n]: the tokens that each example adds to the count of its document's tokens."""
        specials, truncated, repeated = map(self.scalar, ("specials", "truncated", "repeated"))
        return self.lengths(id_dtype) - specials + truncated - repeated

    def ragged(
        self, name: str, dtype: str, prefix: Sequence[int] = (), suffix: Sequence[int] = ()
    ) -> Ragged:
        """A ragged column, with values before and after those of each example.

        The offsets have n + 1 elements and begin at 0.
        """
        column = self._column(name, dtype)
        if prefix or suffix:
            return gather([column], np.arange(len(self)), prefix, suffix)
        return column

    def _column(self, name: str, dtype: str) -> Ragged:
        """A ragged column as it is stored."""
        column = self.batch[name]
        _, spans, data = column.buffers()
        offsets = np.frombuffer(spans, np.int64)[column.offset :][: len(column) + 1]
        offsets = offsets // np.dtype(dtype).itemsize
        values = np.frombuffer(data or b"", dtype)[offsets[0] : offsets[-1]]
        return Ragged(values, offsets - offsets[0])

    def contents(self) -> Iterator[tuple[str, Sequence[Any]]]:
        """The name of each column, and buffers of all its bytes."""
        for name, column in zip(self.batch.schema.names, self.batch.columns, strict=True):
            yield name, [*filter(None, column.buffers())]

    def take(self, order: np.ndarray) -> "ExampleBatch":
        """The examples with the indices in `order`, in that order."""
        return ExampleBatch(self.batch.take(pa.array(order)))

    def slice(self, start: int, stop: int) -> "ExampleBatch":
        """Examples start to stop, without a copy."""
        return ExampleBatch(self.batch.slice(start, stop - start))


@dataclass(frozen=True)
class JoinedExamples(ExampleBatch):
    """Examples of several batches, whose ragged columns are joined when a task reads them.

    So the values, nearly all bytes of a shard, are copied once.

    Attributes:
      batch: all other columns, and `evaluation`.
      parts: the batches, at least one.
      index_E: int64, the index of each example among those of `parts`; none occurs twice.
    """

    parts: tuple[ExampleBatch, ...]
    index_E: np.ndarray

    def lengths(self, id_dtype: str) -> np.ndarray:
        """See the base class."""
        return np.concatenate([part.lengths(id_dtype) for part in self.parts])[self.index_E]

    def ragged(
        self, name: str, dtype: str, prefix: Sequence[int] = (), suffix: Sequence[int] = ()
    ) -> Ragged:
        """See the base class."""
        if name in self.batch.schema.names:
            return super().ragged(name, dtype, prefix, suffix)
        columns = [part.ragged(name, dtype) for part in self.parts]
        return gather(columns, self.index_E, prefix, suffix)

    def contents(self) -> Iterator[tuple[str, Sequence[Any]]]:
        """See the base class."""
        yield from super().contents()
        for name in self.parts[0].batch.schema.names:
            if name not in self.batch.schema.names:
                yield name, self.ragged(name, "uint8")

    def take(self, order: np.ndarray) -> "JoinedExamples":
        """See the base class; no example twice."""
        batch = self.batch.take(pa.array(order))
        return replace(self, batch=batch, index_E=self.index_E[order])

    def slice(self, start: int, stop: int) -> "JoinedExamples":
        """See the base class."""
        return self.take(np.arange(start, stop))


def join(streams: Iterable[bytes]) -> JoinedExamples | None:
    """Joins the batches of many streams; None if there are none."""
    batches = [from_stream(stream) for stream in streams]
    if not batches:
        return None
    # Not evaluation lines: examples are sorted by them.
    others = [
        column.name
        for column in batches[0].schema
        if column.type != pa.large_binary() or column.name == "evaluation"
    ]
    batch = pa.concat_batches([batch.select(others) for batch in batches])
    return JoinedExamples(batch, tuple(map(ExampleBatch, batches)), np.arange(len(batch)))


@dataclass(frozen=True)
class Ordered:
    """Examples sorted by hash, part and evaluation line, in which equal documents may differ.

    Attributes:
      order_E: int64, the index of the example in the batch; all other columns have this order.
      high_E: uint64, the upper half of its document's hash.
      low_E: uint64, the lower half of its document's hash.
      part_E: the number of the example within its document.
      other_E: bool, whether its document differs from that of the example before.
      fresh_E: bool, whether it is not a duplicate of the example before.
    """

    order_E: np.ndarray
    high_E: np.ndarray
    low_E: np.ndarray
    part_E: np.ndarray
    other_E: np.ndarray
    fresh_E: np.ndarray


def sort_examples(examples: ExampleBatch) -> Ordered:
    """Sorts examples, so that equal documents are adjacent."""
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
class KeptExamples:
    """The remaining examples of a shard.

    Attributes:
      examples: distinct examples, in the order in which rows are made of them.
      high_E: uint64, the upper halves of their documents' hashes.
      low_E: uint64, the lower halves of their documents' hashes.
      dropped: reason to number of dropped documents.
    """

    examples: ExampleBatch
    high_E: np.ndarray
    low_E: np.ndarray
    dropped: dict[str, int]


def keep(examples: ExampleBatch) -> KeptExamples:
    """Sorts a shard's examples by hash, and drops duplicates and the documents that are marked."""
    ordered = sort_examples(examples)
    mark_E = examples.scalar(MARK)[ordered.order_E]
    starts = np.flatnonzero(ordered.other_E)
    reason_E = np.repeat(
        np.maximum.reduceat(mark_E, starts) if len(starts) else mark_E,
        np.diff(np.append(starts, len(mark_E))),
    )
    kept = ordered.fresh_E & (reason_E == 0)
    # A document's first example counts it; marks are not examples.
    counted = (mark_E == 0) & (ordered.part_E == 0)
    copies = examples.copies()[ordered.order_E[counted]]
    numbers = np.bincount(reason_E[counted], copies, len(DROPS) + 1).astype(int).tolist()
    repeats = numbers[0] - int(np.count_nonzero(kept & counted))
    marked = dict(zip(DROPS, numbers[1:], strict=True))
    return KeptExamples(
        examples.take(ordered.order_E[kept]),
        ordered.high_E[kept],
        ordered.low_E[kept],
        total_counts({"duplicates": repeats}, marked),
    )


def without_repeats(examples: ExampleBatch) -> tuple[ExampleBatch, np.ndarray]:
    """Drops duplicates within a batch, in order, and adds the number of copies of each example.

    Returns:
      The remaining examples; int64, their indices in `examples`.
    """
    ordered = sort_examples(examples)
    firsts = np.flatnonzero(ordered.fresh_E)
    copies = np.diff(np.append(firsts, len(ordered.order_E)))
    kept = ordered.order_E[firsts]
    by_index = np.argsort(kept)
    kept, copies = kept[by_index], copies[by_index]
    if len(kept) < len(examples):
        examples = examples.take(kept)
    column = pa.array(copies.astype(np.uint32))
    return replace(examples, batch=examples.batch.append_column(COPIES, column)), kept
