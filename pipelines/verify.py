"""Re-reads finished shard sets, all of them: `python -m pipelines.verify DIR [DIR ...]`.

Exit 0 and one line if everything is as published; else exit 1 and what is wrong, where.
"""

import sys
import time
from dataclasses import dataclass
from typing import Annotated

import tyro

from pipelines.inspection.checks.set_check import verify_set
from schemas.errors import DataError, UsageError, run_entry
from schemas.terminal import say


@dataclass(frozen=True)
class VerifyOptions:
    """Re-reads finished shard sets and checks all that they say of themselves.

    Attributes:
      directories: of the sets, each with a MANIFEST.json; or URLs: gs://bucket/set.
      follow_links: open files that are links out of the set's directory, too.
    """

    directories: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR [DIR ...]")
    ]
    follow_links: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False

    def __post_init__(self) -> None:
        """Refuses an empty list."""
        if not self.directories:
            raise UsageError("give the directory of a shard set: python -m pipelines.verify DIR")


def main(argv: list[str]) -> None:
    """Verifies the sets of a command line."""
    options = tyro.cli(
        VerifyOptions, prog="python -m pipelines.verify", args=argv, use_underscores=True
    )
    began = time.monotonic()
    rows = tokens = 0
    failures = []
    for directory in options.directories:
        try:
            report = verify_set(directory, follow_links=options.follow_links)
        except DataError as error:
            failures.append(str(error))
            continue
        for note in report.notes:
            say(f"note: {directory}: {note}", sys.stderr)
        if report.problems:
            failures.append(report.failure(directory))
        rows += report.rows
        tokens += report.tokens
    if failures:
        raise DataError("\n".join(failures))
    sets = len(options.directories)
    say(
        f"ok: {sets} {'set' if sets == 1 else 'sets'}, {rows:,} rows, {tokens:,} tokens, "
        f"{time.monotonic() - began:.1f} s"
    )


if __name__ == "__main__":
    run_entry(main)
