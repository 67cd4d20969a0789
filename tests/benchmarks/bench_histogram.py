"""train_tokenizer --from_histogram, for a different vocabulary size, beside training anew.

    python -m tests.benchmarks.bench_histogram --megabytes=400

Both whole commands. What is saved is reading and counting the text, so the ratio grows with it;
what remains is start-up and the merges.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.commands import train, workers
from tests.benchmarks.corpora import write_corpus
from tests.benchmarks.measure import Options, Record, Side, alternated, entry, versions


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 400
    """Of text."""
    vocab_size: int = 32000
    """Of the tokenizer that is trained first."""
    other_vocab_size: int = 16000
    """Of the one that both make."""


def measure(options: Bench) -> Iterator[Record]:
    """One row."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        text = scratch / "text.txt"
        size = write_corpus(text, options.megabytes)
        train(scratch / "first", f"--input={text}", f"--vocab_size={options.vocab_size}")
        histogram = f"--from_histogram={scratch / 'first' / 'histogram.parquet'}"
        other = f"--vocab_size={options.other_vocab_size}"
        found = alternated(
            {
                "histogram": lambda: train(scratch / "a", histogram, other),
                "anew": lambda: train(scratch / "b", f"--input={text}", other),
            },
            options.runs,
        )
        yield Record(
            "from_histogram beside training anew",
            Side.time("--from_histogram", found["histogram"]),
            Side.time("--input", found["anew"], bytes=size, workers=workers(text)),
            reach=20,
            versions=versions("apache-beam", "gigatoken", "numba"),
        )


if __name__ == "__main__":
    entry(measure, Bench)
