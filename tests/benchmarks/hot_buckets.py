"""Near-duplicates where very many documents meet in one bucket: time and memory of build_corpus.

    python -m tests.benchmarks.hot_buckets [--documents=200000]

    own        documents of their own words alone: the base of the comparison
    beginning  all of them begin with the same 500 words
    paragraph  all of them hold the same 60 words somewhere
    copies     five times as many, each a copy of one document of 60 words with one word changed

Prints for each the seconds, the seconds of processors, the peak of memory (RSS) of the command and
what it counted. Documents have 700 words, but for those copies.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from tests.tools.places import ROOT
from textmill.schemas.files.finished import Corpus, open_finished

_WORDS, _SHARED, _PARAGRAPH, _AT_ONCE = 700, 500, 60, 2000
_COUNTS = ("compared", "removed", "verified", "refuted", "uncompared")


@dataclass(frozen=True)
class Options:
    """How much, and of what."""

    documents: int = 200_000
    """Of a corpus."""
    corpora: tuple[str, ...] = ("own", "beginning", "paragraph", "copies")
    """Those to be measured."""
    flags: tuple[str, ...] = ()
    """Others of build_corpus."""


def main() -> None:
    """Measures each corpus in a process of its own."""
    options = tyro.cli(Options, use_underscores=True)
    print(f"| corpus | documents | MB | s | CPU s | peak MB | {' | '.join(_COUNTS)} |")
    print("|---" * (6 + len(_COUNTS)) + "|")
    for name in options.corpora:
        with tempfile.TemporaryDirectory(prefix="textmill-hot-") as folder:
            path, output = Path(folder) / "corpus.txt", Path(folder) / "output"
            count = options.documents * (5 if name == "copies" else 1)
            with open(path, "wb") as file:
                file.writelines(_lines(name, count))
            seconds, cpu, peak = _measure(path, output, options.flags)
            found = open_finished(Corpus, str(output)).stats.observed["near_duplicates"]
            size = path.stat().st_size
        counts = " | ".join(f"{found.get(key, 0):,}" for key in _COUNTS)
        print(
            f"| {name} | {count:,} | {size / 1e6:,.0f} | {seconds:.0f} | {cpu:.0f} | "
            f"{peak / 1e6:,.0f} | {counts} |",
            flush=True,
        )


def _measure(path: Path, output: Path, flags: tuple[str, ...]) -> tuple[float, float, float]:
    """Seconds, seconds of processors and the peak of memory of one run."""
    began = time.monotonic()
    flags = (
        f"--input={path}",
        "--document=line",
        f"--output={output}",
        "--near_duplicates=jaccard:0.8",
        *flags,
    )
    line = [sys.executable, "-m", "pipelines.build_corpus", *flags]
    run = subprocess.Popen(line, cwd=ROOT, stdout=sys.stderr)
    _, code, used = os.wait4(run.pid, 0)
    if code:
        raise SystemExit(f"it ended with {code}")
    return time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def _lines(name: str, count: int) -> Iterator[bytes]:
    draw = np.random.default_rng(0)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
    vocabulary = np.full((100_000, 6), 32, np.uint8)
    vocabulary[:, :5] = letters[draw.integers(0, 26, (len(vocabulary), 5))]
    words = _PARAGRAPH if name == "copies" else _WORDS
    shared = draw.integers(0, len(vocabulary), _SHARED)
    for start in range(0, count, _AT_ONCE):
        some = min(_AT_ONCE, count - start)
        numbers = draw.integers(0, len(vocabulary), (some, words))
        if name == "beginning":
            numbers[:, :_SHARED] = shared
        if name == "paragraph":
            places = draw.integers(0, words - _PARAGRAPH, some)[:, None] + np.arange(_PARAGRAPH)
            np.put_along_axis(numbers, places, shared[None, :_PARAGRAPH], axis=1)
        if name == "copies":
            changed = draw.integers(0, words, some)
            others = numbers[:, 0].copy()
            numbers[:] = shared[:words]
            numbers[np.arange(some), changed] = others
        text = vocabulary[numbers].reshape(some, -1)
        text[:, -1] = 10
        yield text.tobytes()


if __name__ == "__main__":
    main()
