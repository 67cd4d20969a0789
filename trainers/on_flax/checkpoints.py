"""A run's checkpoints: OUTPUT/checkpoints/N, the state after step N, by orbax.

Written whole or not at all, with the sums of their files (`trainers.run.checkpoint_sums`); see
`trainers.run.run_directory` for what lies beside them.
"""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import orbax.checkpoint as ocp

from schemas.errors import DataError
from trainers.on_flax.step import State
from trainers.run.checkpoint_sums import write_sums
from trainers.run.run_directory import CHECKPOINTS

# What a resumed run must have in common with its first part: else it would be another model, or
# another order of the data.
SAME_SETTINGS = ("batch_size", "seed", "train_split", "clip_norm", "optimizer")


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, output: Path, keep: int):
        """Opens the directory; `keep` newest checkpoints stay."""
        # Synchronous: the next step donates the buffers that a background write would still read.
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
        self.directory = output.resolve() / CHECKPOINTS
        self._manager = ocp.CheckpointManager(self.directory, options=options)

    @property
    def latest(self) -> int | None:
        """The step of the newest finished checkpoint."""
        return self._manager.latest_step()

    def save(self, step: int, state: State) -> None:
        """Writes the state after `step` steps, unless it is there already.

        Raises:
          DataError: it cannot be written (disk full, rights); earlier checkpoints stay.
        """
        if self.latest == step:
            return
        before = self.latest
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        try:
            free = shutil.disk_usage(self.directory).free
            if free < needed:  # asked before, because orbax's threads fail loudly
                raise OSError(f"it takes {needed:,} bytes and the disk has {free:,} left")
            with _errors_raised_not_logged():
                self._manager.save(step, args=ocp.args.StandardSave(state))
            write_sums(self.directory / str(step))
        except (OSError, ValueError) as error:  # tensorstore reports a full disk as a ValueError
            cause = str(error).rsplit(": ", 1)[-1]  # after the names of the arrays
            raise DataError(
                f"{self.directory}: the checkpoint after step {step} cannot be written: {cause}. "
                f"The newest whole one is after step {before or 0}; make room, then add --resume"
            ) from error

    def restore(self, step: int, abstract: State) -> State:
        """The state after `step` steps.

        Args:
          step: of a finished checkpoint.
          abstract: shapes, dtypes and shardings to restore to.

        Raises:
          DataError: it cannot be read, or is not of this model and optimizer.
        """
        with readable(self.directory / str(step)):
            found = self._manager.restore(step, args=ocp.args.StandardRestore(abstract))
        return State(**found)  # type: ignore[typeddict-item]

    def close(self) -> None:
        """Lets go of the directory."""
        self._manager.close()


@contextmanager
def readable(checkpoint: Path) -> Iterator[None]:
    """What goes wrong while a checkpoint is read becomes a `DataError` that names it."""
    try:
        with _errors_raised_not_logged():
            yield
    except Exception as error:  # orbax, tensorstore and jax have each their own
        raise DataError(
            f"the checkpoint {checkpoint} cannot be read into this model: {error!s:.300}. Move it "
            "away to use the one before"
        ) from error


@contextmanager
def _errors_raised_not_logged() -> Iterator[None]:
    """Keeps orbax's threads from logging a traceback each for one full disk or broken file.

    After an error the loggers stay off: futures that nobody asked are logged when they are freed.
    """
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    for logger in loggers:
        logger.disabled = True
    yield
    for logger in loggers:
        logger.disabled = False
