r"""Kills runs at random moments until each has made its set.

    python -m tests.stress.killed_at_random [--build='--task=tokens --file_format=npy']
    python -m tests.stress.killed_at_random --command=build_corpus --rounds=20 \
        --build='--near_duplicates=jaccard:0.8 --num_files=4'

A round makes one set by attempts that differ in how they run and in whether they --resume. Each but
the last few is cut off: the command, or one of its processes, by SIGKILL, Ctrl-C or SIGTERM.
Defects are another exit code than 0, 1 or that of the signal, a traceback, a command that goes on
for two minutes, and a set that is not byte for byte that of an uninterrupted run. Exit code 1 if
there was one; the table shows the rounds, and counts last messages.
"""

import json
import os
import pydoc_data.topics
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
import tyro

from tests.tools.file_sums import file_sums
from tests.tools.places import ROOT
from tests.tools.prism import started_prism
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import DataError

PRISM = "prism"  # the flags of a running one
WAYS = (
    [],
    ["--shuffle_by=runner"],
    ["--direct_running_mode=multi_threading", "--direct_num_workers=2"],
    ["--direct_running_mode=multi_processing", "--direct_num_workers=2"],
    [PRISM],
)
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
CUT_OFF = 6  # attempts of a round, at most; later ones may end
HANGS_SECONDS = 120


@dataclass(frozen=True)
class Options:
    """How much is killed."""

    rounds: int = 10
    """Sets to be made."""
    seed: int = 1
    """Seed of the ways, moments and victims."""
    longest: float = 4.5
    """Seconds after which an attempt is cut off, at most."""
    copies: int = 30
    """Copies of Python's own help, 0.5 MB each: a run should take longer than `longest`."""
    command: Literal["build_shards", "build_corpus"] = "build_shards"
    """The command to kill."""
    build: str = ""
    """Its flags; documents have the fields text and messages."""


def main(argv: list[str]) -> None:
    """Runs the rounds, prints a line for each."""
    options = tyro.cli(
        Options, prog="python -m tests.stress.killed_at_random", args=argv, use_underscores=True
    )
    draw = random.Random(options.seed)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # in the background it is ignored
    with tempfile.TemporaryDirectory(prefix="textmill-killed-") as name:
        folder = Path(name)
        _write_text(folder, options.copies)
        _run(folder, "bpe", "train_tokenizer", "--vocab_size=4000").communicate()
        _run(folder, "whole", options.command, *options.build.split()).communicate()
        due, said, defects = file_sums(folder / "whole"), Counter[str](), 0
        print("| round | attempts | cut off | set |\n|---|---|---|---|")
        for number in range(options.rounds):
            shutil.rmtree(folder / "set", ignore_errors=True)
            attempts = cut = 0
            while not (folder / "set" / "MANIFEST.json").exists():
                longest = options.longest if attempts < CUT_OFF else HANGS_SECONDS
                cut += _attempt(folder, draw, longest, options, said)
                attempts += 1
            same = file_sums(folder / "set") == due
            defects += not same
            print(
                f"| {number} | {attempts} | {cut} | {'same' if same else 'ANOTHER'} |", flush=True
            )
        for words, count in said.most_common():
            print(f"{count} x {words}")
        defects += sum(count for words, count in said.items() if words.startswith("DEFECT"))
    if defects:
        raise DataError(f"{defects} defects")


def _write_text(folder: Path, copies: int) -> None:
    for part in range(3):
        with open(folder / f"text{part}.jsonl", "w") as file:
            for copy in range(part, copies, 3):
                for topic in pydoc_data.topics.topics.values():
                    text = f"{copy} {topic}"
                    said = {"user": topic[:40], "assistant": text}
                    messages = [{"role": r, "content": c} for r, c in said.items()]
                    file.write(json.dumps({"text": text, "messages": messages}) + "\n")


def _run(folder: Path, output: str, command: str, *flags: str) -> subprocess.Popen:
    line = [sys.executable, "-m", f"pipelines.{command}", f"--input={folder}/text*.jsonl"]
    if command == "build_shards":
        line += [f"--tokenizer={folder}/bpe", "--num_shards=5"]
    return subprocess.Popen(
        [*line, f"--output={folder / output}", *flags],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _attempt(
    folder: Path,
    draw: random.Random,
    longest: float,
    options: Options,
    said: Counter[str],
) -> bool:
    """One run; whether it was cut off. Its last message is counted."""
    way = draw.choice(WAYS)
    flags = [*options.build.split(), *(started_prism() if way == [PRISM] else way)]
    if options.command == "build_shards":
        flags += draw.choice(([], ["--resume"]))
    run = _run(folder, "set", options.command, *flags)
    cut = False
    try:
        run.wait(draw.uniform(1, longest) if longest < HANGS_SECONDS else longest)
    except subprocess.TimeoutExpired:
        cut = longest < HANGS_SECONDS
        if cut:
            _cut_off(run.pid, draw)
    try:
        words = run.communicate(timeout=HANGS_SECONDS)[1]
    except subprocess.TimeoutExpired:
        for process in psutil.Process(run.pid).children(recursive=True):
            process.kill()
        run.kill()
        words = run.communicate()[1] + "\nDEFECT: it went on and on"
    if run.returncode not in (0, 1, 130, -signal.SIGKILL, -signal.SIGTERM):
        words += f"\nDEFECT: exit code {run.returncode}"
    if "Traceback" in words:
        words += "\nDEFECT: a traceback " + " ".join(words.split())[-300:]
    last = (words.strip().splitlines() or ["nothing"])[-1]
    if run.returncode > 0 or last.startswith("DEFECT"):  # who is killed has no last words
        said[f"{last} ({' '.join(flags)})" if last.startswith("DEFECT") else last] += 1
    return cut


def _cut_off(pid: int, draw: random.Random) -> None:
    """Half of the time the command itself, else a process of it, if it has any."""
    try:
        children = psutil.Process(pid).children(recursive=True)
        if children and draw.random() < 0.5:
            draw.choice(children).kill()
        else:
            os.kill(pid, draw.choice(SIGNALS))
    except (psutil.NoSuchProcess, ProcessLookupError):
        pass  # it has just ended


if __name__ == "__main__":
    run_entry(main)
