"""Encoding alone, in one thread: build_shards' backend beside gigatoken, snaptokens and tokenizers.

    python -m tests.benchmarks.bench_tokenization
    python -m tests.benchmarks.bench_tokenization --texts sources --vocabularies GPT-2 --runs=1

A row for each text, vocabulary, pass and contestant, of MB per CPU second. In the first pass all
words are new, in the second none is. That the ids are equal is compare_tokenization's work.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.benchmarks import corpora
from tests.benchmarks.baselines import baseline_versions, with_baselines
from tests.benchmarks.bench_build_shards import write_vocabulary
from tests.benchmarks.measure import (
    CannotRun,
    Options,
    Record,
    Runs,
    Side,
    alternated,
    entry,
    reported,
    versions,
)

SCRIPT = "tests.benchmarks.scripts.encode_twice"
VOCABULARIES = ("GPT-2", "cl100k", "o200k", "Qwen", "DeepSeek V3", "Claude", "Mistral v7", "BERT")
PINS = {"tokenizers": "tokenizers_1", "snaptokens": "snaptokens"}
REACH, AIM = 0.9, 1.2  # times the fastest


@dataclass(frozen=True)
class Bench(Options):
    """What to measure."""

    texts: tuple[str, ...] = ("sources", "reviews")
    """`reviews` or `sources`."""
    vocabularies: tuple[str, ...] = (*VOCABULARIES, "T5, XLM-R")
    """Published ones, or families to train on reviews."""
    megabytes: float = 20
    """Of each text."""


def measure(options: Bench) -> Iterator[Record]:
    """A row for each text, vocabulary, contestant and pass."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for text in options.texts:
            documents = scratch / f"{text}.jsonl"
            corpora.write_json_lines(documents, options.megabytes, corpora.TEXTS[text]())
            for name in options.vocabularies:
                tokenizer = write_vocabulary(name, scratch / "tokenizer.json")
                yield from _measure(options, f"{text}, {name}", documents, tokenizer)


def _measure(options: Bench, row: str, documents: Path, tokenizer: Path) -> Iterator[Record]:
    def run(engine: str) -> dict[str, float]:
        python = with_baselines(str, PINS[engine])() if engine in PINS else sys.executable
        return reported(SCRIPT, engine, documents, tokenizer, python=python)

    engines = ("textmill", "gigatoken", "snaptokens", "tokenizers")
    found = alternated({engine: partial(run, engine) for engine in engines}, options.runs)
    if not found["textmill"]:
        raise CannotRun(found["textmill"].reason)
    used = versions("gigatoken") | {
        package: version
        for package, pins in PINS.items()
        for package, version in baseline_versions(package, pins=pins).items()
    }
    for engine in engines[1:]:
        for part in ("first", "second"):
            ours, theirs = (_side(name, found[name], part) for name in ("textmill", engine))
            name = f"encoding {row}, {part} pass, beside {engine}"
            yield Record(name, ours, theirs, REACH, AIM, versions=used)
    ours, theirs = (_side(name, found[name], "load") for name in ("textmill", "gigatoken"))
    yield Record(f"loading {row}", ours, theirs, versions=used)


def _side(engine: str, runs: Runs[dict[str, float]], part: str) -> Side:
    values = Runs(run[part] for run in runs)
    values.reason = runs.reason
    unit = "CPU s" if part == "load" else "MB/s"
    return Side.values(engine, unit, values, workers="1 thread")


if __name__ == "__main__":
    entry(measure, Bench)
