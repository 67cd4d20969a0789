"""A dataset larger than the cache, streamed from a store, beside the same in a directory.

    python -m tests.benchmarks.bench_streaming
    python -m tests.benchmarks.bench_streaming --megabytes=10000 --faults --kinds s3 gs --peers

The stores are the server programs of the tests, on this machine: they share its processors with
the reader, and give what a Python program gives; that of s3:// reads all of a file for a range of
it, so files are small. The dataset is one shard of real rows, linked as often as makes so many
megabytes.

Rates are of the first `part_rows` rows, without the proxy, from the first request for rows on; by
processor time, they are those of the reader's process alone. mosaicml-streaming and litdata read
`peer_rows`, from the same server with the same limit, of a copy that their writers made.

An epoch is read once, through the proxy, which counts the bytes that it sends, repeated ones
included: with `faults`, it answers one request of 20 with 503, cuts one of 50, damages one of 100,
and slows one of 31. Batches and their order must be those of the directory. In the same way, two
processes share a cache, and a reader resumes in the middle, where bytes are those that have arrived
by the first batch.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tests.benchmarks.baselines import baseline_versions, with_baselines
from tests.benchmarks.clock import Seconds
from tests.benchmarks.linked_sets import linked_set
from tests.benchmarks.measure import (
    CannotRun,
    Options,
    Record,
    Runs,
    Side,
    alternated,
    entry,
    reported,
    seconds_of,
    versions,
)
from tests.benchmarks.scripts.stream_rows import BATCH
from tests.tools.fault_proxy import Rule
from tests.tools.store_servers import Server, Store, gs_server, s3_server
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.pieces import piece_ends

SCRIPTS = "tests.benchmarks.scripts"
SERVERS = {"s3": s3_server, "gs": gs_server}
CLIENTS = {"s3": "s3fs", "gs": "gcsfs"}
PEERS = {"mds": "mosaicml-streaming", "litdata": "litdata"}
ROW_BYTES = 590  # about, of a row of 128 tokens


@dataclass(frozen=True)
class Bench(Options):
    """Sizes."""

    megabytes: float = 700
    """Of the dataset."""
    cache_gigabytes: float = 0.5
    """Limit of the cache; three windows, 0.4 GB, are the least."""
    text: float = 5
    """Megabytes of text that its one real shard is made of."""
    kinds: tuple[str, ...] = ("s3",)
    """Stores to stream from: s3, gs."""
    part_rows: int = 1_000_000
    """That rates are of, at most all."""
    peers: tuple[str, ...] = tuple(PEERS)
    """Others to read beside, from s3://."""
    peer_rows: int = 100_000
    """That each of them and ours read, at most all."""
    faults: bool = False
    """Whether the proxy does harm to some requests."""


@dataclass(frozen=True)
class Read:
    """What stream_rows.py prints."""

    first: Seconds
    first_bytes: int
    reading: Seconds
    bytes: int
    disk: float
    memory: float
    check: dict[str, Any]


@dataclass(frozen=True)
class Streamed:
    """A dataset in a store, and the same in a directory.

    Attributes:
      options: of the bench.
      store: the bucket.
      url: of the dataset in it.
      many: the directory.
      one: the dataset whose shard is linked in it.
      cache: the folder of the cache.
      rows: of the dataset.
    """

    options: Bench
    store: Store
    url: str
    many: Path
    one: Path
    cache: Path
    rows: int

    @cached_property
    def megabytes(self) -> float:
        """Of its rows, with the framing of their records but without the indices of the files."""
        info = read_dataset(str(self.many))
        stride, shards = info.schema.codec().stride, info.manifest.shards("train", "array_record")
        return sum(piece_ends("array_record", stride, file.rows or 0)[-1] for file in shards) / 1e6

    @property
    def versions(self) -> dict[str, str]:
        """Of the packages that read it."""
        return versions("numpy", "fsspec", CLIENTS[self.store.scheme])

    def named(self, what: str) -> str:
        """The name of a record."""
        limit = self.options.cache_gigabytes * 1000
        of = f"{self.megabytes:,.0f} MB on {self.store.scheme}://"
        return f"{of} through {limit:,.0f} MB, {what}"

    def read(self, place: str, order: str, start: int, stop: int, *, check: str = "") -> Read:
        """Steps, in a process of its own."""
        given = (place, self.cache, str(self.options.cache_gigabytes), order, str(start), str(stop))
        values = reported(f"{SCRIPTS}.stream_rows", "shard_set", *given, check)
        for name in ("first", "reading"):
            values[name] = Seconds(*values[name])
        return Read(**values)

    def read_anew(self, *given: Any, **named: Any) -> Read:
        """As `read`, through an empty cache."""
        shutil.rmtree(self.cache, ignore_errors=True)
        return self.read(*given, **named)


def measure(options: Bench) -> Iterator[Record]:
    """Rates, peers, an epoch, a resumed reader and two readers, of each store."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one, many, rows = linked_set(folder, options.text, int(options.megabytes * 1e6 / ROW_BYTES))
        for kind in options.kinds:
            (folder / kind).mkdir()
            with SERVERS[kind](folder / kind) as server:
                store = Store(server)
                url = store.upload(many, "set")
                streamed = Streamed(options, store, url, many, one, folder / "cache", rows)
                _set_environment(server, direct=True)
                yield from _rates(streamed)
                if kind == "s3":
                    yield from _beside_peers(streamed)
                _set_environment(server, direct=False)
                yield from _resumed(streamed)
                faults = _harm(store) if options.faults else {}
                yield from _epoch(streamed, faults)
                yield from _two_processes(streamed)


def _set_environment(server: Server, *, direct: bool) -> None:
    for variable, value in server.environment.items():
        port = server.port if direct else server.proxy.port
        os.environ[variable] = value.replace(f":{server.proxy.port}", f":{port}")


def _harm(store: Store) -> dict[str, Rule]:
    of = ("GET", "set/train-")
    return {
        "answered with 503": store.proxy.answer(503, *of, times=None, every=20),
        "cut": store.proxy.cut_download(*of, after=200_000, times=None, every=50),
        "damaged": store.proxy.corrupt(*of, at=1000, times=None, every=100),
        "slow": store.proxy.slow(*of, chunk=100_000, seconds=0.05, every=31),
    }


def _rates(streamed: Streamed) -> Iterator[Record]:
    steps = min(streamed.rows, streamed.options.part_rows) // BATCH
    runs = alternated(
        {
            "streamed": partial(streamed.read_anew, streamed.url, "window", 0, steps),
            "window": partial(streamed.read_anew, str(streamed.many), "window", 0, steps),
            "full": partial(streamed.read_anew, str(streamed.many), "full", 0, steps),
        },
        streamed.options.runs,
    )
    ours = _rate("streamed", runs["streamed"], steps)
    for order in ("window", "full"):
        name = streamed.named(f"{steps * BATCH:,} rows, beside a directory with order={order}")
        beside = _rate(order, runs[order], steps)
        yield Record(name, ours, beside, versions=streamed.versions)


def _rate(name: str, runs: Runs[Read], steps: int) -> Side:
    seconds = Runs(run.reading for run in runs)
    seconds.reason = runs.reason
    return Side.rate(name, seconds, steps * BATCH, "rows")


def _resumed(streamed: Streamed) -> Iterator[Record]:
    middle = streamed.rows // BATCH // 2
    once = partial(streamed.read_anew, streamed.url, "window", middle, middle + 1)
    runs = alternated({"resumed": once}, streamed.options.runs)["resumed"]
    seconds, megabytes = (
        Runs(run.first for run in runs),
        Runs(run.first_bytes / 1e6 for run in runs),
    )
    seconds.reason = megabytes.reason = runs.reason
    for ours, of in (
        (Side.time("resumed", seconds), "s"),
        (Side.values("resumed", "MB", megabytes), "MB"),
    ):
        name = f"resumed in the middle, {of} until the first batch"
        yield Record(streamed.named(name), ours, at_most=True, versions=streamed.versions)


def _epoch(streamed: Streamed, faults: dict[str, Rule]) -> Iterator[Record]:
    steps, proxy = streamed.rows // BATCH, streamed.store.proxy
    before = proxy.sent
    read = streamed.read_anew(streamed.url, "window", 0, steps, check="check")
    sent = proxy.sent - before
    here = streamed.read(str(streamed.many), "window", 0, steps, check="check")
    if read.check != here.check:
        raise CannotRun(f"{streamed.url} gave {read.check}, its directory {here.check}")
    if (read.check["once"], read.check["more"]) != (steps * BATCH, 0):
        raise CannotRun(f"{streamed.url} gave not each row once, but {read.check}")
    harm = ", ".join(f"{rule.hits:,} {name}" for name, rule in faults.items())
    of = f"an epoch of {steps * BATCH:,} rows, each once, through the proxy"
    of += f" ({harm} of {proxy.count('GET', 'set/train-'):,} requests)" if harm else ""
    limit = streamed.options.cache_gigabytes * 1000
    for what, ours, beside, reach in (
        (
            "beside a directory",
            Side.rate("streamed", Runs([read.reading]), steps * BATCH, "rows"),
            Side.rate("window", Runs([here.reading]), steps * BATCH, "rows"),
            None,
        ),
        ("bytes sent", _value("streamed", sent / 1e6), _value("rows", streamed.megabytes), 1.02),
        ("peak of the cache", _value("streamed", read.disk), _value("limit", limit), 1),
        ("peak of memory", _value("streamed", read.memory), _value("window", here.memory), None),
    ):
        name = streamed.named(f"{of}, {what}")
        is_bound = ours.unit == "MB"
        yield Record(name, ours, beside, reach, at_most=is_bound, versions=streamed.versions)


def _value(name: str, megabytes: float) -> Side:
    return Side(name, "MB", (megabytes,))


def _two_processes(streamed: Streamed) -> Iterator[Record]:
    steps, proxy = min(streamed.rows, streamed.options.part_rows) // BATCH, streamed.store.proxy
    given, sent, checks = (streamed.url, "window", 0, steps), [], []
    for count in (2, 1):
        shutil.rmtree(streamed.cache, ignore_errors=True)
        before = proxy.sent
        with ThreadPoolExecutor(count) as threads:
            reads = [threads.submit(streamed.read, *given, check="check") for _ in range(count)]
            checks += [read.result().check for read in reads]
        sent.append((proxy.sent - before) / 1e6)
    if checks[0] != checks[1] or checks[1] != checks[2]:
        raise CannotRun(f"readers of {streamed.url} that share a cache differ: {checks}")
    ours = Side("sent to two", "MB", (sent[0],), workers="2 processes")
    name = streamed.named(f"two processes share a cache, {steps * BATCH:,} rows")
    yield Record(name, ours, _value("to one", sent[1]), at_most=True, versions=streamed.versions)


def _beside_peers(streamed: Streamed) -> Iterator[Record]:
    options = streamed.options
    steps, limit = min(streamed.rows, options.peer_rows) // BATCH, options.cache_gigabytes * 1000

    def ours() -> Seconds:
        return streamed.read_anew(streamed.url, "window", 0, steps).reading

    contestants = {"ours": ours} | {
        way: with_baselines(partial(_written_and_read, way, streamed, steps))
        for way in options.peers
    }
    runs = alternated(contestants, options.runs if options.peers else 0)
    for way in options.peers:
        side = Side.rate("ShardSet.batches", runs["ours"], steps * BATCH, "rows")
        beside = Side.rate(PEERS[way], runs[way], steps * BATCH, "rows")
        used = streamed.versions | baseline_versions(PEERS[way])
        name = f"{steps * BATCH:,} rows of s3:// through {limit:,.0f} MB, beside {PEERS[way]}"
        yield Record(name, side, beside, reach=1, versions=used)


def _written_and_read(way: str, streamed: Streamed, steps: int, python: str) -> Seconds:
    """Theirs, of as many copies of the files that its writer made as have so many rows."""
    one, cache, store = streamed.one, streamed.cache, streamed.store
    if not (one / way).exists():
        seconds_of(f"{SCRIPTS}.write_rows", way, one, python=python)
        _put_copies(way, one / way, store, steps * BATCH)
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir()
    limit = str(streamed.options.cache_gigabytes)
    given = (way, store.url(way), cache, limit, "", "0", str(steps), "")
    values = reported(f"{SCRIPTS}.stream_rows", *given, python=python)
    return Seconds(*values["reading"])


def _put_copies(way: str, directory: Path, store: Store, rows: int) -> None:
    index = json.loads((directory / "index.json").read_text())
    of, samples = {"mds": ("shards", "samples"), "litdata": ("chunks", "chunk_size")}[way]
    listed, put = [], 0
    while put < rows:
        for entry_of in index[of]:
            number = len(listed)
            if way == "mds":
                name, copy = entry_of["raw_data"]["basename"], f"shard.{number:05}.mds"
                listed.append({**entry_of, "raw_data": {**entry_of["raw_data"], "basename": copy}})
            else:
                name, copy = entry_of["filename"], f"chunk-0-{number}.bin"
                listed.append({**entry_of, "filename": copy})
            store.put(f"{way}/{copy}", (directory / name).read_bytes())
            put += entry_of[samples]
    store.put(f"{way}/index.json", json.dumps({**index, of: listed}).encode())


if __name__ == "__main__":
    entry(measure, Bench)
