"""Shared by stress programs: options, a folder, counted attempts, and the end with a table.

def kill(options: Options, folder: Path, draw: random.Random, found: Found) -> None: ...
run_stress(kill, Options)
"""

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import tyro

from tests.tools.trainer_list import BY_NAME, TRAINERS, ListedTrainer
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers.run.checkpoint_files import STATE
from textmill.trainers.run.checkpoints import numbered


@dataclass(frozen=True)
class StressOptions:
    """Options of every program."""

    seed: int = 1
    """Seed of all that is random."""


@dataclass(frozen=True)
class TrainerOptions(StressOptions):
    """Options of programs for all trainers."""

    trainer: str = ""
    """One trainer alone, such as tf_qa."""

    @property
    def trainers(self) -> list[ListedTrainer]:
        """The chosen one, or all."""
        if self.trainer and self.trainer not in BY_NAME:
            raise UsageError(f"--trainer={self.trainer}: give one of {', '.join(BY_NAME)}")
        return [BY_NAME[self.trainer]] if self.trainer else [*TRAINERS]


Given = TypeVar("Given", bound=StressOptions)


@dataclass
class Found:
    """Outcomes of attempts.

    Attributes:
      counts: how many had this outcome, by (what was done, outcome).
      defects: a description of each.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)

    def print_table(self) -> None:
        """Prints a row for each thing that was done and a column for each outcome."""
        done, outcomes = ([*dict.fromkeys(names)] for names in zip(*self.counts, strict=True))
        print(f"\n| | {' | '.join(outcomes)} |\n|{'---|' * (len(outcomes) + 1)}")
        for name in done:
            print(f"| {name} | {' | '.join(str(self.counts[name, one]) for one in outcomes)} |")


def run_stress(
    work: Callable[[Given, Path, random.Random, Found], None], options: type[Given]
) -> None:
    """Does the work in a folder of its own; exit code 1 and a table if there were defects."""
    name = f"python -m {sys.modules[work.__module__].__spec__.name}"  # type: ignore[union-attr]

    def main(argv: list[str]) -> None:
        given = tyro.cli(options, prog=name, args=argv, use_underscores=True)
        found = Found()
        with tempfile.TemporaryDirectory(prefix="textmill-stress-") as folder:
            work(given, Path(folder), random.Random(given.seed), found)
        found.print_table()
        if found.defects:
            raise DataError("; ".join([f"{len(found.defects)} defects", *found.defects]))

    run_entry(main)


def file_sum(path: Path) -> str:
    """The sha256 of a file."""
    return sha256(path.read_bytes()).hexdigest()


def state_sums(run: Path) -> dict[str, tuple[int, str]]:
    """Step and sha256 of the newest checkpoint's state and of the best weights."""
    found = {}
    for kind in ("checkpoints", "best"):
        folders = numbered(run / kind)
        newest = max(folders)
        found[kind] = (newest, file_sum(folders[newest] / STATE))
    return found
