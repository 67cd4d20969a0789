"""build_shards with tokenizers of every family, each beside the `datasets` script.

    python -m tests.benchmarks.bench_families --families "Llama 3" "BERT uncased" --megabytes=40
    python -m tests.benchmarks.bench_families --families published --megabytes=250

Published vocabularies come from packages (tests/tools/published_tokenizers.py) and from the real
data (GPT-2, BERT uncased). The others are trained on reviews in the form of published tokenizers
(tests/tools/tokenizer_families.py). Texts are numbered reviews. The script takes fewer of them,
since it is slow; start-up counts on both sides. Memory is that of our command and its processes.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.benchmarks import corpora
from tests.benchmarks.bench_memory import peak_memory
from tests.benchmarks.clock import Seconds
from tests.benchmarks.commands import build_command, build_set, workers
from tests.benchmarks.measure import (
    Options,
    Record,
    Side,
    alternated,
    entry,
    seconds_of,
    versions,
)
from tests.tools.places import DATA
from tests.tools.published_tokenizers import PUBLISHED, write_published
from tests.tools.tokenizer_families import FAMILIES, train_family

IN_DATA = {"BERT uncased": "bert-base-uncased", "GPT-2": "gpt2"}
WITHOUT_SPACES = ("T5, XLM-R", "T5 by Metaspace", "ALBERT", "Mistral v7")  # words are not cut first
GROUPS = {"all": tuple(FAMILIES), "published": ("GPT-2", *PUBLISHED)}


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    families: tuple[str, ...] = ("Llama 3", "o200k (gpt-oss)", "BERT uncased", "T5, XLM-R")
    """Names, or a group of them: `all` that are trained here, `published` vocabularies."""
    megabytes: float = 400
    """Of text, for ours."""
    script_megabytes: float = 22
    """Of the same text, for the script."""
    vocab_size: int = 32000
    """Of tokenizers that are trained here."""
    training_megabytes: float = 20
    """Of text, to train them."""
    runs: int = 1
    """Of each side, in turn; medians count."""


def measure(options: Bench) -> Iterator[Record]:
    """A row a family, of speed, and one of memory."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        large, small = scratch / "large.txt", scratch / "small.txt"
        large_bytes = corpora.write_corpus(large, options.megabytes)
        small_bytes = corpora.write_corpus(small, options.script_megabytes)
        for name in chain.from_iterable(GROUPS.get(n, (n,)) for n in options.families):
            _write_tokenizer(scratch / "tokenizer.json", name, options)
            texts = (large, large_bytes), (small, small_bytes)
            yield from _measure(name, options.runs, scratch, *texts)


def _measure(
    name: str, runs: int, scratch: Path, large: tuple[Path, int], small: tuple[Path, int]
) -> Iterator[Record]:
    tokenizer, output = scratch / "tokenizer.json", scratch / "set"
    flags = ("--task=clm", "--max_length=128")
    if name in PUBLISHED:  # a tokenizer.json alone does not name every end of a text
        flags += ("--no_eos",)

    def script() -> Seconds:
        given = (small[0], tokenizer, tempfile.mkdtemp(dir=scratch), "128")
        return seconds_of("tests.benchmarks.scripts.mlm_datasets", *given)

    found = alternated(
        {"ours": lambda: build_set(output, large[0], tokenizer, *flags), "script": script}, runs
    )
    ours = Side.rate(
        "build_shards",
        found["ours"],
        large[1] / 1e6,
        "MB",
        bytes=large[1],
        workers=workers(large[0]),
    )
    theirs = Side.rate(
        "the script", found["script"], small[1] / 1e6, "MB", bytes=small[1], workers="2 processes"
    )
    used = versions("apache-beam", "tokenizers", "datasets")
    reach = 8 if name in WITHOUT_SPACES else 15
    yield Record(f"build_shards, {name}", ours, theirs, reach=reach, versions=used)
    held = peak_memory(build_command(output, large[0], tokenizer, *flags))
    side = Side("build_shards", "MB", (held,), bytes=large[1], workers=workers(large[0]))
    yield Record(f"memory of build_shards, {name}", side, at_most=True, versions=used)


def _write_tokenizer(path: Path, name: str, options: Bench) -> Path:
    if name in PUBLISHED:
        return write_published(name, path)
    in_data = IN_DATA.get(name, "")
    if in_data and (DATA / "tokenizers" / in_data).exists():
        return corpora.write_tokenizer(path, in_data)
    texts = [r["text"] for r in corpora.numbered(options.training_megabytes, *corpora.REVIEWS)]
    train_family(name, texts, options.vocab_size).save(str(path))
    return path


if __name__ == "__main__":
    entry(measure, Bench)
