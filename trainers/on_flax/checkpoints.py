"""A run's directory: its settings and its checkpoints, so that it can go on where it stopped.

    OUTPUT/config.json     settings, model and the fingerprint of the shard set
    OUTPUT/checkpoints/N   state after step N, by orbax; written whole or not at all
    OUTPUT/metrics.jsonl   see trainers.run_log

One run at a time holds the directory.
"""

import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from filelock import FileLock, Timeout

from schemas.errors import DataError, UsageError
from trainers.on_flax.step import State

CONFIG = "config.json"
# What a resumed run must have in common with its first part: else it would be another model, or
# another order of the data.
SAME_SETTINGS = ("batch_size", "seed", "train_split", "clip_norm", "optimizer")


@contextmanager
def claimed(output: Path) -> Iterator[None]:
    """Makes the run's directory and keeps every other run out of it.

    Raises:
      UsageError: it cannot be written to, or another run has it.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock = FileLock(output / ".lock", timeout=0)
        lock.acquire()
    except Timeout as error:
        raise UsageError(
            f"--output={output} is in use by another run: wait for it, or give another --output"
        ) from error
    except OSError as error:
        raise UsageError(f"--output={output} cannot be written to: {error}") from error
    try:
        yield
    finally:
        lock.release()


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, output: Path, keep: int):
        """Opens the directory; `keep` newest checkpoints stay."""
        # Synchronous: the next step donates the buffers that a background write would still read.
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
        self.directory = output.resolve() / "checkpoints"
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
        """
        found = self._manager.restore(step, args=ocp.args.StandardRestore(abstract))
        return State(**found)  # type: ignore[typeddict-item]

    def close(self) -> None:
        """Lets go of the directory."""
        self._manager.close()


@contextmanager
def _errors_raised_not_logged() -> Iterator[None]:
    """Keeps orbax's threads from logging a traceback each for one full disk.

    After an error the loggers stay off: futures that nobody asked are logged when they are freed.
    """
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    for logger in loggers:
        logger.disabled = True
    yield
    for logger in loggers:
        logger.disabled = False


def start_or_resume(output: Path, settings: dict[str, Any], *, resume: bool) -> list[str]:
    """Writes the run's settings, or compares them with those it began with.

    Args:
      output: the run's directory.
      settings: {"config": ..., "model": ..., "fingerprint": ...}.
      resume: whether to go on with what is there.

    Returns:
      A line for each setting that differs and may differ.

    Raises:
      UsageError: the directory holds a run and `resume` is off, or another kind of run.
    """
    path = output / CONFIG
    if not path.exists():
        if (output / "checkpoints").exists():
            raise UsageError(f"{output} holds checkpoints but no {CONFIG}: give another --output")
        _write_settings(path, settings)
        return []
    if not resume:
        raise UsageError(
            f"{output} holds a run already: add --resume to go on with it, or give another --output"
        )
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        changes = _changes(before["config"], settings["config"])
        must_agree = _changes(
            {"shards' fingerprint": before["fingerprint"], **before["model"]},
            {"shards' fingerprint": settings["fingerprint"], **settings["model"]},
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not a trainer's configuration ({error!r}): give another --output"
        ) from error
    must_agree.update({name: changes.pop(name) for name in SAME_SETTINGS if name in changes})
    if must_agree:
        raise UsageError(
            f"{output} cannot be resumed with these settings: {'; '.join(must_agree.values())}. "
            "Give the settings it began with, or another --output"
        )
    ignored = ("shards", "output", "resume", "verify", "stop_after", "export", "log_to")
    _write_settings(path, settings)
    return [line for name, line in changes.items() if name not in ignored]


def _changes(before: dict[str, Any], now: dict[str, Any]) -> dict[str, str]:
    return {
        name: f"{name} was {before.get(name)!r}, is {now.get(name)!r}"
        for name in sorted(set(before) | set(now))
        if before.get(name) != now.get(name)
    }


def _write_settings(path: Path, settings: dict[str, Any]) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(settings, sort_keys=True, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, path)
