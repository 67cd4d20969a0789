"""Runs both commands over and over on a crowded machine: `python -m tests.stress.runs_under_load`.

Every run is a process of its own (forked from one that has all modules loaded, so that hundreds
take minutes), many at a time, beside processes that do nothing but compute. All runs of a command
must leave the same bytes, whatever the mode; one that fails must report the true cause. The
table counts, for each command and mode, what came out; exit code 1 if a run left other bytes, hung,
or ended in a traceback.
"""

import json
import multiprocessing
import os
import pydoc_data.topics
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import tyro

from tests.tools.file_sums import file_sums
from tests.tools.prism import started_prism
from textmill.pipelines import build_shards, train_tokenizer
from textmill.pipelines.runners.launch import IN_PROCESS, with_beam
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import DataError, TextmillError

COMMANDS = {"train_tokenizer": train_tokenizer.main, "build_shards": build_shards.main}
_WORKERS = ["--direct_num_workers=2"]
MODES = {
    "in process": [f"--runner={IN_PROCESS}"],
    "threads": [f"--runner={IN_PROCESS}", "--direct_running_mode=multi_threading", *_WORKERS],
    "processes": [f"--runner={IN_PROCESS}", "--direct_running_mode=multi_processing", *_WORKERS],
    "prism": [],  # the flags of a running one
}
_NICE = 10  # of the crowd: a tenth of the weight of a run
# They name paths or the run, or have the sha256 of a file that does.
_NOT_THE_SAME = ("inputs.json", "config.yaml", "report.html", "MANIFEST.json", ".lock")
DEFECTS = ("other bytes", "hung", "traceback", "untrue")


@dataclass(frozen=True)
class Options:
    """How much is run, and how crowded it is."""

    runs: int = 200
    """Runs of each command in each mode."""
    modes: tuple[str, ...] = tuple(MODES)
    """Some of: in process, threads, processes, prism."""
    commands: tuple[str, ...] = tuple(COMMANDS)
    """One or both."""
    at_once: int = 8
    """Runs at a time."""
    busy: int = 20
    """Processes that compute beside them."""
    megabytes: int = 18
    """Megabytes of text for each command, in blocks of 16 MiB."""
    longest: float = 900.0
    """Seconds after which a run counts as hung."""
    keep: str = ""
    """Folder for what failing runs printed."""


def main(argv: list[str]) -> None:
    """Runs all, prints a line a command and mode."""
    options = tyro.cli(
        Options, prog="python -m tests.stress.runs_under_load", args=argv, use_underscores=True
    )
    with tempfile.TemporaryDirectory(prefix="textmill-load-") as name:
        folder = Path(name)
        _write_text(folder, options.megabytes)
        with _quiet(folder):
            _call(train_tokenizer.main, _flags(folder, "train_tokenizer", "bpe"))
        with_beam()
        defects = 0
        print("| command | mode | runs | as one alone | what else | seconds a run |\n" + "|---" * 6)
        with crowd(options.busy):
            for command in options.commands:
                for mode in options.modes:
                    defects += _run_many(folder, options, command, mode)
    if defects:
        raise DataError(f"{defects} defects")


def _run_many(folder: Path, options: Options, command: str, mode: str) -> int:
    """A line of the table; returns the number of defects."""
    alone = folder / "alone"
    with _quiet(folder):
        _call(COMMANDS[command], _flags(folder, command, "alone"))
    due = file_sums(alone, without=_NOT_THE_SAME)
    shutil.rmtree(alone)
    began, outcomes = time.monotonic(), Counter[str]()
    running: dict[int, tuple[int, float]] = {}
    started = 0
    while started < options.runs or running:
        while started < options.runs and len(running) < options.at_once:
            flags = _flags(
                folder,
                command,
                f"run{started}",
                *(started_prism() if mode == "prism" else MODES[mode]),
            )
            if command == "build_shards" and started % 2:
                flags.append("--shuffle_by=runner")
            running[_fork(folder, command, flags, started)] = started, time.monotonic()
            started += 1
        for pid, (number, since) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended and time.monotonic() - since > options.longest:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                status = "hung"
            elif not ended:
                continue
            del running[pid]
            outcomes[_judge(folder, number, status, due, options.keep)] += 1
        time.sleep(0.05)
    good = outcomes.pop("", 0)
    else_ = "; ".join(f"{n} x {words}" for words, n in outcomes.most_common()) or "-"
    seconds = (time.monotonic() - began) / options.runs
    print(f"| {command} | {mode} | {options.runs} | {good} | {else_} | {seconds:.1f} |", flush=True)
    return sum(n for words, n in outcomes.items() if words.startswith(DEFECTS))


def _flags(folder: Path, command: str, output: str, *more: str) -> list[str]:
    flags = [f"--input={folder}/{command}.jsonl", f"--output={folder / output}", *more]
    if command == "build_shards":
        return [*flags, f"--tokenizer={folder}/bpe", "--num_shards=8"]
    return [*flags, "--vocab_size=1000"]


def _fork(folder: Path, command: str, flags: list[str], number: int) -> int:
    """Starts a run in a process group of its own; what it prints goes into a file."""
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    log = os.open(folder / f"run{number}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 70  # of a defect: the traceback is in the log
    try:
        code = _call(COMMANDS[command], flags)
    except BaseException as error:
        traceback.print_exception(error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _call(command: Callable[[list[str]], None], flags: list[str]) -> int:
    """Runs a command as `run_entry` does, but without ending the process."""
    try:
        command(flags)
    except TextmillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _judge(folder: Path, number: int, status: int | str, due: dict[str, str], keep: str) -> str:
    """Describes a run, "" if its output is right; its files are removed."""
    log, output = folder / f"run{number}.log", folder / f"run{number}"
    said = log.read_text(errors="replace")
    last = (said.strip().splitlines() or ["nothing"])[-1]
    if status == 0:
        words = "" if file_sums(output, without=_NOT_THE_SAME) == due else "other bytes"
    elif status == "hung":
        words = "hung"
    elif "Traceback" in said:
        words = f"traceback: {last[:200]}"
    else:
        words = last.replace(str(output), "OUTPUT")[:200]
    if "damaged" in words:  # not the file: an element was lost
        words = f"untrue: {words}"
    if words and keep:
        os.makedirs(keep, exist_ok=True)
        shutil.copy(log, Path(keep) / f"{os.getpid()}-{number}-{time.time_ns()}.log")
    shutil.rmtree(output, ignore_errors=True)
    log.unlink()
    return words


@contextmanager
def _quiet(folder: Path) -> Iterator[None]:
    """Keeps what a command prints off the terminal."""
    with open(folder / "quiet.log", "w") as log, redirect_stdout(log), redirect_stderr(log):
        yield


@contextmanager
def crowd(number: int) -> Iterator[None]:
    """Processes that compute until the block ends."""
    context = multiprocessing.get_context("fork")
    crowd = [context.Process(target=_compute, daemon=True) for _ in range(number)]
    for process in crowd:
        process.start()
    try:
        yield
    finally:
        for process in crowd:
            process.kill()


def _compute() -> None:
    os.nice(_NICE)
    while True:
        sum(range(10_000))


def _write_text(folder: Path, megabytes: int) -> None:
    """Real text; for words to be counted, half of it long ones that occur once: large tables."""
    draw, topics = random.Random(1), list(pydoc_data.topics.topics.values())
    for command in ("train_tokenizer", "build_shards"):
        with open(folder / f"{command}.jsonl", "w") as file:
            while file.tell() < megabytes * 1_000_000:
                for topic in topics[:20]:
                    file.write(json.dumps({"text": f"{draw.random()} {topic}"}) + "\n")
                    if command == "train_tokenizer":
                        words = (
                            f"{draw.getrandbits(90):x}".translate(_LETTERS) for _ in topic[::23]
                        )
                        file.write(json.dumps({"text": " ".join(words)}) + "\n")


_LETTERS = str.maketrans("0123456789", "ghijklmnop")

if __name__ == "__main__":
    run_entry(main)
