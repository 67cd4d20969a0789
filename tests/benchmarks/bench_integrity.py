"""The price of the proofs of build_shards: seconds in each of them, beside those of the whole run.

    python -m tests.benchmarks.bench_integrity --megabytes=250

Each proof has a clock of its own within the run (scripts/time_proofs.py), since whole runs differ
by more from one to the next than a proof costs.
"""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.clock import Seconds
from tests.benchmarks.corpora import write_corpus, write_tokenizer
from tests.benchmarks.measure import (
    Options,
    Record,
    Runs,
    Side,
    entry,
    reported,
    versions,
)


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 250
    """Of text."""


PROOFS = {
    "deliveries": "sums of what is sent between workers and arrives",
    "sums": "sha256 of each file while it is written",
    "inputs": "xxh3 of the inputs while they are read",
    "syncs": "waiting until a shard is on the disk",
}


def measure(options: Bench) -> Iterator[Record]:
    """A row for each proof, and one for all of them."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        text, tokenizer = scratch / "text.txt", write_tokenizer(scratch / "tokenizer.json")
        size = write_corpus(text, options.megabytes)
        runs = [_build(scratch / "set", text, tokenizer) for _ in range(options.runs)]
    for name, proofs in {
        "all proofs": [*PROOFS],
        **{PROOFS[name]: [name] for name in PROOFS},
    }.items():
        whole = Runs(run["whole"] for run in runs)
        without = Runs(_without(run, proofs) for run in runs)
        yield Record(
            f"the price of {name}",
            Side.time("build_shards clm", whole, bytes=size, workers="2 threads"),
            Side.time("without", without, bytes=size, workers="2 threads"),
            reach=1.03 if len(proofs) > 1 else None,
            at_most=True,
            versions=versions("apache-beam", "xxhash"),
        )


def _without(run: dict[str, Seconds], proofs: list[str]) -> Seconds:
    """The seconds of a run less those in some proofs; two threads wait at the same time."""
    wall = sum(run[proof].wall for proof in proofs) / 2
    return Seconds(run["whole"].wall - wall, run["whole"].cpu - sum(run[p].cpu for p in proofs))


def _build(output: Path, text: Path, tokenizer: Path) -> dict[str, Seconds]:
    flags = [f"--input={text}", f"--tokenizer={tokenizer}", f"--output={output}"]
    flags += ["--task=clm", "--max_length=128", "--document=line"]
    flags += ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]
    shutil.rmtree(output, ignore_errors=True)
    found = reported("tests.benchmarks.scripts.time_proofs", *flags)
    return {proof: Seconds(*seconds) for proof, seconds in found.items()}


if __name__ == "__main__":
    entry(measure, Bench)
