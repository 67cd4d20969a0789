"""Examples of one block for one shard, columnar: what travels from blocks to shards. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from pipelines.rows.batch_stream import from_stream, to_stream
from pipelines.rows.ragged import Ragged

DIGEST_BYTES = 16
COPIES = "copies"  # a scalar column: how many equal examples one stands for
# Columns of marks: the document that one stays away for, as binary(16), and how similar it is.
REPRESENTATIVE, SIMILARITY = "representative", "similarity"
MARK = "mark"  # a scalar column: 0, or why documents equal to this one are dropped


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

    def sizes(self, id_dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What each example adds to the documents, bytes and tokens of its document: [n] each."""
        documents = (self.scalar("part") == 0).astype(np.int64)
        return documents, self.scalar("text_bytes"), self.tokens(id_dtype)

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


def mark_batch(
    digests: np.ndarray, marks: np.ndarray, near: Mapping[str, pa.Array] = MappingProxyType({})
) -> ExampleBatch:
    """Says of documents why they are dropped, and holds nothing else; `join` fills it up.

    Args:
      digests: uint8 [n, 16], of the documents.
      marks: uint8 [n], as `schemas.drops.mark_of` numbers reasons.
      near: of near-duplicates [n], which `join` leaves out: REPRESENTATIVE and SIMILARITY.
    """
    whole = ExampleBatch.of(digests, np.zeros(len(digests), np.int64), {}, {MARK: marks})
    batch = whole.batch.select(["digests", MARK])
    for name, column in near.items():
        batch = batch.append_column(name, column)
    return ExampleBatch(batch)


def join(streams: Iterable[bytes]) -> ExampleBatch | None:
    """All examples of many example batches; None if there is none."""
    batches = [from_stream(stream) for stream in streams]
    whole = next((batch.schema for batch in batches if "ids" in batch.schema.names), None)
    if whole is None:  # marks of documents that are not there
        return None
    return ExampleBatch(pa.concat_batches([_fill(batch, whole) for batch in batches]))


def _fill(batch: pa.RecordBatch, whole: pa.Schema) -> pa.RecordBatch:
    """Marks with columns of zeros and of nothing beside them; other batches as they are."""
    if batch.schema.names == whole.names:
        return batch
    columns = [
        batch[name]
        if name in batch.schema.names
        else pa.repeat(pa.scalar(b"" if pa.types.is_large_binary(type_) else 0, type_), len(batch))
        for name, type_ in zip(whole.names, whole.types, strict=True)
    ]
    return pa.record_batch(columns, schema=whole)
