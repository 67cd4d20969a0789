"""What gathers example batches by route before they go into the shuffle. Pure."""

from collections.abc import Iterable

import pyarrow as pa

from pipelines.rows.example_batch import ExampleBatch

# Batches of several blocks travel together through a runner's shuffle: with as many shards as a
# block has documents, each would be an element of its own. (Into scratch files they go at once.)
BUFFER_BYTES = 256 << 20


class RouteBuffer:
    """Example batches that wait for others of the same route.

    Attributes:
      bytes: their size, about.
    """

    def __init__(self) -> None:
        """Starts with no batches and a size of 0."""
        self.bytes = 0
        self._batches: dict[int, list[pa.RecordBatch]] = {}

    def add(self, batches: Iterable[tuple[int, ExampleBatch]]) -> None:
        """Puts batches to those of their routes."""
        for route, example_batch in batches:
            self._batches.setdefault(route, []).append(example_batch.batch)
            self.bytes += example_batch.batch.nbytes

    def take(self) -> list[tuple[int, ExampleBatch]]:
        """Empties the buffer: one example batch a route, all of the route's joined."""
        joined = [
            (route, ExampleBatch(batches[0] if len(batches) == 1 else pa.concat_batches(batches)))
            for route, batches in self._batches.items()
        ]
        self.bytes, self._batches = 0, {}
        return joined
