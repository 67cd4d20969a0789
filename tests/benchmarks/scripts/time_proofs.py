"""build_shards with a clock in each of its proofs: prints its seconds and theirs as JSON.

    python -m tests.benchmarks.scripts.time_proofs --input=... --output=...

Replaces functions in this process only, so the run must use threads.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import xxhash

from tests.benchmarks.clock import Seconds, timed
from textmill.pipelines import build_shards
from textmill.pipelines.readers import stored
from textmill.pipelines.runners import shuffle
from textmill.pipelines.writers import shard_files
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.files import store

_spent: dict[str, list[Seconds]] = {}


def _clocked(proof: str, function: Callable) -> Callable:
    spent = _spent.setdefault(proof, [])

    def call(*arguments: Any, **named: Any) -> Any:
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            spent.append(Seconds(time.perf_counter() - wall, time.thread_time() - cpu))

    return call


class _ClockedHash:
    """A hash of which creating and updating are timed."""

    def __init__(self, proof: str, make: Callable, *content: bytes, **named: int) -> None:
        self._hash = _clocked(proof, make)(*content, **named)
        self.update = _clocked(proof, self._hash.update)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hash, name)


def main(argv: list[str]) -> None:
    """Runs build_shards with `argv`."""
    clocked = {"xxh3_128": partial(_ClockedHash, "inputs", xxhash.xxh3_128)}
    stored.xxhash = SimpleNamespace(**vars(xxhash) | clocked)  # pyright: ignore
    shard_files.sha256 = partial(_ClockedHash, "sums", sha256)  # pyright: ignore
    shuffle.count_and_hash = _clocked("deliveries", shuffle.count_and_hash)
    store.sync = _clocked("syncs", store.sync)
    whole, _ = timed(lambda: build_shards.main(argv))
    columns = {proof: zip(*spent, strict=True) for proof, spent in _spent.items()}
    print(json.dumps({"whole": whole, **{p: [*map(sum, both)] for p, both in columns.items()}}))


if __name__ == "__main__":
    run_entry(main)
