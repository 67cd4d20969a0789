"""build_shards for classification and qa, each beside the script that its users would write.

    python -m tests.benchmarks.bench_tasks --tasks=qa --megabytes=70

The scripts (scripts/*_datasets.py) are `datasets` with 2 processes and `transformers`' tokenizer,
which pads, cuts and finds answers for its users. Texts, each once and the same on both sides:
IMDB's reviews with their labels, and SQuAD's training questions. Start-up counts on both sides.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.clock import Seconds
from tests.benchmarks.commands import build_set, workers
from tests.benchmarks.corpora import write_labelled, write_questions, write_tokenizer
from tests.benchmarks.measure import (
    Options,
    Record,
    Side,
    alternated,
    entry,
    seconds_of,
    versions,
)

QUESTIONS_PER_MEGABYTE = 1200  # with their contexts


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    tasks: tuple[str, ...] = ("classification", "qa")
    """Which."""
    megabytes: float = 33
    """Of text; IMDB has 66, SQuAD 70."""


@dataclass(frozen=True)
class _Task:
    write: Callable[[Path, float], int]
    flags: tuple[str, ...]


def _write_questions(path: Path, megabytes: float) -> int:
    return write_questions(path, int(megabytes * QUESTIONS_PER_MEGABYTE))


TASKS = {
    "classification": _Task(write_labelled, ("--max_length=128", "--classes=neg,pos")),
    "qa": _Task(_write_questions, ("--max_length=384",)),
}


def measure(options: Bench) -> Iterator[Record]:
    """A row a task."""
    for name in options.tasks:
        with tempfile.TemporaryDirectory() as folder:
            yield _measure(name, options, Path(folder))


def _measure(name: str, options: Bench, scratch: Path) -> Record:
    task, documents = TASKS[name], scratch / "documents.jsonl"
    size = task.write(documents, options.megabytes)
    tokenizer = write_tokenizer(scratch / "tokenizer.json")

    def ours() -> Seconds:
        return build_set(scratch / "set", documents, tokenizer, f"--task={name}", *task.flags)

    def script() -> Seconds:
        length = task.flags[0].partition("=")[2]
        given = (documents, tokenizer, tempfile.mkdtemp(dir=scratch), length)
        return seconds_of(f"tests.benchmarks.scripts.{name}_datasets", *given)

    found = alternated({"ours": ours, "script": script}, options.runs)
    how = {"work": size / 1e6, "of": "MB", "bytes": size}
    return Record(
        f"build_shards {name} beside its users' script",
        Side.rate(f"build_shards --task={name}", found["ours"], **how, workers=workers(documents)),
        Side.rate("the script", found["script"], **how, workers="2 processes"),
        reach=10,
        aim=30,
        versions=versions("apache-beam", "gigatoken", "datasets", "transformers"),
    )


if __name__ == "__main__":
    entry(measure, Bench)
