"""Time to the first batch of a set of 10 million rows, and the memory that it takes.

    python -m tests.benchmarks.bench_first_batch --rows=10000000

The large set is one shard of real rows, hard-linked under as many shard names as make 10 million
rows, with metadata files that list them all: readers see 6 GB, the disk holds 50 MB. Opening it
compares the sizes of all files and the sha256 of the metadata files (`verify=False`: otherwise the
bench would only measure the hashing of 6 GB). Imports of Python and numpy are not timed.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.clock import Seconds
from tests.benchmarks.linked_sets import linked_set
from tests.benchmarks.measure import (
    Options,
    Record,
    Runs,
    Side,
    alternated,
    entry,
    run_command,
    versions,
)

READ = """
import json, re, sys, time
from textmill.trainers.reader import ShardSet

def held():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1000

before, began = held(), (time.perf_counter(), time.process_time())
next(ShardSet(sys.argv[1], verify=False).batches("train", batch_size=256, seed=0))
print(json.dumps([time.perf_counter() - began[0], time.process_time() - began[1], held() - before]))
"""


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    rows: int = 10_000_000
    """Of the large set."""
    megabytes: float = 44
    """Of text that its one real shard is made of."""


def measure(options: Bench) -> Iterator[Record]:
    """Two rows."""
    with tempfile.TemporaryDirectory() as folder:
        one, many, rows = linked_set(Path(folder), options.megabytes, options.rows)

        def read(directory: Path) -> list[float]:
            return json.loads(run_command([sys.executable, "-c", READ, directory])[1])

        found = alternated({"many": lambda: read(many), "one": lambda: read(one)}, options.runs)
    many_seconds: Runs[Seconds] = Runs(Seconds(*run[:2]) for run in found["many"])
    many_memory, one_memory = (Runs(run[2] for run in found[name]) for name in ("many", "one"))
    used, name = versions("numpy"), f"first batch of {rows:,} rows"
    ours = Side.time("ShardSet", many_seconds)
    yield Record(f"{name}, s", ours, reach=1, at_most=True, versions=used)
    yield Record(
        f"memory at the {name}, beside one shard's",
        Side.values(f"{rows:,} rows", "MB", many_memory),
        Side.values("one shard", "MB", one_memory),
        at_most=True,
        versions=used,
    )


if __name__ == "__main__":
    entry(measure, Bench)
