"""Textmill's own commands as contestants: into a fresh directory each time, start-up included."""

import json
import shutil
import sys
from pathlib import Path

from tests.benchmarks.clock import Seconds
from tests.benchmarks.measure import run_command, seconds_of
from textmill.pipelines.runners.launch import choose_runner


def build_set(
    output: Path, text: Path, tokenizer: Path, *flags: str, keep: bool = False
) -> Seconds:
    """build_shards on one input; what it wrote is removed unless it is to be kept."""
    seconds, _ = run_command(build_command(output, text, tokenizer, *flags))
    if not keep:
        shutil.rmtree(output)
    return seconds


def build_command(output: Path, text: Path, tokenizer: Path, *flags: str) -> list[str]:
    """build_shards on one input, into a directory that is removed first."""
    shutil.rmtree(output, ignore_errors=True)
    given = [f"--input={text}", f"--tokenizer={tokenizer}", f"--output={output}"]
    given += ["--document=line"] * (text.is_file() and text.suffix != ".jsonl")
    return [sys.executable, "-m", "pipelines.build_shards", *given, *flags]


def build_corpus(output: Path, text: Path, *flags: str) -> Seconds:
    """build_corpus on one input, into a directory that is removed first, and kept."""
    shutil.rmtree(output, ignore_errors=True)
    return seconds_of("pipelines.build_corpus", f"--input={text}", f"--output={output}", *flags)


def train(output: Path, *flags: str) -> Seconds:
    """train_tokenizer, again even if it is there."""
    return seconds_of(
        "pipelines.train_tokenizer", *flags, f"--output={output}", "--document=line", "--overwrite"
    )


def workers(text: Path) -> str:
    """What a command without a runner's flags takes for an input: "2 threads"."""
    flags, _ = choose_runner([], text.stat().st_size)
    number = [flag.partition("=")[2] for flag in flags if flag.startswith("--direct_num_workers=")]
    if not number:
        return "1 process"
    processes = "--direct_running_mode=multi_processing" in flags
    return f"{number[0]} {'processes' if processes else 'threads'}"


def shard_bytes(directory: Path) -> int:
    """Of all shards of a set."""
    manifest = json.loads((directory / "MANIFEST.json").read_text())
    return sum(file["bytes"] for file in manifest["files"] if file["rows"] is not None)
