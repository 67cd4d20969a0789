"""Sends batches between workers by key, and proves that the runner lost none.

Batches travel through the runner, or are written to scratch files, and only pointers travel.
Through a runner, batches of several blocks are joined: if each document of a block had another key,
each would be a separate element.

Each bundle reports the blocks that it read and, for each key, how many values it sent and the sum
of their hashes. The worker that reads a key reports the same for the values it received. At the end
each block of the plan must be reported once, and received values must equal sent ones: a lost
report leaves a block unreported, a lost value makes a difference.

    A tally is uint64 [keys, 3], keys ascending: key, number of values, sum of their xxh3_64 modulo
    2**64. Two bundles that send b"x" to key 7, and one of them b"y" to key 9:
        [[7, 2, 2 * xxh3_64(b"x") % 2**64], [9, 1, xxh3_64(b"y")]]
"""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import xxhash

from textmill.pipelines.rows.example_batch import to_buffer
from textmill.pipelines.writers.scratch import Pointer, load, write_scratch
from textmill.schemas.errors import DataError
from textmill.schemas.files.store import disk_errors

BUFFER_BYTES = 256 << 20
# Measured, of an element of a runner's shuffle: CPU to pack it, and through GroupByKey; bytes
# beside its documents.
ELEMENT_SECONDS, ELEMENT_BYTES = 37e-6, 500
VALUE_BYTES = 1 << 20  # approximate limit: runners sort values in a buffer of some MB
AGAIN = "nothing was published; run the same command again"
NO_VALUES = np.zeros((0, 3), np.uint64)
_KEY_BITS = 40  # of a tally's key; the upper bits number the shuffle


def count_and_hash(values: Iterable[tuple[int, bytes | pa.Buffer]]) -> np.ndarray:
    """The tally of keys and values."""
    rows = [(key, 1, xxhash.xxh3_64_intdigest(value)) for key, value in values]
    return add_tallies([np.array(rows, np.uint64).reshape(-1, 3)])


def add_tallies(tallies: Iterable[np.ndarray]) -> np.ndarray:
    """Adds up tallies, key by key."""
    rows = np.concatenate([NO_VALUES, *tallies])
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    keys, starts = np.unique(rows[:, 0], return_index=True)
    total = np.add.reduceat(rows, starts) if len(rows) else rows
    total[:, 0] = keys
    return total


class ShuffleWriter:
    """Batches of a bundle, collected by key before they are sent.

    Attributes:
      bytes: approximate bytes of the collected batches.
      sent: the tally of sent values.
    """

    def __init__(self, shuffle_by: str, scratch: str, shuffle: int = 0):
        """Starts empty; `shuffle_by` is files or runner, `shuffle` the number of the shuffle."""
        self.bytes, self.sent = 0, NO_VALUES
        self._shuffle_by, self._scratch, self._shuffle = shuffle_by, scratch, shuffle
        self._batches: dict[int, list[pa.RecordBatch]] = {}

    @property
    def is_full(self) -> bool:
        """Whether the batches should be sent."""
        return self._shuffle_by == "files" or self.bytes > BUFFER_BYTES

    def add(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        """Adds batches by key."""
        for key, batch in batches:
            self._batches.setdefault(key, []).append(batch)
            self.bytes += batch.nbytes

    def take(self) -> list[tuple[int, pa.RecordBatch]]:
        """Empties the writer; returns one joined batch per key."""
        joined = [
            (key, batches[0] if len(batches) == 1 else pa.concat_batches(batches))
            for key, batches in self._batches.items()
        ]
        self.bytes, self._batches = 0, {}
        return joined

    def send(self) -> list[tuple[int, bytes | Pointer]]:
        """Empties the writer; returns values for the shuffle, several per key if it is large."""
        taken = self.take()
        if self._shuffle_by == "runner":
            taken = [(key, part) for key, batch in taken for part in _cut(batch)]
        keys = [key for key, _ in taken]
        streams = [to_buffer(batch) for _, batch in taken]
        self.sent = add_tallies(
            [self.sent, _count_in_shuffle(self._shuffle, zip(keys, streams, strict=True))]
        )
        if self._shuffle_by == "runner" or not streams:
            return [(key, stream.to_pybytes()) for key, stream in zip(keys, streams, strict=True)]
        with disk_errors(os.path.join(self._scratch, "example batches")):
            return list(zip(keys, write_scratch(self._scratch, streams), strict=True))


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cuts a batch into parts of about VALUE_BYTES, each with at least one row."""
    rows = max(1, len(batch) * VALUE_BYTES // max(batch.nbytes, 1))
    return (batch.slice(start, rows) for start in range(0, len(batch), rows))


def receive(
    key: int, values: Iterable[bytes | Pointer], shuffle: int = 0
) -> tuple[list[bytes], np.ndarray]:
    """The streams received for a key, and their tally; empty values only create the key."""
    streams = [load(value) for value in values if value]
    return streams, _count_in_shuffle(shuffle, ((key, stream) for stream in streams))


def keyed_type(shuffle_by: str) -> Any:
    """The type of (key, value), by which Beam chooses coders; flattened inputs must have the same.

    Bytes are sent unchanged.
    """
    return tuple[int, bytes] if shuffle_by == "runner" else tuple[int, Any]


def place_of_key(key: int) -> tuple[int, int]:
    """Splits the key of a tally into the shuffle and the key in it."""
    return key >> _KEY_BITS, key & ((1 << _KEY_BITS) - 1)


def _count_in_shuffle(shuffle: int, keyed: Iterable[tuple[int, bytes | pa.Buffer]]) -> np.ndarray:
    return count_and_hash((shuffle << _KEY_BITS | key, value) for key, value in keyed)


@dataclass(frozen=True)
class DeliveryReport:
    """The blocks that bundles read, and the tallies of the values they sent and received."""

    blocks: tuple[int, ...] = ()
    sent: np.ndarray = field(default_factory=lambda: NO_VALUES, compare=False)
    received: np.ndarray = field(default_factory=lambda: NO_VALUES, compare=False)

    @staticmethod
    def sum(parts: "Iterable[DeliveryReport]") -> "DeliveryReport":
        """Adds up the reports of several bundles."""
        parts = list(parts)
        return DeliveryReport(
            tuple(block for part in parts for block in part.blocks),
            add_tallies(part.sent for part in parts),
            add_tallies(part.received for part in parts),
        )


class NamedBlock(Protocol):
    """A block that errors can name."""

    @property
    def place(self) -> str:
        """The name of the block in errors."""
        ...


def check_deliveries(
    found: DeliveryReport,
    plan: Callable[[], Sequence[NamedBlock]],
    blocks: int,
    name: Callable[[int], str],
) -> None:
    """Checks that nothing was lost or delivered twice.

    Args:
      found: the sum of all reports.
      plan: returns the blocks, for the error.
      blocks: number of blocks.
      name: describes a key in errors.

    Raises:
      DataError: a block was not reported or twice, or received values differ from sent ones.
    """
    reported = Counter(found.blocks)
    missing = [block for block in range(blocks) if block not in reported]
    twice = sorted(block for block, times in reported.items() if times > 1)
    for odd, what in ((missing, "lost"), (twice, "delivered twice")):
        if odd:
            raise DataError(
                f"the runner {what} its workers' report on {plan()[odd[0]].place}"
                f"{format_remaining(odd, 'blocks')}: {AGAIN}"
            )
    sent, received = (
        {key: (values, hashes) for key, values, hashes in side.tolist()}
        for side in (found.sent, found.received)
    )
    odd = sorted(key for key in {*sent, *received} if sent.get(key) != received.get(key))
    if odd:
        (there, _), (here, _) = sent.get(odd[0], (0, 0)), received.get(odd[0], (0, 0))
        what = "different bytes" if here == there else f"{here:,} of {there:,} parts"
        raise DataError(
            f"the runner lost parts of {name(odd[0])}{format_remaining(odd, 'keys')}: {what} "
            f"arrived; {AGAIN}"
        )


def format_remaining(items: Sequence, kind: str) -> str:
    """Text after the first of some items: ` and of 3 more blocks`; "" if there is only one."""
    return f" and of {len(items) - 1:,} more {kind}" if len(items) > 1 else ""


def count_elements(data_bytes: float, documents: float, blocks: int, keys: int) -> float:
    """Elements of a runner's shuffle, on average: one for each key of what is sent together.

    Args:
      data_bytes: of all documents in the shuffle.
      documents: their number, spread over the keys by their hashes.
      blocks: of the input; a worker sends once or more often for each.
      keys: such as shards.
    """
    sent = max(1.0, min(data_bytes / BUFFER_BYTES, blocks))
    return sent * routes_of(documents / sent, keys)


def routes_of(documents: float, keys: int) -> float:
    """How many of S keys D documents go to, on average: S (1 - (1 - 1/S)^D)."""
    return keys * -math.expm1(documents * math.log1p(-1 / keys)) if keys > 1 else 1.0
