"""Checkpoints of a run, each one file that is there whole or not at all.

    OUTPUT/checkpoints/step-00000500.pt   weights, optimizer and schedule after step 500
    OUTPUT/best.pt                        weights of the best evaluation, with its measures

Files are PyTorch's, and are read as tensors and plain values only (`weights_only`): nothing in them
can run code. PyTorch takes changed bytes for weights, so that their sums lie beside them, see
`trainers.run.checkpoint_sums`.
"""

import os
import re
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import torch

from schemas.errors import DataError, UsageError
from trainers.run.checkpoint_sums import check_whole, newest_whole, sums_path, write_sums

BEST = "best.pt"
_NAME = re.compile(r"step-(\d{8,})\.pt")


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, output: Path, keep: int):
        """Touches nothing yet; `keep` newest checkpoints stay."""
        self.output, self.directory, self.keep = output, output / "checkpoints", keep

    @property
    def steps(self) -> List[int]:
        """Steps of the checkpoints that are there, ascending."""
        names = os.listdir(self.directory) if self.directory.is_dir() else []
        found = map(_NAME.fullmatch, names)
        return sorted(int(match[1]) for match in found if match)

    @property
    def latest(self) -> Optional[int]:
        """The step of the newest checkpoint."""
        return self.steps[-1] if self.steps else None

    def path(self, step: int) -> Path:
        """The file of a checkpoint."""
        return self.directory / f"step-{step:08}.pt"

    def save(self, step: int, state: Dict[str, Any]) -> None:
        """Writes the state after `step` steps; drops old ones.

        Raises:
          DataError: it cannot be written; earlier checkpoints stay.
        """
        _write(self.path(step), dict(state, step=step), newest=self.latest or 0)
        for old in self.steps[: -self.keep]:
            _remove(self.path(old))

    def prepare(self, say: Callable[[str], None]) -> None:
        """Makes the directory ready for a run: damaged checkpoints and parts of some go.

        Raises:
          DataError: as `trainers.run.checkpoint_sums.newest_whole`.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        for folder in (self.output, self.directory):
            for partial in folder.glob("*.partial"):
                partial.unlink()  # of a run that was killed while it wrote one
        newest_whole({step: self.path(step) for step in self.steps}, say)

    def restore(self, step: int) -> Dict[str, Any]:
        """The state after `step` steps, on the CPU.

        Raises:
          DataError: the file is damaged.
        """
        others = [str(self.path(other)) for other in self.steps if other < step]
        instead = f"to use {others[-1]}" if others else "and give another --output"
        return _read(self.path(step), f"Move it away {instead}")

    def save_best(self, step: int, measures: Dict[str, float], weights: Dict[str, Any]) -> None:
        """Writes the weights of the best evaluation so far."""
        content = {"step": step, "measures": measures, "model": weights}
        _write(self.output / BEST, content, newest=self.latest or 0)

    def best(self) -> Optional[Dict[str, Any]]:
        """What `save_best` wrote last: step, measures and model; None if it never did.

        Raises:
          DataError: it is damaged, or gone while its sums are there.
        """
        path = self.output / BEST
        if not path.exists() and not sums_path(path).exists():
            return None
        return _read(path, f"Move {path}* away to use the newest weights instead of the best")

    def forget_best_after(self, step: int) -> None:
        """Removes the best weights if they were measured after this step: they will be again."""
        with suppress(DataError):  # damaged: no reason not to train; said where they are used
            best = self.best()
            if best is not None and best["step"] > step:
                _remove(self.output / BEST)


def _write(path: Path, content: Dict[str, Any], *, newest: int) -> None:
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        _remove_sums(path)
        os.replace(partial, path)
        write_sums(path)
    except (OSError, RuntimeError) as error:  # PyTorch reports a full disk as a RuntimeError
        raise DataError(
            f"{path} cannot be written: {error}. The newest whole checkpoint is after step "
            f"{newest}; make room, then add --resume"
        ) from error


def _remove(path: Path) -> None:
    path.unlink()
    _remove_sums(path)


def _remove_sums(path: Path) -> None:
    if sums_path(path).exists():
        sums_path(path).unlink()


def _read(path: Path, instead: str) -> Dict[str, Any]:
    check_whole(path, instead)
    try:
        with warnings.catch_warnings():
            # PyTorch 2.0's, of its own code.
            warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # zip, pickle and PyTorch errors alike
        raise DataError(f"{path} cannot be read ({error}). {instead}") from error


def check_kind(state: Dict[str, Any], kind: str, path: Path) -> None:
    """Refuses to go on with another kind of device, whose optimizer keeps another state.

    Raises:
      UsageError: names both.
    """
    if state["kind"] != kind:
        raise UsageError(
            f"{path} is of a run on {state['kind']}, and this one is on {kind}: their optimizers "
            "keep different states. Resume there, or start anew with --init_from an exported model"
        )
