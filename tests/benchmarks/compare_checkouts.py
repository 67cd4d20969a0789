"""Rates of the trainers in two checkouts of the repository, in turn.

    python -m tests.benchmarks.compare_checkouts --before=DIR --rounds=3 --steps=30

A row says how many tokens a second a trainer takes as a user runs it, in the checkout of --before
and in this one: medians of the rounds. A run is a process with that checkout's modules and this
interpreter; its rate is of the steps after the fifth, by metrics.jsonl. Sets are written once, and
both read them.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import tyro

from tests.benchmarks.measure import alternated, figure
from tests.tools.places import ROOT
from tests.tools.run_reading import read_metrics
from tests.tools.trainer_list import BY_NAME, TRAINERS, ListedTrainer
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers.run.journal import METRICS, WINDOW_SECONDS

FIRST = 5  # steps that do not count
MAX_LENGTH, VOCAB_SIZE, BATCH_SIZE, ROWS = 128, 8000, 32, 1024
MODEL = "--model=tiny"


@dataclass(frozen=True)
class Options:
    """What is compared."""

    before: Path
    """Another checkout of the repository."""
    rounds: int = 3
    """Runs of each; medians count."""
    steps: int = 30
    """Of a run; the first five do not count."""
    trainer: str | None = None
    """One trainer alone, such as tf_qa."""

    def __post_init__(self) -> None:
        """Refuses what compares nothing."""
        if not (self.before / "trainers").is_dir():
            raise UsageError(f"--before={self.before}: it has no directory trainers")
        if self.trainer is not None and self.trainer not in BY_NAME:
            raise UsageError(f"--trainer={self.trainer}: give one of {', '.join(BY_NAME)}")
        if self.steps <= FIRST:
            raise UsageError(f"--steps={self.steps}: more than the {FIRST} that do not count")

    @property
    def trainers(self) -> Sequence[ListedTrainer]:
        """Those to run."""
        return TRAINERS if self.trainer is None else [BY_NAME[self.trainer]]


class Speed(NamedTuple):
    """How fast a run was."""

    tokens_per_second: float
    seconds_per_step: float


def main(argv: list[str]) -> None:
    """Prints the table."""
    options = tyro.cli(
        Options, prog="tests.benchmarks.compare_checkouts", args=argv, use_underscores=True
    )
    with tempfile.TemporaryDirectory(prefix="textmill-compared-") as scratch:
        checkouts = {"before": options.before.resolve(), "now": ROOT}
        _compare_checkouts(options, checkouts, Path(scratch))


def _compare_checkouts(options: Options, checkouts: Mapping[str, Path], scratch: Path) -> None:
    size = f"{MODEL}, {BATCH_SIZE} rows of {MAX_LENGTH} tokens, {options.steps} steps"
    print(f"\n{size}; tokens a second, medians of {options.rounds}")
    print("| trainer | before | now | ratio | a step takes now |\n|---|---|---|---|---|")
    for trainer in options.trainers:
        shards = scratch / trainer.name
        _write_set(trainer, shards)
        contestants = {
            name: partial(_run, trainer, checkout, shards, options.steps)
            for name, checkout in checkouts.items()
        }
        found = alternated(contestants, options.rounds)
        before, now = (
            statistics.median(speed.tokens_per_second for speed in found[name])
            for name in checkouts
        )
        seconds = statistics.median(speed.seconds_per_step for speed in found["now"])
        row = (trainer.name, figure(before), figure(now), f"{now / before:.3f}")
        print(f"| {' | '.join(row)} | {seconds * 1e3:.0f} ms |", flush=True)


def _write_set(trainer: ListedTrainer, directory: Path) -> None:
    words: dict[str, Any] = {"words": MAX_LENGTH - 10} if trainer.name == "tf_qa" else {}
    trainer.write_set(
        directory,
        train=ROWS,
        validation=BATCH_SIZE,
        vocab_size=VOCAB_SIZE,
        max_length=MAX_LENGTH,
        **words,
    )


def _run(trainer: ListedTrainer, checkout: Path, shards: Path, steps: int) -> Speed:
    """One run in a checkout."""
    with tempfile.TemporaryDirectory(dir=shards.parent) as folder:
        run = Path(folder) / "run"
        flags = [f"--shards={shards}", f"--output={run}", MODEL, f"--batch_size={BATCH_SIZE}"]
        flags += [f"--steps={steps}", "--device=cpu"] if trainer.device else [f"--steps={steps}"]
        done = subprocess.run(
            [sys.executable, "-m", f"trainers.{trainer.name}", *flags],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise DataError(f"{checkout}: trainers.{trainer.name} failed: {done.stderr[-2000:]}")
        return speed_after_first(read_metrics(str(run / METRICS)))


def speed_after_first(lines: list[dict[str, Any]]) -> Speed:
    """Of a run's lines of metrics.jsonl, without the first steps.

    A line's rate is of all steps up to its own: so all but the first can be told apart. Of a run
    that took longer than WINDOW_SECONDS it is of the last ones alone, which serve as well.
    """
    tokens, seconds = [0], [0.0]
    for line in lines:
        if line["kind"] == "train":
            tokens.append(tokens[-1] + line["tokens"])
            seconds.append(tokens[-1] / line["tokens_per_second"])
    rate = (tokens[-1] - tokens[FIRST]) / (seconds[-1] - seconds[FIRST])
    if seconds[-1] >= WINDOW_SECONDS:
        rate = tokens[-1] / seconds[-1]
    return Speed(rate, tokens[-1] / (len(tokens) - 1) / rate)


if __name__ == "__main__":
    run_entry(main)
