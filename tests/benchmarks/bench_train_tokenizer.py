"""train_tokenizer, the whole command, beside two other trainers on the same documents.

    python -m tests.benchmarks.bench_train_tokenizer --megabytes=110
    python -m tests.benchmarks.bench_train_tokenizer --megabytes=1000 --peer_megabytes=110 --runs=1

Ours includes start-up, reading and writing; of the others only training counts
(scripts/train_others.py: `tokenizers` with 2 threads, gigatoken's `train_bpe` with all). With less
text for them their seconds are scaled to ours, as if they were linear in it, and that is said. In
the end merges and ids are compared, where both had the same text.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.clock import Seconds
from tests.benchmarks.commands import train, workers
from tests.benchmarks.corpora import write_corpus
from tests.benchmarks.measure import (
    Options,
    Record,
    Runs,
    Side,
    alternated,
    entry,
    reported,
    versions,
)


@dataclass(frozen=True)
class Bench(Options):
    """What to compare."""

    megabytes: float = 110
    """Of text, for ours."""
    peer_megabytes: float = 0
    """Of the same text, for the others; 0: as much."""
    vocab_size: int = 32000
    """Of all."""


def measure(options: Bench) -> Iterator[Record]:
    """A row for each other trainer."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        text, less = scratch / "text.txt", scratch / "less.txt"
        size = write_corpus(text, options.megabytes)
        their_size = write_corpus(less, options.peer_megabytes or options.megabytes)
        output, theirs = scratch / "tokenizer", scratch / "theirs.json"

        def other(library: str) -> Seconds:
            flags = (library, less, str(options.vocab_size), theirs)
            return Seconds(*reported("tests.benchmarks.scripts.train_others", *flags))

        found = alternated(
            {
                "ours": lambda: train(
                    output, f"--input={text}", f"--vocab_size={options.vocab_size}"
                ),
                "gigatoken": lambda: other("gigatoken"),
                "tokenizers": lambda: other("tokenizers"),
            },
            options.runs,
        )
        note = ""
        if size == their_size and not found["tokenizers"].reason:
            note = differences(output / "tokenizer.json", theirs)
        ours = Side.time(
            "train_tokenizer", found["ours"], bytes=size, workers=workers(text), note=note
        )
    large = size >= 1_000_000_000
    for library, reach, aim in (
        ("tokenizers", 10 if large else 3, 20 if large else 6),
        ("gigatoken", 1, None),
    ):
        scaled = Runs(Seconds(*(s * size / their_size for s in run)) for run in found[library])
        scaled.reason = found[library].reason
        said = f"scaled from {their_size / 1e6:.0f} MB" if size != their_size else ""
        yield Record(
            f"train_tokenizer {size / 1e6:,.0f} MB beside {library}",
            ours,
            Side.time(library, scaled, bytes=their_size, workers="2 threads", note=said),
            reach,
            aim,
            versions=versions("apache-beam", "gigatoken", "tokenizers"),
        )


def differences(ours: Path, theirs: Path) -> str:
    """How many merges and ids there are, and how many differ."""
    mine, other = (json.loads(path.read_text())["model"] for path in (ours, theirs))
    merges = sum(a != b for a, b in zip(mine["merges"], other["merges"], strict=False))
    merges += abs(len(mine["merges"]) - len(other["merges"]))
    ids = len(mine["vocab"].items() ^ other["vocab"].items())
    return f"{len(mine['merges']):,} merges, {merges} differ; {len(mine['vocab']):,} ids, {ids}"


if __name__ == "__main__":
    entry(measure, Bench)
