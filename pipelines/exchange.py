"""What travels from blocks to shards: sub-blocks, as bytes or as pointers into scratch files. Pure.

A sub-block holds the examples of one block that go to one shard, as an Arrow record batch. On a
cluster its bytes travel through the runner's shuffle. On one machine a block writes its sub-blocks
into one scratch file, and only (path, offset, length) travels: the parent process then holds
kilobytes instead of the corpus.
"""

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from pipelines.stores.store import is_remote, read, write_file

DIGEST_BYTES = 16
COPIES = "copies"  # a scalar column: how many equal examples one stands for
# Sub-blocks of several blocks travel together through a runner's shuffle: with as many shards as a
# block has documents, each would be an element of its own. (Into scratch files they go at once.)
HELD_BYTES = 256 << 20
Ragged = tuple[np.ndarray, np.ndarray]  # values, and int64 [n + 1] offsets of the examples in them


@dataclass(frozen=True)
class SubBlock:
    """Examples, columnar: what a task made of the documents, one row an example.

    Attributes:
      batch: the columns
        digests: fixed_size_binary(16), xxh3_128 of the content of each example's document.
        text_bytes: int64, UTF-8 bytes of the document; 0 in all its examples but the first.
        ragged ones, large_binary: values of each example one after another, little-endian. (Arrow
          gathers binaries by memcpy and lists value by value: 20 times slower.) `ids` is always
          there.
        scalar ones: a number an example; `copies`, where repeats were left out.
    """

    batch: pa.RecordBatch

    @staticmethod
    def of(
        digests: np.ndarray,
        text_bytes: np.ndarray,
        ragged: Mapping[str, Ragged],
        scalars: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> "SubBlock":
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
        return SubBlock(pa.record_batch(columns))

    def __len__(self) -> int:
        """Examples."""
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

    def ragged(self, name: str, dtype: str) -> Ragged:
        """All values of a ragged column, and int64 [n + 1] offsets of the examples in them."""
        column = self.batch[name]
        _, spans, data = column.buffers()
        offsets = np.frombuffer(spans, np.int64)[column.offset :][: len(column) + 1]
        offsets = offsets // np.dtype(dtype).itemsize
        values = np.frombuffer(data or b"", dtype)[offsets[0] : offsets[-1]]
        return values, offsets - offsets[0]

    def take(self, order: np.ndarray) -> "SubBlock":
        """The examples of these indices, in their order."""
        return SubBlock(self.batch.take(pa.array(order)))

    def slice(self, start: int, stop: int) -> "SubBlock":
        """Examples start to stop, without a copy."""
        return SubBlock(self.batch.slice(start, stop - start))

    def to_bytes(self) -> bytes:
        """The Arrow IPC stream of the batch."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.batch.schema) as writer:
            writer.write_batch(self.batch)
        return sink.getvalue().to_pybytes()


class Held:
    """Sub-blocks that wait for others of the same route.

    Attributes:
      bytes: of them, about.
    """

    def __init__(self) -> None:
        """Nothing."""
        self.bytes = 0
        self._batches: dict[int, list[pa.RecordBatch]] = {}

    def add(self, sub_blocks: Iterable[tuple[int, SubBlock]]) -> None:
        """Some more."""
        for route, sub_block in sub_blocks:
            self._batches.setdefault(route, []).append(sub_block.batch)
            self.bytes += sub_block.batch.nbytes

    def take(self) -> list[tuple[int, SubBlock]]:
        """All that is held, one sub-block a route; nothing is held afterwards."""
        joined = [
            (route, SubBlock(batches[0] if len(batches) == 1 else pa.concat_batches(batches)))
            for route, batches in self._batches.items()
        ]
        self.bytes, self._batches = 0, {}
        return joined


def join(streams: Iterable[bytes]) -> SubBlock | None:
    """All examples of many sub-blocks; None if there is none."""
    batches = [pa.ipc.open_stream(pa.py_buffer(stream)).read_next_batch() for stream in streams]
    return SubBlock(pa.concat_batches(batches)) if batches else None


@dataclass(frozen=True)
class Pointer:
    """Where a sub-block lies in a scratch file."""

    path: str
    offset: int
    length: int


def write_scratch(directory: str, sub_blocks: list[bytes]) -> list[Pointer]:
    """Writes sub-blocks into a new file; a retried block writes another, none is overwritten."""
    path = os.path.join(directory, f"{uuid.uuid4().hex}.blocks")
    pointers, offset = [], 0
    for sub_block in sub_blocks:
        pointers.append(Pointer(path, offset, len(sub_block)))
        offset += len(sub_block)
    if is_remote(path):
        write_file(path, b"".join(sub_blocks))
    else:
        with open(path, "xb") as file:
            file.writelines(sub_blocks)
    return pointers


def load(value: bytes | Pointer) -> bytes:
    """A sub-block's bytes, wherever they are."""
    if isinstance(value, bytes):
        return value
    return read(value.path, value.offset, value.length)
