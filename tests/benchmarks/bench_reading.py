"""ShardSet: shuffled rows, decoded to numpy batches, beside other ways to read them.

    python -m tests.benchmarks.bench_reading --megabytes=44 --rows=10000
    python -m tests.benchmarks.bench_reading --task=clm --max_length=512 --ways copies memmap

Each way (scripts/read_rows.py) runs in a process of its own and reads the same rows: one record at
a time through ArrayRecord and grain's DataLoader the same files, tf.data a TFRecord of bytes,
PyTorch's DataLoader over mosaicml-streaming's MDS and litdata a copy that their writers made. The
last rows say what memory allows: rows that lie in a matrix, picked in a random order, and the ids
alone, from a matrix in a file that is mapped.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
    reported,
    seconds_of,
    versions,
)

SCRIPTS = "tests.benchmarks.scripts"
# way: its name, the least and the wished ratio, its package
OTHERS = {
    "single": ("one record at a time through ArrayRecord", 30, None, "array-record"),
    "grain": ("grain's DataLoader", 1, 5, "grain"),
    "tf_data": ("tf.data over TFRecord", 1, 5, "tensorflow"),
    "mds": ("torch DataLoader over MDS", 1, 5, "mosaicml-streaming"),
    "litdata": ("litdata's StreamingDataLoader", 1, 5, "litdata"),
    "copies": ("rows picked from a matrix in memory", 0.5, None, "numpy"),
    "memmap": ("ids alone picked from a numpy.memmap", None, None, "numpy"),
}
PEERS = ("mds", "litdata")
QUICK = ("copies", "memmap")
MANY = 20  # times the rows, for ways that are quick


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 44
    """Of text that the set is made of."""
    rows: int = 10_000
    """That each way reads; ours, copies and memmap twenty times as many."""
    task: str = "mlm"
    """Of the set."""
    max_length: int = 128
    """L, the tokens of a row."""
    ways: tuple[str, ...] = tuple(OTHERS)
    """Ways to compare."""


def measure(options: Bench) -> Iterator[Record]:
    """A row for each other way."""
    with tempfile.TemporaryDirectory() as folder:
        text, directory = Path(folder, "text.txt"), Path(folder, "set")
        write_corpus(text, options.megabytes)
        tokenizer = write_tokenizer(Path(folder, "tokenizer.json"))
        flags = (f"--task={options.task}", f"--max_length={options.max_length}")
        build_set(directory, text, tokenizer, *flags, keep=True)
        if "tf_data" in options.ways:  # which parses bytes
            flags += ("--file_format=tfrecord", "--encoding=bytes")
            build_set(Path(folder, "tf_data"), text, tokenizer, *flags, keep=True)
        contestants: dict[str, Callable[[], Seconds]] = {
            "shard_set": partial(_read, "shard_set", directory, options.rows * MANY)
        }
        for way in options.ways:
            rows = options.rows * (MANY if way in QUICK else 1)
            place = Path(folder, way) if way == "tf_data" else directory
            contestants[way] = partial(_read, way, place, rows)
            if way in PEERS:
                contestants[way] = with_baselines(partial(_write_and_read, way, directory, rows))
        found = alternated(contestants, options.runs)
    rows = options.rows
    ours = Side.rate("ShardSet.batches", found["shard_set"], rows * MANY, "rows")
    for way in options.ways:
        title, reach, aim, package = OTHERS[way]
        read = rows * (MANY if way in QUICK else 1)
        workers = "2 processes" if way in PEERS else "1 process"
        beside = Side.rate(title, found[way], read, "rows", workers=workers)
        if way in PEERS:
            beside = replace(beside, by_cpu=())  # which leaves out their workers
        used = baseline_versions(package) if way in PEERS else versions(package)
        name = f"ShardSet, shuffled batches, beside {title}"
        yield Record(name, ours, beside, reach, aim, versions=versions("numpy") | used)


def _read(way: str, directory: Path, rows: int, **python: str) -> Seconds:
    given = (way, directory, str(rows))
    return Seconds(*reported(f"{SCRIPTS}.read_rows", *given, **python))


def _write_and_read(way: str, directory: Path, rows: int, python: str) -> Seconds:
    if not (directory / way).exists():
        seconds_of(f"{SCRIPTS}.write_rows", way, directory, python=python)
    return _read(way, directory, rows, python=python)


if __name__ == "__main__":
    entry(measure, Bench)
