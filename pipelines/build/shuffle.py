"""What gathers example batches by route before they go into the shuffle. Pure."""

from collections.abc import Iterable

import pyarrow as pa

from pipelines.rows.example_batch import SubBlock

# Batches of several blocks travel together through a runner's shuffle: with as many shards as a
# block has documents, each would be an element of its own. (Into scratch files they go at once.)
HELD_BYTES = 256 << 20


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
