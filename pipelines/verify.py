"""Re-reads finished shard sets, all of them: `python -m pipelines.verify DIR [DIR ...]`.

What find_duplicates left is verified too.

Exit 0 and one line if everything is as published; else exit 1 and what is wrong, where.
"""

import sys
import time

import tyro

from pipelines.host.unused import leave_out_pandas
from pipelines.inspection.options import VerifyOptions
from schemas.commands.entry import run_entry
from schemas.commands.terminal import number_of, say
from schemas.errors import DataError


def main(argv: list[str]) -> None:
    """Verifies the sets of a command line."""
    options = tyro.cli(
        VerifyOptions, prog="python -m pipelines.verify", args=argv, use_underscores=True
    )
    leave_out_pandas()
    # Imports numba and tokenizers, 1 s that --help spares.
    from pipelines.corpus.near_duplicates.result import check_result, is_result
    from pipelines.inspection.checks.set_check import Findings, verify_set

    began = time.monotonic()
    rows = tokens = 0
    failures = []
    for directory in options.directories:
        try:
            findings = verify_set(directory, follow_links=options.follow_links)
            if findings.problems and is_result(directory):  # which is no set
                findings = Findings(problems=list(check_result(directory)))
        except DataError as error:
            failures.append(str(error))
            continue
        for note in findings.notes:
            say(f"note: {directory}: {note}", sys.stderr)
        if findings.problems:
            failures.append(findings.failure(directory))
        rows += findings.rows
        tokens += findings.tokens
    if failures:
        raise DataError("\n".join(failures))
    counts = [number_of(len(options.directories), "set"), number_of(rows, "row")]
    counts += [number_of(tokens, "token"), f"{time.monotonic() - began:.1f} s"]
    say(f"ok: {', '.join(counts)}")


if __name__ == "__main__":
    run_entry(main)
