"""build_corpus and build_shards with two worker processes beside one, and MB/s a core.

    python -m tests.benchmarks.bench_workers
    python -m tests.benchmarks.bench_workers --megabytes=2500 --runs=1
    python -m tests.benchmarks.bench_workers --corpus --corpus_flags=--near_duplicates=jaccard:0.8

JSON Lines become shards; with --corpus also a corpus, and the corpus becomes shards. Workers are
processes of Beam's multi_processing mode; start-up (some 2 s) counts on both sides. A core's rate
is that of one worker by processor time.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.benchmarks import corpora
from tests.benchmarks.clock import Seconds
from tests.benchmarks.commands import build_corpus, build_set
from tests.benchmarks.measure import Options, Record, Side, alternated, entry, versions

REACH, AIM = 1.7, 1.85  # of two workers


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 400
    """Of text."""
    workers: int = 2
    """Processes, beside one."""
    text: str = "all"
    """`reviews`, `sources` or `all`."""
    corpus: bool = False
    """Also build_corpus, and build_shards of the corpus."""
    corpus_flags: str = ""
    """More flags for build_corpus."""


def measure(options: Bench) -> Iterator[Record]:
    """Two rows for each command and input."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        text, corpus = scratch / "text.jsonl", scratch / "corpus"
        tokenizer = corpora.write_tokenizer(scratch / "tokenizer.json")
        texts = corpora.TEXTS[options.text]()
        size = corpora.write_json_lines(text, options.megabytes, texts)
        flags = options.corpus_flags.split()
        shards = partial(build_set, scratch / "set")
        commands = {"build_shards mlm, JSON Lines": partial(shards, text, tokenizer)}
        if options.corpus:
            commands["build_corpus"] = partial(build_corpus, corpus, text, *flags)
            commands["build_shards mlm, a corpus"] = partial(shards, corpus, tokenizer)
        for name, command in commands.items():
            yield from _measure(name, command, options, size)


def _measure(
    name: str, command: Callable[..., Seconds], options: Bench, size: int
) -> Iterator[Record]:
    used = versions("apache-beam")
    given = {
        n: ("--direct_running_mode=multi_processing", f"--direct_num_workers={n}")
        for n in (options.workers, 1)
    }
    found = alternated(
        {str(n): partial(command, *flags) for n, flags in given.items()}, options.runs
    )
    ours, one = (
        Side.rate(
            f"{n} worker{'s' * (n > 1)}",
            found[str(n)],
            size / 1e6,
            "MB",
            bytes=size,
            workers=f"{n} processes",
        )
        for n in given
    )
    row = f"{name}, {options.workers} worker processes beside 1"
    yield Record(row, ours, one, REACH, AIM, versions=used)
    core = Side(name, one.unit, one.by_cpu, bytes=size, note=one.note)
    yield Record(f"{name}, a core by processor time", core, None, versions=used)


if __name__ == "__main__":
    entry(measure, Bench)
