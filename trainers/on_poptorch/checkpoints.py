"""Checkpoints of a run, each one file that is there whole or not at all.

    OUTPUT/checkpoints/step-00000500.pt   weights, optimizer and schedule after step 500
    OUTPUT/best.pt                        weights of the best evaluation, with its measures

Files are PyTorch's, and are read as tensors and plain values only (`weights_only`): nothing in them
can run code.
"""

import os
import re
import warnings
from pathlib import Path
from typing import Any, Dict, List, Optional

import torch

from schemas.errors import DataError, UsageError

BEST = "best.pt"
_NAME = re.compile(r"step-(\d{8,})\.pt")


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, output: Path, keep: int):
        """Opens the directory; `keep` newest checkpoints stay."""
        self.output, self.directory, self.keep = output, output / "checkpoints", keep
        self.directory.mkdir(parents=True, exist_ok=True)
        for partial in (*output.glob("*.pt.partial"), *self.directory.glob("*.pt.partial")):
            partial.unlink()  # of a run that was killed while it wrote one

    @property
    def steps(self) -> List[int]:
        """Steps of the checkpoints that are there, ascending."""
        found = (_NAME.fullmatch(name) for name in os.listdir(self.directory))
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
            self.path(old).unlink()

    def restore(self, step: int) -> Dict[str, Any]:
        """The state after `step` steps, on the CPU.

        Raises:
          DataError: the file is broken.
        """
        return _read(self.path(step))

    def save_best(self, step: int, measures: Dict[str, float], weights: Dict[str, Any]) -> None:
        """Writes the weights of the best evaluation so far."""
        content = {"step": step, "measures": measures, "model": weights}
        _write(self.output / BEST, content, newest=self.latest or 0)

    def best(self) -> Optional[Dict[str, Any]]:
        """What `save_best` wrote last: step, measures and model; None if it never did."""
        path = self.output / BEST
        return _read(path) if path.exists() else None


def _write(path: Path, content: Dict[str, Any], *, newest: int) -> None:
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except (OSError, RuntimeError) as error:  # PyTorch reports a full disk as a RuntimeError
        raise DataError(
            f"{path} cannot be written: {error}. The newest whole checkpoint is after step "
            f"{newest}; make room, then add --resume"
        ) from error


def _read(path: Path) -> Dict[str, Any]:
    try:
        with warnings.catch_warnings():
            # PyTorch 2.0's, of its own code.
            warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # zip, pickle and PyTorch errors alike
        raise DataError(
            f"{path} cannot be read ({error}): remove it, then --resume goes on from the "
            "checkpoint before it"
        ) from error


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
