"""train_tokenizer by each splitting pattern, beside its own GPT-2 pattern and beside `tokenizers`.

    python -m tests.benchmarks.bench_patterns --megabytes=110

Ours are whole commands; of `tokenizers` (2 threads) only training counts. Patterns with a name, and
one of those that are not compiled here, so that `tokenizers` cuts the words of ours too.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.bench_train_tokenizer import differences
from tests.benchmarks.clock import Seconds
from tests.benchmarks.commands import train, workers
from tests.benchmarks.corpora import write_corpus
from tests.benchmarks.measure import Options, Record, Side, alternated, entry, reported, versions

GPT2 = "gpt2"
REFUSED = r"(?<=\d)\D|\p{L}+|\d+|\s+|."
PATTERNS = (GPT2, "cl100k", "o200k", "llama3", "qwen2", "digits:2", REFUSED)


@dataclass(frozen=True)
class Bench(Options):
    """What to compare."""

    megabytes: float = 22
    """Of text."""
    vocab_size: int = 32000
    """Of all."""
    others: bool = True
    """Train by `tokenizers` too."""


def measure(options: Bench) -> Iterator[Record]:
    """Two rows for each pattern but GPT-2's."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        text, size = scratch / "text.txt", f"--vocab_size={options.vocab_size}"
        read = write_corpus(text, options.megabytes)

        def ours(pattern: str) -> Seconds:
            output = scratch / f"ours{PATTERNS.index(pattern)}"
            return train(output, f"--input={text}", size, f"--pattern={pattern}")

        def theirs(pattern: str) -> Seconds:
            output = scratch / f"theirs{PATTERNS.index(pattern)}.json"
            flags = (text, str(options.vocab_size), output, pattern)
            return Seconds(*reported("tests.benchmarks.scripts.train_tokenizers", *flags))

        contestants = {(pattern, True): lambda p=pattern: ours(p) for pattern in PATTERNS}
        if options.others:
            contestants |= {(pattern, False): lambda p=pattern: theirs(p) for pattern in PATTERNS}
        found = alternated({str(key): run for key, run in contestants.items()}, options.runs)
        for i, pattern in enumerate(PATTERNS):
            name = f"train_tokenizer --pattern={pattern}, {read / 1e6:,.0f} MB"
            runs, their_runs = found[str((pattern, True))], found.get(str((pattern, False)))
            mine = Side.time("train_tokenizer", runs, bytes=read, workers=workers(text))
            if pattern != GPT2:
                beside = Side.time("--pattern=gpt2", found[str((GPT2, True))], bytes=read)
                named = pattern != REFUSED
                yield Record(
                    f"{name}, beside gpt2", mine, beside, 1.3 if named else None, None, True
                )
            if their_runs is not None:
                note = ""
                if not (runs.reason or their_runs.reason):
                    made = scratch / f"ours{i}" / "tokenizer.json"
                    note = differences(made, scratch / f"theirs{i}.json")
                beside = Side.time("tokenizers", their_runs, bytes=read, note=note)
                reach = 1 if pattern == REFUSED else 3
                yield Record(name, mine, beside, reach, versions=versions("tokenizers", "numba"))


if __name__ == "__main__":
    entry(measure, Bench)
