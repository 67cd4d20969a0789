"""verify, the whole command, beside sha256sum over the same files.

    python -m tests.benchmarks.bench_verify --rows=2000000

verify hashes every file too, and reads all rows: hashes of records, codec, segments, masks, counts.
The set is one shard of real rows under many names (linked_sets.py), read from memory by both.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.commands import shard_bytes
from tests.benchmarks.linked_sets import linked_set
from tests.benchmarks.measure import (
    Options,
    Record,
    Side,
    alternated,
    entry,
    run_command,
    seconds_of,
    versions,
)


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    rows: int = 2_000_000
    """Of the set: 1.3 GB."""
    megabytes: float = 44
    """Of text that its one real shard is made of."""


def measure(options: Bench) -> Iterator[Record]:
    """One row."""
    with tempfile.TemporaryDirectory() as folder:
        _, directory, _ = linked_set(Path(folder), options.megabytes, options.rows)
        size, files = shard_bytes(directory), sorted(directory.glob("*.*"))
        found = alternated(
            {
                "verify": lambda: seconds_of("pipelines.verify", directory),
                "sha256sum": lambda: run_command(["sha256sum", *files])[0],
            },
            options.runs,
        )
    yield Record(
        "verify beside sha256sum",
        Side.time("verify", found["verify"], bytes=size, workers="1 process, threads"),
        Side.time("sha256sum", found["sha256sum"], bytes=size),
        reach=3,
        aim=1.5,
        at_most=True,
        versions=versions("numpy"),
    )


if __name__ == "__main__":
    entry(measure, Bench)
