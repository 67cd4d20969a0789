"""Saves checkpoints and the best weights of a run while it trains."""

from __future__ import annotations

from contextlib import suppress

from textmill.schemas.errors import DataError
from textmill.trainers.run.checkpoint_writer import Writer
from textmill.trainers.run.checkpoints import Checkpoints
from textmill.trainers.run.processes import Processes
from textmill.trainers.run.program import Program
from textmill.trainers.run.progress import Progress

_WRITING_STEPS = 50  # that several processes spread the tensors of a checkpoint over


class Saving:
    """The checkpoints of a run that trains; the newest is written during the next steps.

    Attributes:
      saved: the step of the newest checkpoint, which may not be finished.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        program: Program,
        progress: Progress,
        processes: Processes,
    ):
        """Removes best weights that are later than `progress`, where a run resumes."""
        self.checkpoints, self.saved = checkpoints, progress.step
        self._program, self._progress, self._processes = program, progress, processes
        self._writer: Writer | None = None  # of a checkpoint, while the next steps run
        self._best_step: int | None = None  # of that checkpoint
        if processes.is_first:
            checkpoints.known_best = progress.best_step
            checkpoints.keep_best(progress)

    def save(self, steps: int) -> None:
        """Begins a checkpoint, and spreads it over the next steps if there are several processes.

        Raises:
          DataError: the checkpoint before it cannot be written.
        """
        self.finish()
        progress = self._progress
        if progress.step == self.saved:  # evaluated since, see metrics.jsonl
            if self._processes.is_first:
                self.checkpoints.keep_newest(progress, progress.best_step)
            return
        self.saved, self._best_step = progress.step, progress.best_step
        self._writer = self.checkpoints.begin(
            progress, self._program.snapshot(), self._processes, steps=min(_WRITING_STEPS, steps)
        )

    def save_best(self) -> None:
        """Writes the best weights; raises like `save`."""
        self.finish()
        weights = self._program.snapshot(weights_only=True)
        writer = self.checkpoints.begin(self._progress, weights, self._processes, is_best=True)
        writer.finish()
        if self._processes.is_first:
            self.checkpoints.keep_best(self._progress)

    def advance(self) -> None:
        """Continues a checkpoint between two steps; raises like `save`."""
        if self._writer is not None and self._writer.advance():
            self.finish()

    def finish(self) -> None:
        """Waits until the checkpoint is written, and removes older ones; raises like `save`."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.finish()
            if self._processes.is_first:
                self.checkpoints.keep_newest(self._progress, self._best_step)

    def close(self) -> None:
        """Finishes the checkpoint of a run that fails, if this needs no other process."""
        if self._writer is not None and self._processes.count > 1:
            self._writer.abandon()
        elif self._writer is not None:
            with suppress(DataError):
                self.finish()
