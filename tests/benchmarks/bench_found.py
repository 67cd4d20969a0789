"""The same build_shards command again: how soon it finds the set by its fingerprint.

    python -m tests.benchmarks.bench_found --megabytes=110

All inputs are hashed for it. The second row is the time of `build_shards.main` in a process that
has imported it.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.clock import Seconds
from tests.benchmarks.corpora import write_corpus, write_tokenizer
from tests.benchmarks.measure import (
    Options,
    Record,
    Side,
    alternated,
    entry,
    run_command,
    seconds_of,
    versions,
)

INSIDE = """
import json, sys, time, tokenizers
from textmill.pipelines import build_shards
began = time.perf_counter(), time.process_time()
build_shards.main(sys.argv[1:])
print(json.dumps([time.perf_counter() - began[0], time.process_time() - began[1]]))
"""


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 110
    """Of text."""


def measure(options: Bench) -> Iterator[Record]:
    """Two rows."""
    with tempfile.TemporaryDirectory() as folder:
        text, tokenizer = Path(folder, "text.txt"), write_tokenizer(Path(folder, "tokenizer.json"))
        size = write_corpus(text, options.megabytes)
        flags = [
            f"--input={text}",
            "--document=line",
            f"--tokenizer={tokenizer}",
            f"--output={folder}/set",
        ]
        seconds_of("pipelines.build_shards", *flags)

        def inside() -> Seconds:
            said = run_command([sys.executable, "-c", INSIDE, *flags])[1]
            return Seconds(*json.loads(said.splitlines()[-1]))

        found = alternated(
            {"whole": lambda: seconds_of("pipelines.build_shards", *flags), "inside": inside},
            options.runs,
        )
    name, used = "a set found by its fingerprint", versions("tokenizers")
    whole = Side.time("the whole command", found["whole"], bytes=size)
    yield Record(f"{name}, s", whole, reach=3, at_most=True, versions=used)
    after = Side.time("after the imports", found["inside"], bytes=size)
    yield Record(f"{name}, after the imports, s", after, aim=1, at_most=True, versions=used)


if __name__ == "__main__":
    entry(measure, Bench)
