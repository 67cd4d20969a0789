"""Proof that a runner lost nothing on the way, from what its workers say that they sent and got.

Each bundle gives one report: which blocks it read, and, for each key that it sent values to, how
many and the sum of their hashes. Who reads a key says the same of what arrived. At the end every
block of the plan must have been reported once, and what arrived must be what was sent: a report
that is lost leaves blocks out, a value that is lost leaves a difference. No I/O.

    A tally is uint64 [keys, 3], keys ascending: the key, its values, the sum of their xxh3_64
    modulo 2**64. Two bundles that send b"x" to key 7, and one of them b"y" to key 9:
        [[7, 2, 2 * xxh3_64(b"x") % 2**64], [9, 1, xxh3_64(b"y")]]
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from schemas.errors import DataError

if TYPE_CHECKING:
    from pipelines.readers.sources import Block

NO_VALUES = np.zeros((0, 3), np.uint64)
AGAIN = "nothing was published; run the same command again"
LOST_END = (
    f"the runner ended the job before its last step had run (of a template it runs none): {AGAIN}"
)


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


@dataclass(frozen=True)
class Deliveries:
    """What bundles say of blocks and values; adds up.

    Attributes:
      blocks: numbers of the blocks that were read.
      sent: the tally of what was sent.
      received: the tally of what arrived.
    """

    blocks: tuple[int, ...] = ()
    sent: np.ndarray = field(default_factory=lambda: NO_VALUES, compare=False)
    received: np.ndarray = field(default_factory=lambda: NO_VALUES, compare=False)

    @staticmethod
    def sum(parts: "Iterable[Deliveries]") -> "Deliveries":
        """What several bundles said, as one."""
        parts = list(parts)
        return Deliveries(
            tuple(block for part in parts for block in part.blocks),
            add_tallies(part.sent for part in parts),
            add_tallies(part.received for part in parts),
        )


def check_deliveries(
    found: Deliveries,
    plan: "Callable[[], Sequence[Block]]",
    blocks: int,
    name: Callable[[int], str],
) -> None:
    """Ends a run of which something was lost on the way.

    Args:
      found: what all bundles said.
      plan: gives the blocks, for the error.
      blocks: how many there are.
      name: what a key stands for, in words.

    Raises:
      DataError: a block was not reported, or twice, or a key's values are not those that were sent.
    """
    reported = Counter(found.blocks)
    missing = [block for block in range(blocks) if block not in reported]
    if missing:
        raise DataError(
            f"the runner lost what its workers said of {plan()[missing[0]].place}"
            f"{and_more(missing, 'blocks')}: {AGAIN}"
        )
    twice = [block for block, times in reported.items() if times > 1]
    if twice:
        raise DataError(
            f"the runner delivered twice what its workers said of {plan()[min(twice)].place}"
            f"{and_more(twice, 'blocks')}: {AGAIN}"
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
