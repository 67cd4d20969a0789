"""Times build_shards, the whole command, against the script that people write with `datasets`.

    python -m tests.benchmarks.bench_build_shards --megabytes=110 --runs=3

The script is the language-modelling example's way: load_dataset("text"), map(tokenize) with
`tokenizers`, map(group_texts), two processes. It masks nothing and verifies nothing; ours writes
packed and masked shards and reads them again. The text is every review of ../shared/data (IMDB,
NoReC), a document a line; documents are numbered, so that none is a repeat. Peak memory is that of
all processes together, as the kernel shares it out (PSS), sampled.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import tyro
import zstandard

from pipelines.tokenization import load_tokenizer

DATA = Path(__file__).parents[2].parent / "shared" / "data"
REVIEWS = ("imdb/train", "imdb/test", "norec/train", "norec/valid")

SCRIPT = """
import sys
from itertools import chain
from datasets import load_dataset
from tokenizers import Tokenizer

path, tokenizer_path, output, length = *sys.argv[1:4], int(sys.argv[4])
tokenizer = Tokenizer.from_file(tokenizer_path)
data = load_dataset("text", data_files=path, split="train", cache_dir=output + "/cache")

def tokenize(batch):
    return {"input_ids": [e.ids for e in tokenizer.encode_batch_fast(batch["text"])]}

def group_texts(batch):
    stream = list(chain.from_iterable(batch["input_ids"]))
    whole = len(stream) // length * length
    return {"input_ids": [stream[i : i + length] for i in range(0, whole, length)]}

data = data.map(tokenize, batched=True, num_proc=2, remove_columns=["text"])
data = data.map(group_texts, batched=True, num_proc=2)
data.save_to_disk(output + "/set")
"""


@dataclass(frozen=True)
class Bench:
    """How much, how often."""

    megabytes: int = 110
    """Of text, for ours."""
    script_megabytes: int = 22
    """Of the same text, for the script, which is slow."""
    runs: int = 3
    """Of both, in turn; medians count."""
    max_length: int = 128
    """Tokens a row."""
    tokenizer: str = str(DATA / "tokenizers" / "roberta-base")
    """As build_shards takes it."""
    memory_only: bool = False
    """Only ours, once, for its peak memory. (Sampling it slows the run.)"""
    flags: str = ""
    """More flags for build_shards."""


def write_corpus(path: Path, megabytes: int) -> int:
    """Reviews, a line each, numbered from 0 on, until there are enough: returns the bytes."""
    texts = []
    for name in REVIEWS:
        packed = (DATA / f"{name}.jsonl.zst").read_bytes()
        lines = zstandard.ZstdDecompressor().decompressobj().decompress(packed).split(b"\n")
        texts += [" ".join(json.loads(line)["text"].split()) for line in lines if line]
    written = number = 0
    with open(path, "wb") as file:
        while written < megabytes * 1_000_000:
            written += file.write(f"{number} {texts[number % len(texts)]}\n".encode())
            number += 1
    return written


def seconds_of(command: list[str], environment: dict[str, str]) -> float:
    """Runs a command to its end."""
    began = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


def peak_memory(command: list[str], environment: dict[str, str]) -> tuple[float, int]:
    """Runs a command: its seconds, and the most PSS bytes of it and its children together."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    peak, over = [0], threading.Event()

    def watch() -> None:
        parent = psutil.Process(process.pid)
        while not over.wait(0.05):
            total = 0
            for member in [parent, *_children(parent)]:
                try:
                    total += member.memory_full_info().pss
                except psutil.Error:
                    continue
            peak[0] = max(peak[0], total)

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    seconds = time.perf_counter() - began
    over.set()
    watcher.join()
    if code:
        sys.exit(f"{command} ended with {code}")
    return seconds, peak[0]


def _children(parent: psutil.Process) -> list[psutil.Process]:
    try:
        return parent.children(recursive=True)
    except psutil.Error:
        return []


def main() -> None:
    """Measures and prints."""
    bench = tyro.cli(Bench, use_underscores=True)
    environment = os.environ | {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder, "large.txt"), Path(folder, "small.txt")
        large_bytes = write_corpus(large, bench.megabytes)
        tokenizer = Path(folder, "tokenizer.json")
        tokenizer.write_bytes(load_tokenizer(bench.tokenizer).json)
        ours, theirs = [], []
        output, script = Path(folder, "set"), Path(folder, "script")
        flags = [f"--input={large}", f"--tokenizer={tokenizer}", f"--output={output}"]
        flags += [f"--max_length={bench.max_length}", *bench.flags.split()]
        command = [sys.executable, "-m", "pipelines.build_shards", *flags]
        if bench.memory_only:
            seconds, peak = peak_memory(command, environment)
            print(f"{large_bytes / 1e6:.0f} MB: {seconds:.1f} s, {peak / 1e6:,.0f} MB peak")
            return
        small_bytes = write_corpus(small, bench.script_megabytes)
        their_command = [sys.executable, "-c", SCRIPT, str(small), str(tokenizer), str(script)]
        their_command.append(str(bench.max_length))
        for _ in range(bench.runs):
            ours.append(large_bytes / seconds_of(command, environment) / 1e6)
            theirs.append(small_bytes / seconds_of(their_command, environment) / 1e6)
            shutil.rmtree(output)
            shutil.rmtree(script)
            print(f"build_shards {ours[-1]:.1f} MB/s, the script {theirs[-1]:.2f} MB/s")
        a, b = statistics.median(ours), statistics.median(theirs)
        print(
            f"medians of {bench.runs}: {a:.1f} MB/s ({large_bytes / 1e6:.0f} MB) beside "
            f"{b:.2f} MB/s ({small_bytes / 1e6:.0f} MB): {a / b:.1f} times"
        )


if __name__ == "__main__":
    main()
