"""build_shards for clm, classification and qa, each beside the script that its users would write.

    python -m tests.benchmarks.bench_tasks --tasks=clm --megabytes=44

The scripts (scripts/*_datasets.py) are `datasets` with 2 processes; for clm with `tokenizers`, for
the other two with `transformers`' tokenizer, which pads, cuts and finds answers for its users.
Texts: numbered reviews; IMDB's training reviews with their labels, numbered; SQuAD's training
questions, numbered from the second turn on. Rates are bytes of text; the scripts take less of it,
since they are slow. Start-up counts on both sides.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.clock import Seconds
from tests.benchmarks.commands import build_set, workers
from tests.benchmarks.corpora import write_corpus, write_labelled, write_questions, write_tokenizer
from tests.benchmarks.measure import (
    Options,
    Record,
    Side,
    alternated,
    entry,
    seconds_of,
    versions,
)

QUESTIONS_A_MEGABYTE = 1200  # with their contexts


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    tasks: tuple[str, ...] = ("clm", "classification", "qa")
    """Which."""
    megabytes: float = 400
    """Of text, for ours; all of SQuAD is 70."""
    script_megabytes: float = 12
    """Of the same text, for the scripts."""


@dataclass(frozen=True)
class _Task:
    write: Callable[[Path, float], int]
    flags: tuple[str, ...]
    packages: tuple[str, ...]


def _write_questions(path: Path, megabytes: float) -> int:
    return write_questions(path, int(megabytes * QUESTIONS_A_MEGABYTE))


TASKS = {
    "clm": _Task(write_corpus, ("--max_length=128",), ("datasets", "tokenizers")),
    "classification": _Task(
        write_labelled, ("--max_length=128", "--classes=neg,pos"), ("datasets", "transformers")
    ),
    "qa": _Task(_write_questions, ("--max_length=384",), ("datasets", "transformers")),
}


def measure(options: Bench) -> Iterator[Record]:
    """A row a task."""
    for name in options.tasks:
        with tempfile.TemporaryDirectory() as folder:
            yield _measure(name, options, Path(folder))


def _measure(name: str, options: Bench, scratch: Path) -> Record:
    task, kind = TASKS[name], "txt" if name == "clm" else "jsonl"
    large, small = scratch / f"large.{kind}", scratch / f"small.{kind}"
    large_bytes = task.write(large, options.megabytes)
    small_bytes = task.write(small, options.script_megabytes)
    tokenizer = write_tokenizer(scratch / "tokenizer.json")

    def ours() -> Seconds:
        return build_set(scratch / "set", large, tokenizer, f"--task={name}", *task.flags)

    def script() -> Seconds:
        length = task.flags[0].partition("=")[2]
        given = (small, tokenizer, tempfile.mkdtemp(dir=scratch), length)
        return seconds_of(f"tests.benchmarks.scripts.{name}_datasets", *given)

    found = alternated({"ours": ours, "script": script}, options.runs)
    return Record(
        f"build_shards {name} beside its users' script",
        Side.rate(
            f"build_shards --task={name}",
            found["ours"],
            large_bytes / 1e6,
            "MB",
            bytes=large_bytes,
            workers=workers(large),
        ),
        Side.rate(
            "the script",
            found["script"],
            small_bytes / 1e6,
            "MB",
            bytes=small_bytes,
            workers="2 processes",
        ),
        reach=10,
        aim=30,
        versions=versions("apache-beam", "gigatoken", *task.packages),
    )


if __name__ == "__main__":
    entry(measure, Bench)
