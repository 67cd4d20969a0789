"""Times train_tokenizer against the trainer of `tokenizers` on the same documents.

    python -m tests.benchmarks.bench_train_tokenizer --vocab_size 32000 --runs=3

Ours is the whole command, start-up included. Theirs is `train_from_iterator` alone: reading is left
out of it. Prints seconds, the ratio, and how many merges and ids were compared and differ.
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro
from tokenizers import ByteLevelBPETokenizer

from pipelines.sources import Source, plan_blocks, read_block
from tests.benchmarks.bench_build_shards import write_corpus

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


@dataclass(frozen=True)
class Bench:
    """What to compare."""

    input: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Files, as for train_tokenizer; none: 110 MB of reviews, each made unique."""
    vocab_size: tuple[int, ...] = (32000,)
    """Vocabulary sizes; all but the first of ours come from the histogram."""
    document: str = "line"
    """As for train_tokenizer."""
    min_frequency: int = 2
    """As for train_tokenizer."""
    add_prefix_space: bool = False
    """As for train_tokenizer."""
    runs: int = 1
    """Of ours; the fastest counts."""


def main() -> None:
    """Finds or makes the text."""
    bench = tyro.cli(Bench, use_underscores=True)
    with tempfile.TemporaryDirectory() as folder:
        if not bench.input:
            corpus = Path(folder, "reviews.txt")
            write_corpus(corpus, 110)
            bench = replace(bench, input=(str(corpus),))
        run(bench)


def run(bench: Bench) -> None:
    """Reads the documents for theirs, then times both on each vocabulary size."""
    source = Source(bench.input, bench.document)
    documents = [
        text
        for block in plan_blocks(source)
        for piece in read_block(block, source)
        for text in piece.text.to_pylist()
    ]
    print(f"{len(documents):,} documents, {sum(len(d.encode()) for d in documents) / 1e6:.1f} MB")
    with tempfile.TemporaryDirectory() as folder:
        histogram = None
        for vocab_size in bench.vocab_size:
            seconds = []
            for _ in range(bench.runs):
                began = time.perf_counter()
                ours(bench, vocab_size, f"{folder}/{vocab_size}", histogram)
                seconds.append(time.perf_counter() - began)
            began = time.perf_counter()
            theirs = train_theirs(bench, vocab_size, documents)
            their_seconds = time.perf_counter() - began
            compare(vocab_size, Path(folder) / str(vocab_size) / "tokenizer.json", theirs)
            print(
                f"  ours {min(seconds):.2f} s{' from the histogram' if histogram else ''}, "
                f"tokenizers {their_seconds:.2f} s, ratio {their_seconds / min(seconds):.1f}"
            )
            histogram = f"{folder}/{vocab_size}/histogram.parquet"


def ours(bench: Bench, vocab_size: int, output: str, histogram: str | None) -> None:
    """The whole command in a process of its own."""
    given = (
        [f"--from_histogram={histogram}"]
        if histogram
        else [*(f"--input={pattern}" for pattern in bench.input), f"--document={bench.document}"]
    )
    command = [sys.executable, "-m", "pipelines.train_tokenizer", *given, "--overwrite"]
    command += [f"--vocab_size={vocab_size}", f"--min_frequency={bench.min_frequency}"]
    command += ["--add_prefix_space"] if bench.add_prefix_space else []
    subprocess.run([*command, f"--output={output}"], check=True, stdout=subprocess.DEVNULL)


def train_theirs(bench: Bench, vocab_size: int, documents: list[str]) -> dict:
    """The model part of the tokenizer.json that `tokenizers` makes."""
    tokenizer = ByteLevelBPETokenizer(add_prefix_space=bench.add_prefix_space)
    tokenizer.train_from_iterator(
        documents,
        vocab_size=vocab_size,
        min_frequency=bench.min_frequency,
        special_tokens=SPECIALS,
        show_progress=False,
    )
    return json.loads(tokenizer.to_str())["model"]


def compare(vocab_size: int, ours: Path, theirs: dict) -> None:
    """Prints how many merges and ids there are and how many differ."""
    mine = json.loads(ours.read_text())["model"]
    merges = sum(a != b for a, b in zip(mine["merges"], theirs["merges"], strict=False))
    merges += abs(len(mine["merges"]) - len(theirs["merges"]))
    ids = len(mine["vocab"].items() ^ theirs["vocab"].items())
    print(
        f"vocabulary {vocab_size:,}: {len(mine['merges']):,} merges, {merges} different; "
        f"{len(mine['vocab']):,} ids, {ids} different"
    )


if __name__ == "__main__":
    main()
