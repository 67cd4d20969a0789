"""Encoding alone: the engine of build_shards beside `tokenizers`, on every corpus at hand.

    python -m tests.benchmarks.bench_tokenization

Ours in one thread, guard included, with an empty cache at each run; `tokenizers` in as many threads
as there are cores, on each tenth document. That the ids are equal is compare_tokenization's work.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from tokenizers import Tokenizer

from tests.benchmarks.clock import Seconds, timed
from tests.benchmarks.compare_tokenization import corpora
from tests.benchmarks.measure import Options, Record, Side, alternated, entry, needs, versions
from tests.tools.places import DATA
from textmill.pipelines.encoding.backends import FastBackend
from textmill.pipelines.encoding.reference import Backend, ReferenceBackend
from textmill.pipelines.encoding.tokenizer import load_tokenizer


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    share: float = 1.0
    """Of each corpus."""


def measure(options: Bench) -> Iterator[Record]:
    """A row a corpus."""
    json = load_tokenizer(needs(DATA / "tokenizers" / "roberta-base")).json
    reference = ReferenceBackend(Tokenizer.from_buffer(json))

    def encode(engine: Backend, text: pa.LargeStringArray) -> Seconds:
        engine.encode(pa.array(["loads it"], pa.large_string()))
        return timed(lambda: engine.encode(text))[0]

    for name, documents in corpora(DATA).items():
        text = pa.array(documents[: int(len(documents) * options.share) + 1], pa.large_string())
        tenth = text.take(pa.array(range(0, len(text), 10)))
        found = alternated(
            {
                "ours": lambda text=text: encode(FastBackend(json, reference), text),
                "tokenizers": lambda tenth=tenth: encode(reference, tenth),
            },
            options.runs,
        )
        yield Record(
            f"encoding {name}",
            Side.rate(
                "gigatoken with its guard",
                found["ours"],
                text.nbytes / 1e6,
                "MB",
                bytes=text.nbytes,
                workers="1 thread",
            ),
            Side.rate(
                "tokenizers",
                found["tokenizers"],
                tenth.nbytes / 1e6,
                "MB",
                bytes=tenth.nbytes,
                workers="a thread a core",
            ),
            versions=versions("gigatoken", "tokenizers"),
        )


if __name__ == "__main__":
    entry(measure, Bench)
