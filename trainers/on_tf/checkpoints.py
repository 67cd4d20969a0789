"""Checkpoints of a run, by `tf.train.Checkpoint`, each published whole or not at all.

    OUTPUT/checkpoints/N   weights, optimizer and progress after step N
    OUTPUT/best/N          the weights of the best evaluation

A directory is written under a name that ends in .partial, then renamed: what has its name is whole,
and a run that is killed while it writes goes on from the one before. What is damaged afterwards its
sums tell, see `trainers.run.checkpoint_sums`.
"""

import json
import os
import shutil
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from schemas.errors import DataError, UsageError
from trainers.on_tf.backend import keras, tf
from trainers.run.checkpoint_sums import check_whole, numbered, write_sums
from trainers.run.progress import Progress
from trainers.run.run_directory import CHECKPOINTS

BEST = "best"
_STATE, _PROGRESS, _PARTIAL = "state", "progress.json", ".partial"


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(
        self,
        output: Path,
        keep: int,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer | None = None,
    ):
        """Opens the directory; removes what a killed run left half written.

        Args:
          output: of the run.
          keep: newest checkpoints that stay.
          model: built.
          optimizer: built; None to read weights only.
        """
        self.directory, self.best_directory = output / CHECKPOINTS, output / BEST
        self._keep = keep
        # By the variables' own paths: what is saved then depends on no layer's bookkeeping.
        self._weights = {"model": _by_path(model.variables)}
        self._all = dict(self._weights)
        if optimizer is not None:
            self._all["optimizer"] = _by_path(optimizer.variables)
            for directory in (self.directory, self.best_directory):
                for path in directory.glob(f"*{_PARTIAL}"):
                    shutil.rmtree(path)

    @property
    def steps(self) -> list[int]:
        """Steps of the finished checkpoints, ascending."""
        return _numbers(self.directory)

    @property
    def latest(self) -> int:
        """The step of the newest finished checkpoint; 0 where there is none."""
        return max(self.steps, default=0)

    @property
    def best(self) -> int | None:
        """The step of the best evaluation's weights."""
        return max(_numbers(self.best_directory), default=None)

    def save(self, progress: Progress) -> None:
        """Writes the state after `progress.step` steps, unless it is there already.

        Raises:
          DataError: it cannot be written (disk full, rights); earlier checkpoints stay.
        """
        if progress.step not in self.steps:
            self._publish(self.directory, self._all, progress)
            for step in self.steps[: -self._keep]:
                shutil.rmtree(self.directory / str(step))

    def save_best(self, progress: Progress) -> None:
        """Writes the weights as the best so far; raises as `save`."""
        if progress.step != self.best:
            self._publish(self.best_directory, self._weights, progress)
        for step in _numbers(self.best_directory):
            if step != progress.step:
                shutil.rmtree(self.best_directory / str(step))

    def restore(self) -> dict[str, Any]:
        """Everything as it was after the newest checkpoint; returns its progress as it was stored.

        What was evaluated as best after it is forgotten: it will be again.

        Raises:
          DataError: it is not of this model and optimizer, or broken.
        """
        path = self.directory / str(self.latest)
        progress = _read(path, self._all)
        for step in _numbers(self.best_directory):
            if step > progress["step"]:
                shutil.rmtree(self.best_directory / str(step))
        return progress

    def load_weights(self, which: str = BEST) -> int:
        """Fills the model, for use; returns the step the weights are of.

        Args:
          which: "best" (the newest where nothing was evaluated), "last", or a step's number.

        Raises:
          UsageError: there is no such checkpoint.
          DataError: it is broken.
        """
        path = self._find(which)
        names = [*map(str, self.steps), *(["best"] if self.best is not None else [])]
        others = [name for name in names if name not in (path.name, which)]
        check_whole(path, f"Give another --checkpoint: {', '.join(others) or 'there is none'}")
        return _read(path, self._weights)["step"]

    def _find(self, which: str) -> Path:
        if which == BEST and self.best is not None:
            return self.best_directory / str(self.best)
        step = str(self.latest) if which in (BEST, "last") else which
        for directory in (self.directory, self.best_directory):
            if step.isdecimal() and int(step) in _numbers(directory):
                return directory / step
        there = ", ".join(map(str, self.steps)) or "none"
        raise UsageError(
            f"{self.directory.parent} has no checkpoint {which!r}: its steps are {there}, and the "
            f"best is {self.best or 'not known'}"
        )

    def _publish(self, directory: Path, parts: dict[str, dict], progress: Progress) -> None:
        path = directory / str(progress.step)
        partial = path.with_name(path.name + _PARTIAL)
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            tf.train.Checkpoint(**parts).write(str(partial / _STATE))
            (partial / _PROGRESS).write_text(json.dumps(asdict(progress)), encoding="utf-8")
            write_sums(partial)
            os.rename(partial, path)
        except (OSError, tf.errors.OpError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            cause = getattr(error, "message", None) or str(error)
            raise DataError(
                f"{directory}: the checkpoint after step {progress.step} cannot be written: "
                f"{cause}. The newest whole one is after step {self.latest}; make room, then add "
                "--resume"
            ) from error


def _by_path(variables: list[keras.Variable]) -> dict[str, tf.Variable]:
    """By their paths; where Keras gives several one path, as in Adafactor, they are numbered."""
    named: dict[str, tf.Variable] = {}
    seen = Counter[str]()
    for variable in variables:
        number = seen[variable.path]
        named[f"{variable.path}.{number}" if number else variable.path] = variable.value
        seen[variable.path] += 1
    return named


def _numbers(directory: Path) -> list[int]:
    return sorted(numbered(directory))


def _read(path: Path, parts: dict[str, dict]) -> dict[str, Any]:
    try:
        progress = json.loads((path / _PROGRESS).read_text(encoding="utf-8"))
        Progress(**progress)  # refuses other names
        status = tf.train.Checkpoint(**parts).read(str(path / _STATE))
        status.assert_existing_objects_matched()
        status.expect_partial()
    except Exception as error:  # TensorFlow has many; some say all values of what was not found
        raise DataError(
            f"the checkpoint {path} cannot be read into this model: {error!s:.200}. Move it away "
            "to use the one before"
        ) from error
    return progress
