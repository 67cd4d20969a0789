"""A set's rows (L = 128, mlm) in the files of other tools: export of each format, and MDSWriter.

    python -m tests.benchmarks.compare_export --megabytes=44

Every side is a command of its own, start-up included: it opens the set, reads all its training rows
and writes them. Ours checks the sha256 of each file too, and syncs what it wrote to the disk.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.benchmarks.baselines import baseline_versions, with_baselines
from tests.benchmarks.clock import Seconds
from tests.benchmarks.commands import build_set
from tests.benchmarks.corpora import write_corpus, write_tokenizer
from tests.benchmarks.measure import (
    Options,
    Record,
    Side,
    alternated,
    entry,
    seconds_of,
    versions,
)
from textmill.schemas.files.finished import read_dataset

FORMATS = ("mds", "arrow", "parquet", "jsonl")


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 44
    """Of text that the set is made of."""


def measure(options: Bench) -> Iterator[Record]:
    """A row a format; of MDS beside its own writer."""
    with tempfile.TemporaryDirectory() as folder:
        text, directory = Path(folder, "text.txt"), Path(folder, "set")
        write_corpus(text, options.megabytes)
        tokenizer = write_tokenizer(Path(folder, "tokenizer.json"))
        build_set(directory, text, tokenizer, "--splits=train:1", keep=True)
        contestants: dict[str, Callable[[], Seconds]] = {
            to: partial(_export, to, directory) for to in FORMATS
        }
        contestants["MDSWriter"] = with_baselines(partial(_write_mds, directory))
        found = alternated(contestants, options.runs)
        info = read_dataset(str(directory))
        rows = info.stats.split("train").rows
    sides = {name: Side.rate(name, runs, rows, "rows") for name, runs in found.items()}
    for to in FORMATS:
        beside = sides["MDSWriter"] if to == "mds" else None
        used = baseline_versions("mosaicml-streaming") if beside else {}
        name = f"{rows:,} rows exported as {to}" + " beside MDSWriter" * bool(beside)
        yield Record(name, sides[to], beside, versions=versions("numpy", "pyarrow") | used)


def _export(to: str, directory: Path) -> Seconds:
    output = directory.with_name(to)
    seconds = seconds_of("pipelines.export", directory, f"--to={to}", f"--output={output}")
    shutil.rmtree(output)
    return seconds


def _write_mds(directory: Path, python: str) -> Seconds:
    seconds = seconds_of("tests.benchmarks.scripts.write_rows", "mds", directory, python=python)
    shutil.rmtree(directory / "mds")
    return seconds


if __name__ == "__main__":
    entry(measure, Bench)
