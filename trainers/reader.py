"""The reader for your own training loop: `from textmill.trainers.reader import ShardSet`."""

from textmill.trainers.data.batches import Batch, BatchReader, SplitRows
from textmill.trainers.data.mixture import Mixture
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.data.shards_value import open_shards

__all__ = ["Batch", "BatchReader", "Mixture", "ShardSet", "SplitRows", "open_shards"]
