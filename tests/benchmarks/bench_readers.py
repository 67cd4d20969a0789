"""Reads one set with every tool, and says whether the rows are ours and how fast they came.

    python -m tests.benchmarks.bench_readers --text=../shared/data/imdb/test.jsonl.zst

The set (L = 128, static masks, both formats) and its exports are made first. Seconds are of a
second run, so that files are cached and the tools imported; opening counts, and for ShardSet so
does the sha256 of every file. (seqio wants an environment of its own: tests/test_seqio.py.)
"""

import importlib.metadata
import sys
import tempfile
import time
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from pipelines import build_shards, export
from trainers.reader import ShardSet

sys.path.append(str(Path(__file__).parents[1]))
from reader_tools import TOOLS, Columns, Tool  # noqa: E402  a module beside the tests

DATA = Path(__file__).parents[2].parent / "shared" / "data"


@dataclass(frozen=True)
class Bench:
    """What is read."""

    text: str = str(DATA / "imdb" / "test*")
    """Input of build_shards."""
    tokenizer: str = str(DATA / "tokenizers" / "roberta-base")
    """As build_shards takes it."""


def main(bench: Bench) -> None:
    """Makes the set and its exports, then prints the table."""
    with tempfile.TemporaryDirectory() as scratch:
        import datasets.config

        datasets.config.HF_DATASETS_CACHE = Path(scratch) / "cache"
        made = _make(bench, Path(scratch))
        shards = ShardSet(made["set"])
        written = shards.read("train", np.arange(shards.rows("train")))
        table = Table(title=f"{shards.rows('train'):,} rows of {shards.schema.max_length} tokens")
        for name in ("tool", "version", "call", "rows", "equal to ours", "s", "rows/s"):
            table.add_column(name, justify="right" if name in ("rows", "s", "rows/s") else "left")
        for tool in TOOLS:
            read, seconds = _second_run(tool, made[tool.of])
            rows = len(read["input_ids"])
            equal = "yes" if _equal(read, written) else "NO"
            told = (f"{rows:,}", equal, f"{seconds:.2f}", f"{rows / seconds:,.0f}")
            table.add_row(tool.package, _version(tool.package), tool.call, *told)
        Console(width=130).print(table)


def _make(bench: Bench, scratch: Path) -> dict[str, str]:
    inputs = sorted(glob(bench.text))[:1]
    made = {name: str(scratch / name) for name in ("set", "parquet", "arrow", "jsonl")}
    build_shards.main(
        [
            *(f"--input={path}" for path in inputs),
            f"--tokenizer={bench.tokenizer}",
            f"--output={made['set']}",
            "--file_format=both",
            "--num_shards=train:4,validation:1",
        ]
    )
    for to in ("parquet", "arrow", "jsonl"):
        export.main([made["set"], f"--to={to}", f"--output={made[to]}"])
    return made


def _second_run(tool: Tool, directory: str) -> tuple[Columns, float]:
    tool.read(directory, "validation")  # imports, and what a tool makes once
    began = time.perf_counter()
    read = tool.read(directory, "train")
    return read, time.perf_counter() - began


def _equal(read: Columns, written: Columns) -> bool:
    return set(read) == set(written) and all(
        np.array_equal(read[name], values) for name, values in written.items()
    )


def _version(package: str) -> str:
    if package == "python":
        return ".".join(map(str, sys.version_info[:3]))
    return importlib.metadata.version(package)


if __name__ == "__main__":
    main(tyro.cli(Bench, use_underscores=True))
