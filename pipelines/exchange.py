"""What travels from blocks to shards: sub-blocks, as bytes or as pointers into scratch files. Pure.

A sub-block holds the documents of one block that go to one shard: an Arrow record batch of content
hash, bytes of text and token ids. On a cluster its bytes travel through the runner's shuffle. On
one machine a block writes its sub-blocks into one scratch file, and only (path, offset, length)
travels: the parent process then holds kilobytes instead of the corpus.
"""

import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

DIGEST_BYTES = 16
EXCHANGES = ("files", "runner")


@dataclass(frozen=True)
class SubBlock:
    """Tokenized documents, columnar.

    Attributes:
      digests: fixed_size_binary(16), xxh3_128 of each document's content.
      text_bytes: int64, UTF-8 bytes of each document.
      ids: large_binary, each document's token ids one after another, little-endian. (Arrow gathers
        binaries by memcpy and lists value by value: 20 times slower.)
    """

    batch: pa.RecordBatch

    @staticmethod
    def of(
        digests: np.ndarray, text_bytes: np.ndarray, ids: np.ndarray, offsets: np.ndarray
    ) -> "SubBlock":
        """From columns.

        Args:
          digests: uint8 [n, 16].
          text_bytes: int64 [n].
          ids: uint16 or uint32, of all documents.
          offsets: int64 [n + 1] of the documents in `ids`.
        """
        packed = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(DIGEST_BYTES),
            len(digests),
            [None, pa.py_buffer(np.ascontiguousarray(digests))],
        )
        spans = pa.py_buffer(np.ascontiguousarray(offsets * ids.itemsize))
        packed_ids = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(digests), [None, spans, pa.py_buffer(np.ascontiguousarray(ids))]
        )
        columns = [packed, pa.array(text_bytes, pa.int64()), packed_ids]
        return SubBlock(pa.record_batch(columns, ["digests", "text_bytes", "ids"]))

    @staticmethod
    def empty(id_dtype: str) -> "SubBlock":
        """No documents."""
        none = np.zeros(0, np.int64)
        digests = np.zeros((0, DIGEST_BYTES), np.uint8)
        return SubBlock.of(digests, none, none.astype(id_dtype), np.zeros(1, np.int64))

    def digests(self) -> tuple[np.ndarray, np.ndarray]:
        """The upper and lower halves of the content hashes: uint64 [n] each."""
        column = self.batch["digests"]
        data = np.frombuffer(column.buffers()[1] or b"", np.uint8).reshape(-1, DIGEST_BYTES)
        halves = data[column.offset : column.offset + len(column)].view(">u8").astype(np.uint64)
        return halves[:, 0], halves[:, 1]

    def text_bytes(self) -> int:
        """UTF-8 bytes of all documents."""
        return int(self.batch["text_bytes"].to_numpy().sum())

    def ids(self, id_dtype: str) -> tuple[np.ndarray, np.ndarray]:
        """All token ids, and int64 [n + 1] offsets of the documents in them."""
        column = self.batch["ids"]
        _, spans, data = column.buffers()
        offsets = np.frombuffer(spans, np.int64)[column.offset :][: len(column) + 1]
        offsets = offsets // np.dtype(id_dtype).itemsize
        ids = np.frombuffer(data or b"", id_dtype)[offsets[0] : offsets[-1]]
        return ids, offsets - offsets[0]

    def take(self, order: np.ndarray) -> "SubBlock":
        """The documents of these indices, in their order."""
        return SubBlock(self.batch.take(pa.array(order)))

    def slice(self, start: int, stop: int) -> "SubBlock":
        """Documents start to stop, without a copy."""
        return SubBlock(self.batch.slice(start, stop - start))

    def to_bytes(self) -> bytes:
        """The Arrow IPC stream of the batch."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.batch.schema) as writer:
            writer.write_batch(self.batch)
        return sink.getvalue().to_pybytes()


def join(streams: Iterable[bytes], id_dtype: str) -> SubBlock:
    """All documents of many sub-blocks."""
    batches = [pa.ipc.open_stream(pa.py_buffer(stream)).read_next_batch() for stream in streams]
    return SubBlock(pa.concat_batches(batches)) if batches else SubBlock.empty(id_dtype)


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
    with open(path, "xb") as file:
        for sub_block in sub_blocks:
            file.write(sub_block)
            pointers.append(Pointer(path, offset, len(sub_block)))
            offset += len(sub_block)
    return pointers


def load(value: bytes | Pointer) -> bytes:
    """A sub-block's bytes, wherever they are."""
    if isinstance(value, bytes):
        return value
    with open(value.path, "rb") as file:
        file.seek(value.offset)
        return file.read(value.length)
