"""The checkpoints of a run: finds them, chooses the one to use, and removes old ones.

    OUTPUT/checkpoints/500   weights and the optimizer's state after step 500
    OUTPUT/best/480          weights of the best evaluation, without the optimizer's state

checkpoint_files.py has the files of one.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping

import numpy as np

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.run.checkpoint_files import (
    PARTIAL,
    Stored,
    damage_of,
    header_of,
    in_file_order,
    read_checkpoint,
    write_checkpoint,
)
from textmill.trainers.run.checkpoint_writer import Writer
from textmill.trainers.run.processes import ALONE, Processes
from textmill.trainers.run.progress import Progress
from textmill.trainers.run.run_directory import CHECKPOINTS
from textmill.trainers.run.tensors import Snapshot

ALL, BEST, LAST = "all", "best", "last"  # values of --checkpoint
DAMAGED = ".damaged"


def numbered(directory: Path) -> dict[int, Path]:
    """Steps to checkpoints in a directory: {500: OUTPUT/checkpoints/500}."""
    if not directory.is_dir():
        return {}
    return {int(path.name): path for path in sorted(directory.iterdir()) if path.name.isdecimal()}


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, output: Path, keep: int = 1):
        """Touches no file; `keep_newest` keeps `keep` checkpoints."""
        self.directory, self.best_directory = output / CHECKPOINTS, output / BEST
        self._keep = keep
        self.known_best: int | None = None  # best step at the time of the newest checkpoint

    @property
    def steps(self) -> list[int]:
        """Steps of the finished checkpoints, ascending."""
        return sorted(numbered(self.directory))

    @property
    def latest(self) -> int:
        """The step of the newest finished checkpoint; 0 if there is none."""
        return max(self.steps, default=0)

    @property
    def best(self) -> int | None:
        """The step of the best evaluation's weights."""
        return max(numbered(self.best_directory), default=None)

    def prepare(self, say: Any) -> None:
        """Removes partial checkpoints and renames damaged ones; raises like `newest_whole`."""
        for directory in (self.directory, self.best_directory):
            for path in directory.glob("*" + PARTIAL):
                shutil.rmtree(str(path))
        newest_whole(numbered(self.directory), say, numbered(self.best_directory))

    def begin(
        self,
        progress: Progress,
        snapshot: Snapshot,
        processes: Processes = ALONE,
        *,
        steps: int = 1,
        is_best: bool = False,
    ) -> Writer:
        """Begins to write the checkpoint after `progress.step` steps, during the next `steps`."""
        path = self.directory / str(progress.step)
        if is_best:
            path = self.best_directory / str(progress.best_step)
        tensors = in_file_order(*snapshot)
        text = json.dumps(asdict(progress)).encode()
        publish = partial(self._publish, path, text, header_of(tensors))
        return Writer(list(tensors.values()), publish, processes, steps)

    def _publish(
        self, path: Path, progress: bytes, header: bytes, arrays: Iterator[np.ndarray]
    ) -> None:
        try:
            write_checkpoint(path, progress, header, arrays)
        except OSError as error:
            raise DataError(
                f"{path.parent}: the checkpoint after step {path.name} cannot be written: {error}. "
                f"The newest is after step {self.latest}; free some space, then add "
                f"{flag('resume', True)}"
            ) from error

    def keep_newest(self, progress: Progress, best_step: int | None) -> None:
        """Removes the oldest checkpoints, and best weights but those of `progress` and the newest.

        `best_step` is that of the newest checkpoint: a killed run resumes there.
        """
        for step in self.steps[: -self._keep]:
            shutil.rmtree(str(self.directory / str(step)))
        self.known_best = best_step
        self.keep_best(progress)

    def keep_best(self, progress: Progress) -> None:
        """Removes all best weights but those of `progress` and of the newest checkpoint."""
        for step, path in numbered(self.best_directory).items():
            if step not in (progress.best_step, self.known_best):
                shutil.rmtree(str(path))

    def forget_lost_best(self, progress: Progress) -> str | None:
        """Returns a note if the best weights were removed: then the next evaluation is best."""
        lost = progress.best_step
        if lost is None or lost in numbered(self.best_directory):
            return None
        progress.forget_best()
        return (
            f"{self.best_directory} lacks the best weights, those of step {lost}: the best of the "
            "later evaluations replaces them"
        )

    def read(self, step: int, model: ModelConfig | None = None) -> Stored:
        """The checkpoint after `step`; raises like `read_checkpoint`."""
        return read_checkpoint(self.directory / str(step), model)

    def choose(self, which: str | None) -> list[Path]:
        """The checkpoints that --checkpoint names, ascending by step, with sums checked.

        `which` is best, last, a step's number or all; None is best if there is one, else last.

        Raises:
          UsageError: there is no such checkpoint.
          DataError: one is damaged.
          OSError: one cannot be read.
        """
        last, best = numbered(self.directory), numbered(self.best_directory)
        every = {**best, **last}
        paths: list[Path] = []
        if which == ALL:
            paths = [every[step] for step in sorted(every)]
        elif which in (BEST, None) and best:
            paths = [best[max(best)]]
        elif which in (LAST, BEST, None) and last:
            paths = [last[max(last)]]
        elif which is not None and which.isdecimal() and int(which) in every:
            paths = [every[int(which)]]
        if not every:
            raise UsageError(
                f"{self.directory.parent} has no checkpoint yet: a run writes one every "
                f"{flag('checkpoint_every')} steps, and when it ends or is interrupted"
            )
        if not paths:
            raise UsageError(
                f"{self.directory.parent} has no checkpoint {which or LAST!r}: its steps are "
                f"{', '.join(map(str, sorted(last)))}, the best is {max(best, default='unknown')}"
            )
        for path in paths:
            if damage := damage_of(path):
                others = [str(step) for step in sorted(every) if every[step] != path]
                raise DataError(
                    f"the checkpoint {path} is damaged: {damage}. Give another "
                    f"{flag('checkpoint')}: {', '.join(others) or 'there are none'}"
                )
        return paths


def newest_whole(
    checkpoints: Mapping[int, Path],
    say: Callable[[str], None],
    best: Mapping[int, Path],
) -> int | None:
    """The step of the newest intact checkpoint, to resume from; None if there are no checkpoints.

    A checkpoint counts as damaged if the `best` weights up to its step are. Newer checkpoints, all
    damaged, are renamed to end in .damaged, and `say` gets a line for each.

    Raises:
      DataError: all are damaged; none is renamed.
      OSError: one cannot be read.
    """
    best_damages = {at: damage for at in sorted(best) if (damage := damage_of(best[at]))}
    damages: dict[int, str] = {}
    for step in sorted(checkpoints, reverse=True):
        of_best = next((damage for at, damage in best_damages.items() if at <= step), None)
        damage = damage_of(checkpoints[step]) or of_best
        if damage is None:
            break
        damages[step] = damage
    else:
        if damages:
            culprits = [at for at, damage in best_damages.items() if damage in damages.values()]
            without = "".join(f", remove {best[at]} to resume without it" for at in culprits)
            raise DataError(
                f"all checkpoints are damaged: {'; '.join(dict.fromkeys(damages.values()))}. Copy "
                f"one from a backup{without}, or start over with another {flag('output')}"
            )
        return None
    for newer, damage in damages.items():
        aside = checkpoints[newer].with_name(checkpoints[newer].name + DAMAGED)
        shutil.rmtree(str(aside), ignore_errors=True)
        os.replace(str(checkpoints[newer]), str(aside))
        say(
            f"note: the checkpoint after step {newer} is damaged: {damage}. It is kept as {aside}; "
            f"the run resumes after step {step} and repeats the later steps"
        )
    return step
