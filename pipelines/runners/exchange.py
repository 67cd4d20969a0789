"""What workers hand on to each other: batches by key, through the runner or in scratch files.

Batches of several blocks travel together through a runner's shuffle: with as many keys as a block
has documents, each would be an element of its own. Into scratch files they go at once, and only
pointers travel.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.rows.batch_stream import to_stream
from pipelines.runners.deliveries import NO_VALUES, add_tallies, tally
from pipelines.storage.scratch import Pointer, load, write_scratch
from pipelines.storage.store import disk_errors

BUFFER_BYTES = 256 << 20
VALUE_BYTES = 1 << 20  # about; what sorts a runner's values has a buffer of some MB for them
_KEY_BITS = 40  # of a tally's key; the others tell the shuffle


class Outbox:
    """Batches of a bundle that wait for others of the same key.

    Attributes:
      bytes: of what waits, about.
      sent: the tally of what was sent.
    """

    def __init__(self, exchange: str, scratch: str, shuffle: int = 0):
        """Starts empty.

        Args:
          exchange: files or runner.
          scratch: the folder for files.
          shuffle: which one of the pipeline they go through, for the tally.
        """
        self.bytes, self.sent = 0, NO_VALUES
        self._exchange, self._scratch, self._shuffle = exchange, scratch, shuffle
        self._batches: dict[int, list[pa.RecordBatch]] = {}

    @property
    def is_full(self) -> bool:
        """Whether what waits should go."""
        return self._exchange == "files" or self.bytes > BUFFER_BYTES

    def add(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        """Puts batches to those of their keys."""
        for key, batch in batches:
            self._batches.setdefault(key, []).append(batch)
            self.bytes += batch.nbytes

    def take(self) -> list[tuple[int, pa.RecordBatch]]:
        """Empties it: one batch a key, all of the key's joined."""
        joined = [
            (key, batches[0] if len(batches) == 1 else pa.concat_batches(batches))
            for key, batches in self._batches.items()
        ]
        self.bytes, self._batches = 0, {}
        return joined

    def send(self) -> list[tuple[int, bytes | Pointer]]:
        """Empties it: what goes into the shuffle, one value a key, or some where it is large."""
        taken = self.take()
        if self._exchange == "runner":
            taken = [(key, part) for key, batch in taken for part in _cut(batch)]
        keys = [key for key, _ in taken]
        values: list[bytes] | list[Pointer] = [to_stream(batch) for _, batch in taken]
        self.sent = add_tallies([self.sent, _tally(self._shuffle, zip(keys, values, strict=True))])
        if self._exchange == "files" and values:
            with disk_errors(os.path.join(self._scratch, "example batches")):
                values = write_scratch(self._scratch, values)
        return list(zip(keys, values, strict=True))


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts of about VALUE_BYTES, of a row at least."""
    rows = max(1, len(batch) * VALUE_BYTES // max(batch.nbytes, 1))
    return (batch.slice(start, rows) for start in range(0, len(batch), rows))


def receive(
    key: int, values: Iterable[bytes | Pointer], shuffle: int = 0
) -> tuple[list[bytes], np.ndarray]:
    """The streams that came for a key, and their tally; empty values only make the key be there."""
    streams = [load(value) for value in values if value]
    return streams, _tally(shuffle, ((key, stream) for stream in streams))


def keyed_type(exchange: str) -> Any:
    """The type of (key, value), by which Beam picks coders; flattened inputs need the same.

    Bytes go through a shuffle as they are.
    """
    return tuple[int, bytes] if exchange == "runner" else tuple[int, Any]


def place_of_key(key: int) -> tuple[int, int]:
    """A tally's key -> the shuffle and the key in it."""
    return key >> _KEY_BITS, key & ((1 << _KEY_BITS) - 1)


def _tally(shuffle: int, keyed: Iterable[tuple[int, bytes]]) -> np.ndarray:
    return tally((shuffle << _KEY_BITS | key, value) for key, value in keyed)
