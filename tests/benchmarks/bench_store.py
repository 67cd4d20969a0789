"""A set on gs:// and s3://, beside the same in a directory: time to the first batch, first epoch.

    python -m tests.benchmarks.bench_store --rows=1000000

The stores are the server programs of the tests, on this machine: they share its processors with the
reader, and give what a Python program gives, which the row of the plain download tells. The set is
one shard of real rows, linked as often as makes so many. Each time every file is held against its
sha256: a directory's before the first batch, a store's as it is fetched, a cache's as it is read.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.clock import Seconds, timed
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
from tests.tools.store_servers import Store, gs_server, s3_server

READ = """
import json, sys, time
import fsspec, gcsfs, s3fs  # imports are not timed
from textmill.trainers.reader import ShardSet
began = (time.perf_counter(), time.process_time())
shards = ShardSet(sys.argv[1], cache_dir=sys.argv[2])
steps = shards.rows("train") // 256
batches = shards.batches("train", batch_size=256, seed=0, stop_step=steps)
next(batches)
first = (time.perf_counter() - began[0], time.process_time() - began[1])
for batch in batches:
    pass
print(json.dumps([*first, time.perf_counter() - began[0], time.process_time() - began[1]]))
"""


@dataclass(frozen=True)
class Bench(Options):
    """Sizes."""

    rows: int = 1_000_000
    """Rows of the dataset."""
    megabytes: float = 10
    """Size of the text of its one real shard."""


def measure(options: Bench) -> Iterator[Record]:
    """Three rows for each kind of store."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as servers:
        folder = Path(name)
        _, many, rows = linked_set(folder, options.megabytes, options.rows)
        size = sum(file.stat().st_size for file in many.glob("train-*"))
        for kind, start in (("gs", gs_server), ("s3", s3_server)):
            (folder / kind).mkdir()
            server = servers.enter_context(start(folder / kind))
            for variable, value in server.environment.items():  # past the proxy
                direct = value.replace(f":{server.proxy.port}", f":{server.port}")
                os.environ[variable] = direct
            store = Store(server)
            url = store.upload(many, "set")
            yield from _compared(options, kind, str(many), url, folder / "cache", rows, size, store)


def _compared(
    options: Bench,
    kind: str,
    directory: str,
    url: str,
    cache: Path,
    rows: int,
    size: int,
    store: Store,
) -> Iterator[Record]:
    def read(place: str, cold: bool) -> list[float]:
        if cold:
            shutil.rmtree(cache, ignore_errors=True)
        return json.loads(run_command([sys.executable, "-c", READ, place, cache])[1])

    shard = next(name for name in store.names() if "/train-" in name)
    length = len(store.get(shard))
    runs = alternated(
        {
            "cold": lambda: read(url, cold=True),
            "warm": lambda: read(url, cold=False),
            "directory": lambda: read(directory, cold=False),
        },
        options.runs,
    )
    plain = Runs(timed(lambda: store.get(shard))[0] for _ in range(options.runs))
    used = versions("numpy", "fsspec", {"gs": "gcsfs", "s3": "s3fs"}[kind])
    of = f"{rows:,} rows ({size / 1e6:,.0f} MB) on {kind}://"
    for first, name in ((0, "time to the first batch"), (2, "the whole first epoch")):
        sides = {
            side: Side.time(side, Runs(Seconds(*run[first : first + 2]) for run in runs[side]))
            for side in ("cold", "warm", "directory")
        }
        for side in ("cold", "warm"):
            yield Record(
                f"{name}, {of}, {side} cache, beside a directory",
                sides[side],
                sides["directory"],
                at_most=True,
                versions=used,
            )
    yield Record(
        f"{of}: what the server gives to a plain download",
        Side.rate("one connection", plain, length / 1e6, "MB"),
        versions=used,
    )


if __name__ == "__main__":
    entry(measure, Bench)
