"""Streams one epoch of a dataset, or a part of it, and prints what it took as JSON.

    python stream_rows.py shard_set|mds|litdata PLACE CACHE GIGABYTES ORDER START STOP CHECK

Runs where only its own library is installed. mds and litdata read without workers: in one process,
as ours do. Only ours counts bytes, and checks rows if CHECK is "check".
"""

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.benchmarks.clock import Seconds

BATCH = 256
Batches = Iterator[Any]
received = 0  # bytes of all threads, those of repeated requests included


class Peaks(threading.Thread):
    """The most bytes that are in a folder, and megabytes that no file backs, twice a second."""

    def __init__(self, folder: str):
        super().__init__(daemon=True)
        self.folder, self.disk, self.memory = folder, 0, 0.0
        self.start()

    def run(self) -> None:
        """Until the process ends."""
        pause = threading.Event()
        while not pause.wait(0.5):  # each look asks for the status of every piece
            self.look()

    def look(self) -> None:
        """Once."""
        self.disk = max(self.disk, _bytes_in(self.folder))
        with open("/proc/self/status") as status:
            found = re.search(r"RssAnon:\s+(\d+) kB", status.read())
        self.memory = max(self.memory, int(found[1]) / 1000 if found else 0)


def _bytes_in(folder: str) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except FileNotFoundError:  # removed meanwhile
                continue
    return total


class Check:
    """How often each row came, and the hash of all batches in their order."""

    def __init__(self) -> None:
        # Imported here: the baselines need not have it.
        from xxhash import xxh3_128

        self._hash = xxh3_128()
        self._times = np.zeros(0, np.uint8)

    def add(self, batch: dict[str, np.ndarray]) -> None:
        """Adds a batch of `ShardSet`."""
        rows = batch["row_index"]
        missing = int(rows.max()) + 1 - len(self._times)
        if missing > 0:
            self._times = np.append(self._times, np.zeros(missing, np.uint8))
        np.add.at(self._times, rows, 1)
        for name in sorted(batch):
            self._hash.update(np.ascontiguousarray(batch[name]).data)

    def result(self) -> dict[str, Any]:
        """Rows that came once and more often, and the hash."""
        times = np.bincount(self._times, minlength=2)
        return {"once": int(times[1]), "more": int(times[2:].sum()), "hash": self._hash.hexdigest()}


def main(
    way: str, place: str, cache: str, gigabytes: str, order: str, start: str, stop: str, check: str
) -> None:
    """Reads."""
    peaks = Peaks(cache)
    imports[way]()
    checked = Check() if check else None
    began = Seconds.now()
    batches = WAYS[way](place, cache, float(gigabytes), order, int(start), int(stop))
    opened = Seconds.now()
    first, first_bytes = opened, 0
    for number in range(int(stop) - int(start)):
        batch = next(batches)
        if not number:
            first, first_bytes = Seconds.now(), received
        if checked:
            checked.add(batch)
    end = Seconds.now()
    peaks.look()
    found = {
        "first": first.since(began),
        "first_bytes": first_bytes,
        "reading": end.since(opened),
        "bytes": received,
        "disk": peaks.disk / 1e6,
        "memory": peaks.memory,
        "check": checked.result() if checked else {},
    }
    print(json.dumps(found))


def _import_ours() -> None:
    import fsspec  # noqa: F401
    import gcsfs  # noqa: F401
    import s3fs  # noqa: F401

    from textmill.schemas.files import store

    read, lock = store.read, threading.Lock()

    def counted(*given: Any, **named: Any) -> bytes:
        global received
        content = read(*given, **named)
        with lock:
            received += len(content)
        return content

    store.read = counted


def shard_set(
    place: str, cache: str, gigabytes: float, order: str, start: int, stop: int
) -> Batches:
    """Ours."""
    from textmill.trainers.reader import ShardSet

    shards = ShardSet(
        place, cache_dir=cache, cache_gigabytes=gigabytes, order=order, verify="://" in place
    )
    where = {"start_step": start, "stop_step": stop}
    return iter(shards.batches("train", batch_size=BATCH, seed=0, **where))


def mds(place: str, cache: str, gigabytes: float, order: str, start: int, stop: int) -> Batches:
    """PyTorch's DataLoader over mosaicml-streaming, with its own shuffling in blocks."""
    from streaming import StreamingDataset  # pyright: ignore[reportMissingImports]
    from torch.utils.data import DataLoader  # pyright: ignore[reportMissingImports]

    rows = StreamingDataset(
        remote=place,
        local=cache,
        shuffle=True,
        batch_size=BATCH,
        cache_limit=int(gigabytes * 1e9),
    )
    return iter(DataLoader(rows, batch_size=BATCH))


def litdata(place: str, cache: str, gigabytes: float, order: str, start: int, stop: int) -> Batches:
    """litdata's own loader."""
    from litdata import (  # pyright: ignore[reportMissingImports]
        StreamingDataLoader,
        StreamingDataset,
    )
    from litdata.streaming import downloader  # pyright: ignore[reportMissingImports]

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # its boto3 client needs no such option
    rows = StreamingDataset(
        place,
        cache_dir=cache,
        shuffle=True,
        drop_last=True,
        max_cache_size=int(gigabytes * 1e9),
        storage_options={"endpoint_url": os.environ["AWS_ENDPOINT_URL"]},
    )
    return iter(StreamingDataLoader(rows, batch_size=BATCH))


def _import_mds() -> None:
    import streaming  # noqa: F401  # pyright: ignore[reportMissingImports]
    import torch.utils.data  # noqa: F401  # pyright: ignore[reportMissingImports]


def _import_litdata() -> None:
    import litdata  # noqa: F401  # pyright: ignore[reportMissingImports]


imports: dict[str, Callable[[], None]] = {
    "shard_set": _import_ours,
    "mds": _import_mds,
    "litdata": _import_litdata,
}
WAYS: dict[str, Callable[..., Batches]] = {way.__name__: way for way in (shard_set, mds, litdata)}

if __name__ == "__main__":
    main(*sys.argv[1:])
