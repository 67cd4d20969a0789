"""What a run counts for those who watch it, as Beam metrics in the namespace "textmill".

Runners show them while the job runs (Dataflow in its console, Flink under its accumulators). A
runner that repeats a bundle may count it twice; stats.json takes its numbers from the data, and a
test holds the two equal where nothing is repeated.
"""

from collections.abc import Mapping

from apache_beam.metrics.metric import Metrics

from schemas.statistics import ShardStatistics, Statistics

NAMESPACE = "textmill"


def count_read(statistics: Statistics) -> None:
    """What became of the documents of a block."""
    _count("documents_read", statistics.documents_read)
    _count("source_bytes", statistics.source_bytes)
    _count("documents_guarded", statistics.documents_guarded)
    _count_dropped(statistics.dropped)


def count_shard(
    statistics: ShardStatistics, *, key_bytes: int, file_bytes: int, seconds: float
) -> None:
    """What became of the documents of a shard, and how large and how slow it was.

    Args:
      statistics: of the shard.
      key_bytes: that the shuffle brought for it: the largest shows a hot key.
      file_bytes: of its files.
      seconds: to write it: the longest shows a slow worker.
    """
    _count("documents_kept", statistics.documents)
    _count_dropped(statistics.dropped)
    _count("tokens", statistics.tokens)
    _count("rows", statistics.rows)
    _count("shard_bytes", file_bytes)
    Metrics.distribution(NAMESPACE, "key_bytes").update(key_bytes)
    Metrics.distribution(NAMESPACE, "shard_milliseconds").update(round(seconds * 1000))


def count_kept_shard() -> None:
    """A shard that an earlier run had finished."""
    _count("shards_kept", 1)


def _count_dropped(dropped: Mapping[str, int]) -> None:
    for reason, number in dropped.items():
        _count(f"documents_dropped_{reason}", number)


def _count(name: str, number: int) -> None:
    if number:
        Metrics.counter(NAMESPACE, name).inc(number)
