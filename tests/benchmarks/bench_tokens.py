"""build_shards --task=tokens beside the preprocessors of the trainers that it writes for.

    python -m tests.benchmarks.bench_tokens

Megatron's is scripts/tokens_megatron.py, with megatron-core's own builder; 2 processes. Texts:
numbered reviews, as JSON Lines on both sides. Rates are bytes of text; the peer takes less of it,
since it is slow. Start-up counts on both sides.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.clock import Seconds
from tests.benchmarks.commands import build_set, workers
from tests.benchmarks.corpora import write_json_lines, write_tokenizer
from tests.benchmarks.measure import (
    Options,
    Record,
    Side,
    alternated,
    entry,
    seconds_of,
    versions,
)
from tests.benchmarks.peers import peer_versions, with_peers


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 110
    """Of text, for ours."""
    peer_megabytes: float = 5
    """Of the same text, for the peer."""


def measure(options: Bench) -> Iterator[Record]:
    """A row a peer."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        large, small = scratch / "large.jsonl", scratch / "small.jsonl"
        large_bytes = write_json_lines(large, options.megabytes)
        small_bytes = write_json_lines(small, options.peer_megabytes)
        tokenizer = write_tokenizer(scratch / "tokenizer.json")

        def ours() -> Seconds:
            flags = ("--task=tokens", "--file_format=megatron")
            return build_set(scratch / "set", large, tokenizer, *flags)

        def megatron(python: str) -> Seconds:
            given = (small, tokenizer, tempfile.mkdtemp(dir=scratch))
            return seconds_of("tests.benchmarks.scripts.tokens_megatron", *given, python=python)

        found = alternated({"ours": ours, "megatron": with_peers(megatron)}, options.runs)
        how = {"bytes": large_bytes, "workers": workers(large)}
        side = Side.rate(
            "build_shards --task=tokens", found["ours"], large_bytes / 1e6, "MB", **how
        )
    yield Record(
        "build_shards tokens beside Megatron's preprocessor",
        side,
        Side.rate(
            "IndexedDatasetBuilder",
            found["megatron"],
            small_bytes / 1e6,
            "MB",
            bytes=small_bytes,
            workers="2 processes",
        ),
        reach=15,
        versions=versions("apache-beam", "gigatoken")
        | peer_versions("megatron-core", "tokenizers"),
    )


if __name__ == "__main__":
    entry(measure, Bench)
