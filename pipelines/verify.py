"""Checks datasets and corpora against their metadata: `python -m pipelines.verify DATASET ...`.

Exit code 0 and one line if everything is as published; else 1, and what is wrong where.
"""

import sys
import time

from pipelines.host.flags import parse_flags
from pipelines.host.imports import leave_out_pandas
from pipelines.inspection.options import VERIFY_HELP, VerifyOptions
from schemas.commands.entry import import_later, run_entry
from schemas.commands.terminal import number_of, say
from schemas.errors import DataError

# Import pyarrow, numba and tokenizers, which takes 1 s and which --help does not need.
check_corpus = import_later("pipelines.corpus.publish:check_corpus")
is_corpus = import_later("pipelines.writers.output_directory:is_corpus")
Findings = import_later("pipelines.inspection.checks.set_check:Findings")
verify_set = import_later("pipelines.inspection.checks.set_check:verify_set")


def main(argv: list[str]) -> None:
    """Verifies the datasets and corpora of a command line."""
    options: VerifyOptions = parse_flags(argv, VERIFY_HELP, VerifyOptions)
    leave_out_pandas()
    began = time.monotonic()
    sets = corpora = rows = tokens = documents = 0
    failures = []
    for directory in options.directories:
        try:
            if is_corpus(directory):
                checked = check_corpus(directory)
                corpora += 1
                documents += checked.documents
                if checked.problems:
                    failures.append(Findings(checked.problems).failure(directory))
                continue
            findings = verify_set(directory, follow_links=options.follow_links)
        except DataError as error:
            failures.append(str(error))
            continue
        for note in findings.notes:
            say(f"note: {directory}: {note}", sys.stderr)
        if findings.problems:
            failures.append(findings.failure(directory))
        sets += 1
        rows += findings.rows
        tokens += findings.tokens
    if failures:
        raise DataError("\n".join(failures))
    counts = [
        number_of(number, *unit)
        for number, *unit in (
            (sets, "dataset"),
            (corpora, "corpus", "corpora"),
            (documents, "document"),
            (rows, "row"),
            (tokens, "token"),
        )
        if number
    ]
    say(f"ok: {', '.join(counts)}, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    run_entry(main)
