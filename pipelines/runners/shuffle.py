"""What workers send each other, by key, and the proof that a runner lost nothing on the way.

Batches travel through the runner, or lie in scratch files, of which only pointers travel. Batches
of several blocks travel together through a runner: with as many keys as a block has documents,
each would be an element of its own.

Each bundle gives one report: which blocks it read, and, for each key that it sent values to, how
many and the sum of their hashes. The worker that reads a key reports the same of what arrived. At
the end every block of the plan must have one report, and what arrived must equal what was sent: a
lost report leaves blocks out, a lost value leaves a difference.

    A tally is uint64 [keys, 3], keys ascending: the key, its values, the sum of their xxh3_64
    modulo 2**64. Two bundles that send b"x" to key 7, and one of them b"y" to key 9:
        [[7, 2, 2 * xxh3_64(b"x") % 2**64], [9, 1, xxh3_64(b"y")]]
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import xxhash

from pipelines.rows.example_batch import to_stream
from pipelines.storage.store import Pointer, disk_errors, load, write_scratch
from schemas.errors import DataError

BUFFER_BYTES = 256 << 20
VALUE_BYTES = 1 << 20  # about: runners sort values in a buffer of some MB
AGAIN = "nothing was published; run the same command again"
NO_VALUES = np.zeros((0, 3), np.uint64)
_KEY_BITS = 40  # of a tally's key; the upper bits number the shuffle


def tally(values: Iterable[tuple[int, bytes]]) -> np.ndarray:
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


class Outbox:
    """Batches of a bundle that wait for others of the same key.

    Attributes:
      bytes: of what waits, about.
      sent: the tally of what was sent.
    """

    def __init__(self, shuffle_by: str, scratch: str, shuffle: int = 0):
        """Starts empty; `shuffle_by` is files or runner, `shuffle` numbers it in the pipeline."""
        self.bytes, self.sent = 0, NO_VALUES
        self._shuffle_by, self._scratch, self._shuffle = shuffle_by, scratch, shuffle
        self._batches: dict[int, list[pa.RecordBatch]] = {}

    @property
    def is_full(self) -> bool:
        """Whether what waits should go."""
        return self._shuffle_by == "files" or self.bytes > BUFFER_BYTES

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
        """Empties it: what goes into the shuffle, one value a key, or several of a large one."""
        taken = self.take()
        if self._shuffle_by == "runner":
            taken = [(key, part) for key, batch in taken for part in _cut(batch)]
        keys = [key for key, _ in taken]
        values: list[bytes] | list[Pointer] = [to_stream(batch) for _, batch in taken]
        self.sent = add_tallies([self.sent, _tally(self._shuffle, zip(keys, values, strict=True))])
        if self._shuffle_by == "files" and values:
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
    """The streams that came for a key, and their tally; empty values only create the key."""
    streams = [load(value) for value in values if value]
    return streams, _tally(shuffle, ((key, stream) for stream in streams))


def keyed_type(shuffle_by: str) -> Any:
    """The type of (key, value), by which Beam picks coders; flattened inputs need the same.

    Bytes go through a shuffle as they are.
    """
    return tuple[int, bytes] if shuffle_by == "runner" else tuple[int, Any]


def place_of_key(key: int) -> tuple[int, int]:
    """A tally's key -> the shuffle and the key in it."""
    return key >> _KEY_BITS, key & ((1 << _KEY_BITS) - 1)


def _tally(shuffle: int, keyed: Iterable[tuple[int, bytes]]) -> np.ndarray:
    return tally((shuffle << _KEY_BITS | key, value) for key, value in keyed)


@dataclass(frozen=True)
class Deliveries:
    """What bundles report: numbers of the blocks that were read, tallies of values. Adds up."""

    blocks: tuple[int, ...] = ()
    sent: np.ndarray = field(default_factory=lambda: NO_VALUES, compare=False)
    received: np.ndarray = field(default_factory=lambda: NO_VALUES, compare=False)

    @staticmethod
    def sum(parts: "Iterable[Deliveries]") -> "Deliveries":
        """The reports of several bundles as one."""
        parts = list(parts)
        return Deliveries(
            tuple(block for part in parts for block in part.blocks),
            add_tallies(part.sent for part in parts),
            add_tallies(part.received for part in parts),
        )


class Placed(Protocol):
    """What errors can name."""

    @property
    def place(self) -> str:
        """Which one it is, in words."""
        ...


def check_deliveries(
    found: Deliveries,
    plan: Callable[[], Sequence[Placed]],
    blocks: int,
    name: Callable[[int], str],
) -> None:
    """Ends a run of which something was lost on the way.

    Args:
      found: the sum of all reports.
      plan: gives the blocks, for the error.
      blocks: how many there are.
      name: what a key stands for, in words.

    Raises:
      DataError: a block was not reported, or twice, or a key's values are not those that were sent.
    """
    reported = Counter(found.blocks)
    missing = [block for block in range(blocks) if block not in reported]
    twice = sorted(block for block, times in reported.items() if times > 1)
    for odd, what in ((missing, "lost"), (twice, "delivered twice")):
        if odd:
            raise DataError(
                f"the runner {what} what its workers said of {plan()[odd[0]].place}"
                f"{and_more(odd, 'blocks')}: {AGAIN}"
            )
    sent, received = (
        {key: (values, hashes) for key, values, hashes in side.tolist()}
        for side in (found.sent, found.received)
    )
    odd = sorted(key for key in {*sent, *received} if sent.get(key) != received.get(key))
    if odd:
        (there, _), (here, _) = sent.get(odd[0], (0, 0)), received.get(odd[0], (0, 0))
        what = "other bytes than were sent" if here == there else f"{here:,} of {there:,} parts"
        raise DataError(
            f"the runner lost parts of {name(odd[0])}{and_more(odd, 'keys')}: {what} arrived; "
            f"{AGAIN}"
        )


def and_more(items: Sequence, kind: str) -> str:
    """Goes on after the first of some items: ` and of 3 more blocks`."""
    return f" and of {len(items) - 1:,} more {kind}" if len(items) > 1 else ""
