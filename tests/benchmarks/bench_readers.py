"""Reads one set with every tool, as in docs/readers.md: are the rows ours, and how fast?

    python -m tests.benchmarks.bench_readers --megabytes=5

Rows in order, L = 128, static masks, both formats and all exports. Opening counts, and for ShardSet
so does the sha256 of every file; importing does not. Without seqio, which wants an environment of
its own. Shuffled batches, as trainers read them: bench_reading.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.benchmarks.clock import timed
from tests.benchmarks.corpora import write_corpus, write_tokenizer
from tests.benchmarks.measure import Options, Record, Runs, Side, alternated, entry, versions
from tests.tools.reader_tools import TOOLS, Columns, Tool
from textmill.pipelines import build_shards, export
from textmill.trainers.reader import ShardSet


@dataclass(frozen=True)
class Bench(Options):
    """What is read."""

    megabytes: float = 5
    """Of text."""


def measure(options: Bench) -> Iterator[Record]:
    """A row a tool."""
    with tempfile.TemporaryDirectory() as scratch:
        import datasets.config

        datasets.config.HF_DATASETS_CACHE = Path(scratch) / "cache"
        made = _make(options, Path(scratch))
        shards = ShardSet(made["set"])
        written = shards.read("train", np.arange(shards.rows("train")))
        for tool in TOOLS:  # imports, and what a tool makes once
            tool.read(made[tool.of], "validation")

        def read(tool: Tool):
            return timed(lambda: _equal(tool.read(made[tool.of], "train"), written))

        found = alternated({_name(tool): lambda t=tool: read(t) for tool in TOOLS}, options.runs)
        rows = shards.rows("train")
    ours, *others = (_side(tool, found[_name(tool)], rows) for tool in TOOLS)
    for tool, side in zip(TOOLS[1:], others, strict=True):
        used = versions("numpy", *{tool.package} - {"python"})
        yield Record(f"{rows:,} rows in order, beside {side.name}", ours, side, versions=used)


def _name(tool: Tool) -> str:
    return f"{tool.package} {tool.call}"


def _side(tool: Tool, runs: Runs, rows: int) -> Side:
    equal = all(equal for _, equal in runs)
    note = "" if equal else "OTHER ROWS THAN OURS"
    seconds = Runs(seconds for seconds, _ in runs)
    return Side.rate(_name(tool), seconds, rows, "rows", note=note)


def _make(options: Bench, scratch: Path) -> dict[str, str]:
    made = {name: str(scratch / name) for name in ("set", "blobs", "parquet", "arrow", "jsonl")}
    text = scratch / "text.txt"
    write_corpus(text, options.megabytes)
    tokenizer = write_tokenizer(scratch / "tokenizer.json")
    for name, encoding in (("set", "bits"), ("blobs", "bytes")):
        build_shards.main(
            [
                f"--input={text}",
                "--document=line",
                f"--tokenizer={tokenizer}",
                f"--output={made[name]}",
                "--file_format=both",
                "--num_shards=train:4,validation:1",
                f"--encoding={encoding}",
            ]
        )
    for to in ("parquet", "arrow", "jsonl"):
        export.main([made["set"], f"--to={to}", f"--output={made[to]}"])
    return made


def _equal(read: Columns, written: Columns) -> bool:
    return set(read) == set(written) and all(
        np.array_equal(read[name], values) for name, values in written.items()
    )


if __name__ == "__main__":
    entry(measure, Bench)
