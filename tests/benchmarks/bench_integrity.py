"""What build_shards pays for its proofs: the whole command beside one without each of them.

    python -m tests.benchmarks.bench_integrity --megabytes=250

Deliveries, sha256 of what is written, xxh3 of what is read, and waiting for the disk are switched
off one at a time and together, by replacing their functions (scripts/build_without.py).
"""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.benchmarks.clock import Seconds
from tests.benchmarks.corpora import write_corpus, write_tokenizer
from tests.benchmarks.measure import (
    Options,
    Record,
    Side,
    alternated,
    entry,
    seconds_of,
    versions,
)
from tests.benchmarks.scripts.build_without import PARTS


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 250
    """Of text."""


def measure(options: Bench) -> Iterator[Record]:
    """A row a proof, and one for all of them."""
    off = {"all": ",".join(PARTS), **{name: name for name in PARTS}}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        text, tokenizer = scratch / "text.txt", write_tokenizer(scratch / "tokenizer.json")
        size = write_corpus(text, options.megabytes)
        sides = {"none": "", **off}
        build = partial(_build, scratch / "set", text, tokenizer)
        found = alternated({n: partial(build, parts) for n, parts in sides.items()}, options.runs)
    more = {"bytes": size, "workers": "2 threads"}
    whole = Side.time("build_shards clm", found["none"], **more)
    for name in off:
        without = Side.time(f"without {name}", found[name], **more)
        reach = 1.03 if name == "all" else None
        row = f"the price of {'all proofs' if name == 'all' else name}"
        used = versions("apache-beam", "xxhash")
        yield Record(row, whole, without, reach=reach, at_most=True, versions=used)


def _build(output: Path, text: Path, tokenizer: Path, parts: str) -> Seconds:
    flags = [f"--input={text}", f"--tokenizer={tokenizer}", f"--output={output}"]
    flags += ["--task=clm", "--max_length=128", "--document=line"]
    flags += ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]
    shutil.rmtree(output, ignore_errors=True)
    return seconds_of("tests.benchmarks.scripts.build_without", parts, *flags)


if __name__ == "__main__":
    entry(measure, Bench)
