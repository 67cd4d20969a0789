"""build_shards without some of its proofs, to measure what they cost.

    python -m tests.benchmarks.scripts.build_without deliveries,sums --input=... --output=...

Replaces functions in this process only, so the run must use threads.
"""

import uuid
from hashlib import sha256
from types import SimpleNamespace

from pipelines import build_shards
from pipelines.readers import stored
from pipelines.runners import shuffle
from pipelines.storage import store
from pipelines.writers import shard_files
from schemas.commands.entry import run_entry


class _NoHash:
    """A hash that reads nothing; shards need names that differ."""

    def update(self, data: object) -> None:
        pass

    def hexdigest(self) -> str:
        return uuid.uuid4().hex * 2


def _no_deliveries() -> None:
    shuffle.tally = lambda values: shuffle.NO_VALUES


def _no_sums() -> None:
    # Metadata files, whose content is given at once, keep their checksums: readers check these.
    no_sums = lambda *content: sha256(*content) if content else _NoHash()  # noqa: E731
    shard_files.sha256 = no_sums  # pyright: ignore[reportAttributeAccessIssue]


def _no_inputs() -> None:
    nothing = SimpleNamespace(xxh3_128=_NoHash, xxh3_128_hexdigest=lambda data: "0" * 32)
    stored.xxhash = nothing  # pyright: ignore[reportAttributeAccessIssue]


def _no_syncs() -> None:
    store.sync = lambda path: None


PARTS = {
    "deliveries": _no_deliveries,  # sums of all that is sent between workers, and of what arrives
    "sums": _no_sums,  # sha256 of each file while it is written
    "inputs": _no_inputs,  # xxh3_128 of the input files while they are read
    "syncs": _no_syncs,  # waiting until a shard is on the disk before it gets its name
}


def main(argv: list[str]) -> None:
    """Removes the parts that the first argument names, then runs build_shards."""
    names, *flags = argv
    for name in filter(None, names.split(",")):
        PARTS[name]()
    build_shards.main(flags)


if __name__ == "__main__":
    run_entry(main)
