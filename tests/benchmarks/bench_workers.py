"""build_shards with two worker processes beside one.

    python -m tests.benchmarks.bench_workers --megabytes=400

Both in Beam's multi_processing mode, start-up of the workers (some 2 s) included on both sides.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.benchmarks.commands import build_set
from tests.benchmarks.corpora import write_corpus, write_tokenizer
from tests.benchmarks.measure import Options, Record, Side, alternated, entry, versions


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 400
    """Of text."""
    workers: int = 2
    """Processes, beside one."""


def measure(options: Bench) -> Iterator[Record]:
    """One row."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        text, tokenizer = scratch / "text.txt", write_tokenizer(scratch / "tokenizer.json")
        size = write_corpus(text, options.megabytes)
        counts = (options.workers, 1)
        given = {
            n: ("--direct_running_mode=multi_processing", f"--direct_num_workers={n}")
            for n in counts
        }
        found = alternated(
            {
                str(n): partial(build_set, scratch / "set", text, tokenizer, *given[n])
                for n in counts
            },
            options.runs,
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
        for n in counts
    )
    name = f"build_shards mlm, {options.workers} worker processes beside 1"
    ours, one = (replace(side, by_cpu=()) for side in (ours, one))  # which are not to be fewer
    yield Record(name, ours, one, reach=1.7, aim=1.9, versions=versions("apache-beam"))


if __name__ == "__main__":
    entry(measure, Bench)
