"""A third snapshot as a delta, beside a corpus of its text alone and a build of all three.

    python -m tests.benchmarks.compare_deltas --megabytes=200

Each snapshot is text of this machine. Of the documents of the second and the third, a tenth are
exact copies of documents of earlier snapshots, and a tenth have lost an eighth of their words, the
last ones. Half of the latter in the third snapshot have lost two eighths of a document whose copy
is in the second: they are near-duplicates of this copy only, which no corpus has, so they stay.
Later copies are shorter, so a build of all three keeps the older documents, too. It fails if
the deltas have other documents than this build, or their shards other bytes.
"""

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from tests.benchmarks.commands import build_corpus
from tests.benchmarks.corpora import all_texts, within, write_json_lines
from tests.benchmarks.measure import (
    CannotRun,
    Options,
    Record,
    Side,
    alternated,
    entry,
    seconds_of,
    versions,
)
from tests.golden.outputs import KEPT
from textmill.pipelines.corpus.ancestors import read_ids
from textmill.schemas.files.finished import Corpus, open_finished, read_dataset

NAMES = ("first", "second", "third")
RULE = ("--near_duplicates=jaccard:0.8",)
_APART = ("--near_duplicates=jaccard:0.6", "--bands=25x4")  # fresh texts are less alike than cuts
_FEWEST = 100  # words of a document that is cut


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 200
    """Of text in each snapshot."""
    folder: str = ""
    """Keeps the snapshots and the first two corpora, which a second run reuses."""


def measure(options: Bench) -> Iterator[Record]:
    """Two rows."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.folder or temporary)
        prepare(folder, options.megabytes)
        inputs, (*older, third) = _paths(folder)
        against = f"--against={','.join(map(str, older))}"
        more = [f"--input={path}" for path in inputs[1:]]
        found = alternated(
            {
                "delta": lambda: build_corpus(third, inputs[2], against, *RULE),
                "alone": lambda: build_corpus(folder / "alone", inputs[2], *RULE),
                "all": lambda: build_corpus(folder / "all", inputs[0], *more, *RULE),
            },
            options.runs,
        )
        compare(folder)
        sizes = [path.stat().st_size for path in inputs]
    delta = Side.time("delta", found["delta"], bytes=sizes[2])
    alone = Side.time("its text alone", found["alone"], bytes=sizes[2])
    every = Side.time("all three at once", found["all"], bytes=sum(sizes))
    used = versions("numpy", "pyarrow")
    for beside, reach, aim in ((alone, 1.5, 1.3), (every, 1.0, None)):
        name = f"a third snapshot as a delta, beside {beside.name}"
        yield Record(name, delta, beside, reach, aim, at_most=True, versions=used)


def prepare(folder: Path, megabytes: float) -> None:
    """Writes the snapshots, and builds the first two corpora, unless they are there."""
    inputs, (first, second, _) = _paths(folder)
    folder.mkdir(exist_ok=True)
    if not inputs[-1].exists():
        _write_snapshots(folder, megabytes)
    if not (second / "MANIFEST.json").exists():
        build_corpus(first, inputs[0], *RULE)
        build_corpus(second, inputs[1], f"--against={first}", *RULE)


def compare(folder: Path) -> None:
    """Compares the documents of the three corpora, and their shards, with those of one build.

    Raises:
      CannotRun: they differ.
    """
    _, chain = _paths(folder)
    deltas, every = np.sort(_ids(chain)), np.sort(_ids([folder / "all"]))
    if not np.array_equal(deltas, every):
        both = len(np.intersect1d(deltas, every))
        raise CannotRun(
            f"the deltas have {len(deltas):,} documents, and one build {len(every):,}; {both:,} "
            "are in both"
        )
    shards = [_shards(corpora, folder / "shards") for corpora in (chain, [folder / "all"])]
    if shards[0] != shards[1]:
        raise CannotRun("the shards of the deltas differ from those of one build")


def _paths(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files of the snapshots, and the directories of their corpora."""
    return [folder / f"{name}.jsonl" for name in NAMES], [folder / name for name in NAMES]


def _write_snapshots(folder: Path, megabytes: float) -> None:
    draw, given = random.Random(0), folder / "given.jsonl"
    write_json_lines(given, 3.3 * megabytes, all_texts())
    build_corpus(folder / "apart", given, *_APART)
    fresh = _texts(folder / "apart")
    older: list[str] = []
    copied: list[str] = []
    for number, path in enumerate(_paths(folder)[0]):
        own = list(within(fresh, (0.8 if number else 1.0) * megabytes))
        planted: list[str] = []
        if number:
            count = len(own) // 8
            long = [text for text in older if len(text.split()) >= _FEWEST]
            cut = draw.sample(long, min(len(long), count // number))
            again = draw.sample(copied, min(len(copied), count - count // number))
            planted = draw.sample(older, min(len(older), count))
            planted += [_cut(text, 1) for text in cut] + [_cut(text, 2) for text in again]
            copied = cut
        documents = [*own, *planted]
        draw.shuffle(documents)
        with open(path, "w") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in documents)
        older += own


def _cut(text: str, eighths: int) -> str:
    words = text.split(" ")
    return " ".join(words[: len(words) * (8 - eighths) // 8])


def _texts(directory: Path) -> Iterator[str]:
    """The texts of a corpus, in the order of their hashes."""
    for path in sorted(directory.glob("documents-*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
            yield from batch["text"].to_pylist()


def _ids(directories: Sequence[Path]) -> np.ndarray:
    corpora = [open_finished(Corpus, str(directory)) for directory in directories]
    files = [(one.path(file), file.rows or 0) for one in corpora for file in one.documents]
    return np.concatenate([read_ids(*file) for file in files])


def _shards(corpora: Sequence[Path], output: Path) -> dict[str, str]:
    """Path to sha256 of the shards of some corpora."""
    flags = ["--task=clm", "--max_length=1024", "--splits=train:1", "--num_shards=8"]
    own = [f"--tokenizer={KEPT / 'bpe'}", f"--output={output}", "--overwrite"]
    seconds_of("pipelines.build_shards", *(f"--input={one}" for one in corpora), *own, *flags)
    files = read_dataset(str(output)).manifest.files
    return {file.path: file.sha256 for file in files if file.split}


if __name__ == "__main__":
    entry(measure, Bench)
