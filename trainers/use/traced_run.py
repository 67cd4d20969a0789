"""A run as its directory records it: what it reads in which step, its losses and checkpoints."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

from textmill.schemas.errors import DataError, UsageError, flag, one_line
from textmill.schemas.format.digests import Digests
from textmill.trainers.data.batches import BatchReader
from textmill.trainers.data.shards_value import open_shards
from textmill.trainers.data.sightings import (
    SeenSegment,
    Sighting,
    rows_of_step,
    segments_of_rows,
    steps_of_rows,
)
from textmill.trainers.run.checkpoints import BEST, numbered
from textmill.trainers.run.journal import METRICS, last_step, train_lines
from textmill.trainers.run.run_directory import CHECKPOINTS, read_settings

_OF_SETS = ("cache_dir", "cache_gigabytes", "follow_links")


@dataclass(frozen=True)
class TracedRun:
    """A run, finished or not. Its steps count from 1, as in its metrics.

    Attributes:
      directory: of the run.
      shards: what it trains on.
      split: that it trains on.
      batch_size: rows of a step, of all hosts together.
      seed: decides the order.
      steps: that are done.
      checkpoints: the steps after which there are weights, ascending.
    """

    directory: Path
    shards: BatchReader
    split: str
    batch_size: int
    seed: int
    steps: int
    checkpoints: tuple[int, ...]

    def check_step(self, step: int) -> None:
        """Refuses a step that the run has not done."""
        if not 1 <= step <= self.steps:
            raise UsageError(
                f"{self.directory} has no step {step:,}: it has done {self.steps:,}, and the first "
                "is 1"
            )

    def rows(self, step: int) -> list[Sighting]:
        """The rows of a step, in the order of its batch; their `step` counts from 0."""
        self.check_step(step)
        order: Any = {"batch_size": self.batch_size, "seed": self.seed}
        return rows_of_step(self.shards, self.split, step - 1, **order)

    def segments(self, rows: list[Sighting]) -> list[SeenSegment]:
        """The segments of these rows; their `position` is an index into `rows`."""
        return segments_of_rows(self.shards, self.split, [one.row_index for one in rows])

    def sightings(self, digest: bytes) -> list[Sighting]:
        """The rows with a document that the run has read, by step; `step` counts from 0."""
        rows = self.shards.rows_of(self.split, digest)
        order: Any = {"batch_size": self.batch_size, "seed": self.seed}
        return steps_of_rows(self.shards, self.split, rows, stop_step=self.steps, **order)

    def sightings_of(self, listed: Digests) -> dict[bytes, list[Sighting]]:
        """Like `sightings`, of each listed document that the run's split has; it may be unseen."""
        rows_of = self.shards.find_documents(self.split, listed)
        rows = sorted({row for rows in rows_of.values() for row in rows})
        order: Any = {"batch_size": self.batch_size, "seed": self.seed}
        seen: dict[int, list[Sighting]] = {row: [] for row in rows}
        for one in steps_of_rows(self.shards, self.split, rows, stop_step=self.steps, **order):
            seen[one.row_index].append(one)
        return {
            digest: sorted(one for row in rows_of[digest] for one in seen[row])
            for digest in sorted(rows_of)
        }

    def has(self, digest: bytes) -> bool:
        """Whether some row of the run's split has a document."""
        return len(self.shards.rows_of(self.split, digest)) > 0

    def around(self, step: int) -> tuple[int | None, int | None]:
        """The newest checkpoint without a step, and the oldest with it; None if there is none."""
        before = [at for at in self.checkpoints if at < step]
        after = [at for at in self.checkpoints if at >= step]
        return (before[-1] if before else None, after[0] if after else None)

    def losses(self, first: int, last: int) -> dict[int, float]:
        """The loss of each of these steps that the run's metrics have."""
        path = str(self.directory / METRICS)
        return {line["step"]: line["loss"] for line in train_lines(path, first, last)}

    def set_of(self, row_index: int) -> tuple[str, int]:
        """The name of the dataset of a row, "" if there is one dataset, and its row there."""
        parts = getattr(self.shards, "parts", None)
        if parts is None:
            return "", row_index
        for part, name in zip(parts, self.shards.names):
            rows = part.rows(self.split) if self.split in part.splits else 0
            if row_index < rows:
                return name, row_index
            row_index -= rows
        raise IndexError(row_index)


def open_traced(directory: str, shards: str | None = None) -> TracedRun:
    """Opens a run, and what it trains on without reading its files of rows.

    Args:
      directory: of the run.
      shards: where its dataset is now, as --shards; None for where it was.

    Raises:
      UsageError: there is no run.
      DataError: its dataset is not there, or is another.
    """
    output = Path(directory)
    settings = read_settings(output)
    config = settings["config"]
    where, split = shards or config["shards"], config["train_split"]
    remedy = f"If the run's dataset was moved, give {flag('shards', 'DIR')}"
    try:
        found = open_shards(
            where,
            seed=config["seed"],
            stages=config.get("stages"),
            stage_shares=config.get("stage_shares") or "tokens",
            batch_size=config["batch_size"],
            split=split,
            verify=False,
            order=config.get("order", "full"),
            **{name: config[name] for name in _OF_SETS if name in config},
        )
    except DataError as error:
        raise DataError(f"{directory} trains on {where}: {error}. {remedy}") from error
    if found.fingerprint != settings["fingerprint"]:
        raise DataError(
            f"{where} is not the dataset of {directory}: its fingerprint is "
            f"{found.fingerprint[:8]}, the run's {settings['fingerprint'][:8]}. {remedy}"
        )
    kept = {*numbered(output / CHECKPOINTS), *numbered(output / BEST)}
    return TracedRun(
        directory=output,
        shards=found,
        split=split,
        batch_size=config["batch_size"],
        seed=config["seed"],
        steps=max([last_step(str(output / METRICS)), *kept]),
        checkpoints=tuple(sorted(kept)),
    )


def digest_of_file(path: str, runs: Sequence[TracedRun]) -> bytes:
    """The hash of the text of a file, without white space around it if only that is in a dataset.

    Raises:
      UsageError: the file cannot be read; the package for hashes is not installed.
    """
    if importlib.util.find_spec("xxhash") is None:
        raise UsageError(
            f"{flag('text', path)}: the package xxhash is not installed: pip install xxhash; or "
            f"give {flag('document', 'DIGEST')}"
        )
    # It may be missing, see above.
    import xxhash

    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{flag('text', path)}: {one_line(error)}") from error
    forms = (content, content[:-1] if content.endswith(b"\n") else content, content.strip())
    digests = [xxhash.xxh3_128_digest(form) for form in forms]
    held = (digest for digest in digests if any(run.has(digest) for run in runs))
    return next(held, digests[0])
