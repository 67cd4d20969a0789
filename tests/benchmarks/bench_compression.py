"""ArrayRecord of real rows (L = 128, mlm): size, writing and reading, by compression.

    python -m tests.benchmarks.bench_compression --megabytes=44

Ours is uncompressed and written by numpy; the others are written by the library, with a record a
chunk, as random access wants it. Read are batches of 256 shuffled rows, through the reader that
ShardSet takes for such a file. The sync to disk is not part of writing, on any side.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from tests.benchmarks.clock import Seconds, timed
from tests.benchmarks.commands import build_set
from tests.benchmarks.corpora import write_corpus, write_tokenizer
from tests.benchmarks.measure import Options, Record, Runs, Side, alternated, entry, versions
from tests.tools.shard_factory import with_heads
from textmill.pipelines.writers.array_record_file import ArrayRecordFile
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.mapped_rows import MappedRows
from textmill.schemas.format.records import open_rows

LIBRARY = ("uncompressed", "zstd:1", "zstd:3")
BATCH = 256


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 44
    """Of text that the rows are made of."""


class _Figures(NamedTuple):
    wrote: Seconds
    read: Seconds
    megabytes: float


def measure(options: Bench) -> Iterator[Record]:
    """Size, writing and reading for each of the library's."""
    with tempfile.TemporaryDirectory() as folder:
        rows = _rows(options.megabytes, Path(folder))
        ways = {"ours": lambda path: _write_ours(path, rows)}
        for name in LIBRARY:
            ways[name] = lambda path, name=name: _write(path, rows, name)
        _write_ours(Path(folder, "warm-up"), rows[:100])  # loads what is compiled
        paths = {name: Path(folder, f"{number}.array_record") for number, name in enumerate(ways)}

        def contest(name: str) -> _Figures:
            wrote = timed(lambda: ways[name](paths[name]))[0]
            read = timed(lambda: _read_shuffled(paths[name], rows.shape))[0]
            return _Figures(wrote, read, paths[name].stat().st_size / 1e6)

        found = alternated({name: lambda n=name: contest(n) for name in ways}, options.runs)
    sides = {name: _sides(name, runs, rows.nbytes) for name, runs in found.items()}
    used = versions("array-record", "numpy")
    for name in LIBRARY:
        for ours, beside, what in zip(
            sides["ours"], sides[name], ("written", "read shuffled", "size"), strict=True
        ):
            said = f"ArrayRecord {what}: none beside the library's {name}"
            yield Record(said, ours, beside, at_most=what == "size", versions=used)


def _rows(megabytes: float, scratch: Path) -> np.ndarray:
    """Encoded rows of a set: uint8 [rows, stride]."""
    text = scratch / "text.txt"
    write_corpus(text, megabytes)
    flags = ("--num_shards=train:1,validation:1",)
    build_set(scratch / "set", text, write_tokenizer(scratch / "t.json"), *flags, keep=True)
    info = read_dataset(str(scratch / "set"))
    (shard,) = info.manifest.shards("train", "array_record")
    reader = open_rows(str(scratch / "set" / shard.path), info.schema.codec().stride)
    return reader.read_range(0, len(reader)).copy()


def _write_ours(path: Path, rows: np.ndarray) -> None:
    with open(path, "wb") as file:
        out = ArrayRecordFile(file, rows.shape[1])
        for start in range(0, len(rows), 8192):
            out.write(with_heads(rows[start : start + 8192]))
        out.finish()


def _write(path: Path, rows: np.ndarray, compression: str) -> None:
    writer = ArrayRecordWriter(str(path), f"group_size:1,{compression}")
    for row in rows:
        writer.write(row.tobytes())
    writer.close()


def _read_shuffled(path: Path, shape: tuple[int, ...]) -> None:
    rows = MappedRows([open_rows(str(path), shape[1])], shape[1])
    order = np.random.default_rng(0).permutation(shape[0])
    for start in range(0, len(order), BATCH):
        some = order[start : start + BATCH]
        rows.gather(np.zeros_like(some), some)


def _sides(name: str, runs: Runs[_Figures], size: int) -> list[Side]:
    wrote, read = Runs(run.wrote for run in runs), Runs(run.read for run in runs)
    return [
        *(Side.rate(name, seconds, size / 1e6, "MB", bytes=size) for seconds in (wrote, read)),
        Side.values(name, "MB", Runs(run.megabytes for run in runs), bytes=size),
    ]


if __name__ == "__main__":
    entry(measure, Bench)
