"""build_shards --task=mlm, the whole command, beside four others on the same text.

    python -m tests.benchmarks.bench_build_shards --megabytes=1000 --runs=3

The script of `datasets` (scripts/mlm_datasets.py, 2 processes, masks nothing and verifies nothing),
datatrove's DocumentTokenizer (2 workers; only tokenizes), `tokenizers` alone with 2 threads (no
output at all), and the sum of what cannot be avoided: reading, encoding with gigatoken in one
thread, writing as many bytes. Ours reads, tokenizes, drops repeats, packs, masks, writes, reads
again and publishes. Peers take less text, since they are slow; start-up counts on all sides but of
`tokenizers` and the parts.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.baselines import baseline_versions, with_baselines
from tests.benchmarks.clock import Seconds
from tests.benchmarks.commands import build_set, shard_bytes, workers
from tests.benchmarks.corpora import write_corpus, write_json_lines, write_tokenizer
from tests.benchmarks.measure import (
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

SCRIPTS = "tests.benchmarks.scripts"
PARTS = ("read", "encode", "write")


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 1000
    """Of text, for ours and the parts."""
    peer_megabytes: float = 33
    """Of the same text, for the others."""
    max_length: int = 128
    """Tokens a row."""
    flags: str = ""
    """More flags for build_shards."""


def measure(options: Bench) -> Iterator[Record]:
    """Four rows."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        large, small = scratch / "large.txt", scratch / "small.txt"
        large_bytes = write_corpus(large, options.megabytes)
        small_bytes = write_corpus(small, options.peer_megabytes)
        found = alternated(_contestants(options, scratch, large, small), options.runs)
        how = {"bytes": large_bytes, "workers": workers(large)}
    mine = versions("apache-beam", "gigatoken", "tokenizers")
    ours = Side.rate("build_shards", found["ours"], large_bytes / 1e6, "MB", **how)

    def row(name: str, theirs: str, workers: str, reach: float, aim: float, *packages: str):
        side = Side.rate(
            theirs, found[name], small_bytes / 1e6, "MB", bytes=small_bytes, workers=workers
        )
        if name == "datatrove":
            side = replace(side, by_cpu=())  # which leaves out its workers
        row_name = f"build_shards mlm beside {theirs}"
        baselines = baseline_versions(*packages) if name == "datatrove" else versions(*packages)
        return Record(row_name, ours, side, reach, aim, versions=mine | baselines)

    yield row("script", "the script of `datasets`", "2 processes", 20, 35, "datasets")
    yield row("datatrove", "datatrove's DocumentTokenizer", "2 processes", 14, 25, "datatrove")
    yield row("alone", "encode_batch_fast alone", "2 threads", 9, 16, "tokenizers")
    yield Record(
        "build_shards mlm beside read + encode + write",
        Side.time("build_shards", found["ours"], **how),
        _sum_of_parts(found["parts"], large_bytes),
        reach=2.5,
        aim=1.5,
        at_most=True,
        versions=mine,
    )


def _contestants(
    options: Bench, scratch: Path, large: Path, small: Path
) -> dict[str, Callable[[], Any]]:
    tokenizer = write_tokenizer(scratch / "tokenizer.json")
    documents = scratch / "documents"
    documents.mkdir()
    for part in ("a", "b"):  # a file a worker
        write_json_lines(documents / f"{part}.jsonl", options.peer_megabytes / 2)
    flags = [f"--max_length={options.max_length}", *options.flags.split()]
    build_set(scratch / "kept", large, tokenizer, *flags, keep=True)  # warms up, too
    size = str(shard_bytes(scratch / "kept"))

    def output() -> str:
        return tempfile.mkdtemp(dir=scratch)

    def script() -> Seconds:
        given = (small, tokenizer, output(), str(options.max_length))
        return seconds_of(f"{SCRIPTS}.mlm_datasets", *given)

    def datatrove(python: str) -> Seconds:
        given = (documents, tokenizer, output())
        return seconds_of(f"{SCRIPTS}.tokens_datatrove", *given, python=python)

    return {
        "ours": lambda: build_set(scratch / "set", large, tokenizer, *flags),
        "script": script,
        "datatrove": with_baselines(datatrove),
        "alone": lambda: Seconds(*reported(f"{SCRIPTS}.encode_alone", small, tokenizer)),
        "parts": lambda: reported(
            f"{SCRIPTS}.unavoidable_parts", large, tokenizer, size, scratch / "written"
        ),
    }


def _sum_of_parts(runs: Runs[list[list[float]]], size: int) -> Side:
    """Of a run the seconds of each part: [[wall, cpu], ...]."""
    sums: Runs[Seconds] = Runs(Seconds(*map(sum, zip(*run, strict=True))) for run in runs)
    sums.reason = runs.reason
    medians = [median(run[part][0] for run in runs) for part in range(len(PARTS)) if runs]
    note = ", ".join(f"{name} {s:.2f} s" for name, s in zip(PARTS, medians, strict=False))
    return Side.time("read + encode + write", sums, bytes=size, workers="1 thread", note=note)


if __name__ == "__main__":
    entry(measure, Bench)
