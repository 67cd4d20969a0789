"""A run's directory: one run at a time, and its settings, so that it can go on where it stopped.

    OUTPUT/config.json     settings, model and the fingerprint of the shard set

Knows no framework; Python 3.8 syntax.
"""

import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

from schemas.errors import DataError, UsageError

SETTINGS = "config.json"
CHECKPOINTS = "checkpoints"
_MAY_DIFFER_SILENTLY = (
    "shards",
    "output",
    "resume",
    "verify",
    "follow_links",
    "cache_dir",
    "cache_gigabytes",
    "stop_after",
    "export",
    "log_to",
)


@contextmanager
def claimed(output: Path) -> Iterator[None]:
    """Makes the run's directory and keeps every other run out of it.

    Raises:
      UsageError: it cannot be written to, or another run has it.
    """
    from filelock import FileLock, Timeout

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


def start_or_resume(
    output: Path, settings: Dict[str, Any], *, resume: bool, same: Sequence[str]
) -> List[str]:
    """Writes the run's settings, or compares them with those it began with.

    Args:
      output: the run's directory.
      settings: {"config": ..., "model": ..., "fingerprint": ...}.
      resume: whether to go on with what is there.
      same: names in "config" that a resumed run must have in common with its first part: else it
        would be another run, or another order of the data.

    Returns:
      A line for each setting that differs and may differ.

    Raises:
      UsageError: the directory holds a run and `resume` is off, or another kind of run.
      DataError: its settings cannot be read.
    """
    path = output / SETTINGS
    if not path.exists():
        if (output / CHECKPOINTS).exists():
            raise UsageError(f"{output} holds checkpoints but no {SETTINGS}: give another --output")
        write_settings(output, settings)
        return []
    if not resume:
        raise UsageError(
            f"{output} holds a run already: add --resume to go on with it, or give another --output"
        )
    before = read_settings(output)
    changes = _changes(before["config"], settings["config"])
    must_agree = _changes(
        {"shards' fingerprint": before["fingerprint"], **before["model"]},
        {"shards' fingerprint": settings["fingerprint"], **settings["model"]},
    )
    must_agree.update({name: changes.pop(name) for name in same if name in changes})
    if must_agree:
        raise UsageError(
            f"{output} cannot be resumed with these settings: {'; '.join(must_agree.values())}. "
            "Give the settings it began with, or another --output"
        )
    write_settings(output, settings)
    return [line for name, line in changes.items() if name not in _MAY_DIFFER_SILENTLY]


def read_settings(output: Path) -> Dict[str, Any]:
    """The settings of the run that a directory holds: "config", "model", "fingerprint".

    Raises:
      UsageError: it holds no run.
      DataError: they cannot be read.
    """
    path = output / SETTINGS
    if not path.exists():
        raise UsageError(f"--output={output} holds no run: it has no {SETTINGS}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        well_formed = isinstance(found["fingerprint"], str) and all(
            isinstance(found[part], dict) for part in ("config", "model")
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not a trainer's configuration ({error!r}): give another --output"
        ) from error
    if not well_formed:
        raise DataError(f"{path} is not a trainer's configuration: give another --output")
    return found


def write_settings(output: Path, settings: Dict[str, Any]) -> None:
    """Writes them whole or not at all."""
    partial = output / (SETTINGS + ".partial")
    partial.write_text(json.dumps(settings, sort_keys=True, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, output / SETTINGS)


def _changes(before: Dict[str, Any], now: Dict[str, Any]) -> Dict[str, str]:
    # As JSON, in which what was before has been: a tuple is a list there.
    now = json.loads(json.dumps(now))
    return {
        name: f"{name} was {before.get(name)!r}, is {now.get(name)!r}"
        for name in sorted(set(before) | set(now))
        if before.get(name) != now.get(name)
    }
