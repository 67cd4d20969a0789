"""The reader for your own training loop: `from trainers.reader import ShardSet`."""

from trainers.data.batches import Batch, BatchReader, SplitRows
from trainers.data.mixture import Mixture, open_shards
from trainers.data.shard_set import ShardSet

__all__ = ["Batch", "BatchReader", "Mixture", "ShardSet", "SplitRows", "open_shards"]
