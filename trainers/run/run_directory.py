"""A run's directory: locked for one run at a time, with the settings that a resumed run needs.

OUTPUT/config.json     settings, model and the fingerprint of the rows
"""

import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.files.finished import read_run_settings
from textmill.schemas.files.lock import hold
from textmill.schemas.format.run_settings import CONFIG_JSON, settings_sha256

CHECKPOINTS = "checkpoints"
PROFILE = "profile"  # a trace of some steps
_FOREIGN = ("MANIFEST.json", "tokenizer.json")  # a run writes the latter after its settings
_MAY_DIFFER_SILENTLY = (
    *(
        "shards",
        "output",
        "resume",
        "dry_run",
        "verify",
        "follow_links",
        "cache_dir",
        "cache_gigabytes",
    ),
    *("stop_after", "export", "export_saved_model", "log_to", "fsdp", "profile", "family"),
)


@contextmanager
def as_data_errors(where: Union[Path, str], remedy: str) -> Iterator[None]:
    """Turns the errors of files (disk full, another user's file) into `DataError`."""
    try:
        yield
    except BrokenPipeError:  # the reader of standard output has gone
        raise
    except OSError as error:
        raise DataError(f"{where}: {error}. {remedy}") from error


@contextmanager
def claim(output: Path) -> Iterator[None]:
    """Creates the run's directory and locks it.

    Raises:
      UsageError: it is not a directory, or another run has the lock.
      DataError: a file cannot be read or written (disk full, another user's).
    """
    remedy = f"Finished checkpoints are kept; repair the cause, then add {flag('resume', True)}"
    with hold(str(output)), as_data_errors(output, remedy):
        yield


def start_or_resume(
    output: Path,
    settings: Dict[str, Any],
    *,
    resume: bool,
    same: Sequence[str],
) -> List[str]:
    """Writes a new run's settings, or compares a resumed run's with those in its directory.

    Settings are {"trainer", "config", "model", "fingerprint"}. Those of "config" named in `same`
    may not change; the result has a line for each other one that did.

    Raises:
      UsageError: the directory holds a run and `resume` is off, or a setting may not change.
      DataError: the settings cannot be read.
    """
    path = output / CONFIG_JSON
    if not path.exists():
        if (output / CHECKPOINTS).exists():
            raise UsageError(
                f"{output} holds checkpoints but no {CONFIG_JSON}: give another {flag('output')}"
            )
        for name in _FOREIGN:
            if (output / name).exists():
                raise UsageError(
                    f"{output} holds {name}, so it is a dataset or a tokenizer, and the run would "
                    f"replace its files: give another {flag('output')}"
                )
        write_settings(output, settings)
        return []
    if not resume:
        raise UsageError(
            f"{output} holds a run already: add {flag('resume', True)} to continue it, or give "
            f"another {flag('output')}"
        )
    before = read_settings(output, settings["trainer"])
    if "order" in settings["config"]:
        before["config"].setdefault("order", "full")  # the only one of older versions
    # A flag that an older version lacked is not a change.
    known = {name: settings["config"].get(name) for name in before["config"]}
    changes = _changes(before["config"], known)
    must_agree = _changes(
        {"shards' fingerprint": before["fingerprint"], **before["model"]},
        {"shards' fingerprint": settings["fingerprint"], **settings["model"]},
    )
    must_agree.update({name: changes.pop(name) for name in same if name in changes})
    if must_agree:
        raise UsageError(
            f"{output} cannot be resumed with these settings: {'; '.join(must_agree.values())}. "
            f"Give the dataset and settings it began with, or another {flag('output')}"
        )
    write_settings(output, settings)
    return [line for name, line in changes.items() if name not in _MAY_DIFFER_SILENTLY]


def read_settings(output: Path, trainer: Optional[str] = None) -> Dict[str, Any]:
    """The settings of the run in a directory: "trainer", "config", "model", "fingerprint".

    Raises:
      UsageError: it holds no run, or a run of another trainer.
      DataError: the settings cannot be read, or were edited.
    """
    path = output / CONFIG_JSON
    remedy = "copy it from a backup; a new run with the flags of config.yaml writes the same"
    if not path.exists():
        raise UsageError(f"{output} holds no run: it has no {CONFIG_JSON}")
    try:
        settings = read_run_settings(str(output)).plain()
    except DataError as error:
        raise DataError(f"{path} is not a trainer's configuration ({error}): {remedy}") from error
    if trainer not in (None, settings["trainer"]):
        raise UsageError(
            f"{output} holds a run of trainers.{settings['trainer']}, not of trainers.{trainer}: "
            f"use that one, or give another {flag('output')}"
        )
    return settings


def write_settings(output: Path, settings: Dict[str, Any]) -> None:
    """Writes them atomically."""
    partial = output / (CONFIG_JSON + ".partial")
    content = dict(settings, sha256=settings_sha256(settings))
    partial.write_text(json.dumps(content, sort_keys=True, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, output / CONFIG_JSON)


def _changes(before: Dict[str, Any], now: Dict[str, Any]) -> Dict[str, str]:
    before, now = json.loads(json.dumps([before, now]))  # JSON turns tuples into lists
    return {
        name: f"{name} was {before.get(name)!r}, is {now.get(name)!r}"
        for name in sorted(set(before) | set(now))
        if before.get(name) != now.get(name)
    }
