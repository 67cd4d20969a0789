"""build_shards --task=tokens beside the preprocessors of the trainers that it writes for.

    python -m tests.benchmarks.bench_tokens

Megatron's is scripts/tokens_megatron.py, with megatron-core's own builder; OLMo-core's is `dolma
tokens`; both of 2 processes. Texts: reviews, each once, as JSON Lines on both sides. Rates are
bytes of text; the baselines take less of it, since they are slow. Start-up counts on both sides.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.benchmarks.baselines import baseline_versions, with_baselines
from tests.benchmarks.clock import Seconds
from tests.benchmarks.commands import build_set, workers
from tests.benchmarks.corpora import review_texts, write_json_lines, write_tokenizer
from tests.benchmarks.measure import (
    Options,
    Record,
    Side,
    alternated,
    entry,
    seconds_of,
    versions,
)

_PINS = {"megatron-core": "baselines", "dolma": "dolma"}
_OF_DOLMA = (
    *("--tokenizer.bos_token_id=0", "--tokenizer.eos_token_id=2", "--tokenizer.pad_token_id=1"),
    *("--processes=2", "--dtype=uint16"),
)


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 92
    """Of text, for ours: all reviews."""
    peer_megabytes: float = 22
    """Of the same text, for the peer."""


def measure(options: Bench) -> Iterator[Record]:
    """A row a peer."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        large, small = scratch / "large.jsonl", scratch / "small.jsonl"
        large_bytes = write_json_lines(large, options.megabytes, review_texts())
        small_bytes = write_json_lines(small, options.peer_megabytes, review_texts())
        tokenizer = write_tokenizer(scratch / "tokenizer.json")

        halves = _write_halves(small)

        def ours(file_format: str) -> Seconds:
            flags = ("--task=tokens", f"--file_format={file_format}")
            return build_set(scratch / "set", large, tokenizer, *flags)

        def megatron(python: str) -> Seconds:
            given = (small, tokenizer, tempfile.mkdtemp(dir=scratch))
            return seconds_of("tests.benchmarks.scripts.tokens_megatron", *given, python=python)

        def dolma(python: str) -> Seconds:
            given = ("--documents", *halves, "--destination", tempfile.mkdtemp(dir=scratch))
            older = _write_older(tokenizer)
            words = ("tokens", f"--tokenizer.name_or_path={older}", *_OF_DOLMA, *given)
            return seconds_of("dolma.cli", *words, python=python)

        contestants = {
            "megatron": (with_baselines(megatron), "IndexedDatasetBuilder", "megatron-core"),
            "npy": (with_baselines(dolma, "dolma"), "dolma tokens", "dolma"),
        }
        for file_format, (theirs, name, package) in contestants.items():
            both = {"ours": partial(ours, file_format), "theirs": theirs}
            found = alternated(both, options.runs)
            how = {"bytes": large_bytes, "workers": workers(large)}
            side = f"build_shards --task=tokens --file_format={file_format}"
            yield Record(
                f"build_shards tokens beside {name}",
                Side.rate(side, found["ours"], large_bytes / 1e6, "MB", **how),
                Side.rate(
                    name,
                    found["theirs"],
                    small_bytes / 1e6,
                    "MB",
                    bytes=small_bytes,
                    workers="2 processes",
                ),
                reach=15,
                versions=versions("apache-beam", "gigatoken")
                | baseline_versions(package, "tokenizers", pins=_PINS[package]),
            )


def _write_halves(text: Path) -> list[Path]:
    """Two files of the lines, as dolma's processes take them, each with an id."""
    halves = [text.with_suffix(f".{number}.jsonl") for number in range(2)]
    lines = text.read_text(encoding="utf-8").split("\n")[:-1]
    for number, half in enumerate(halves):
        some = (json.loads(line) | {"id": str(i)} for i, line in enumerate(lines[number::2]))
        half.write_text("".join(json.dumps(document) + "\n" for document in some))
    return halves


def _write_older(tokenizer: Path) -> Path:
    """The tokenizer.json as tokenizers 0.19 reads it: merges are texts."""
    values = json.loads(tokenizer.read_bytes())
    values["model"]["merges"] = [" ".join(pair) for pair in values["model"]["merges"]]
    older = tokenizer.with_name("older.json")
    older.write_text(json.dumps(values))
    return older


if __name__ == "__main__":
    entry(measure, Bench)
