"""Checks datasets and corpora against their metadata: `python -m pipelines.verify DATASET ...`.

Exit code 0 and one line if everything is as published; else 1, and what is wrong where.
"""

import sys
import time
from collections import Counter

from textmill.pipelines.host.imports import leave_out_pandas
from textmill.pipelines.inspection.options import VERIFY_HELP, VerifyOptions
from textmill.schemas.commands.entry import import_later, run_entry
from textmill.schemas.commands.options import parse_options
from textmill.schemas.commands.terminal import number_of, say
from textmill.schemas.errors import DataError
from textmill.schemas.files.finished import Corpus, kind_of

# Import pyarrow, numba and tokenizers, which takes 1 s and which --help does not need.
check_corpus = import_later("textmill.pipelines.corpus.corpus_check:check_corpus")
verify_set = import_later("textmill.pipelines.inspection.checks.set_check:verify_set")


def main(argv: list[str]) -> None:
    """Verifies the datasets and corpora of a command line."""
    options: VerifyOptions = parse_options(argv, VERIFY_HELP, VerifyOptions)
    began = time.monotonic()
    counts = verify(options)
    units = {"dataset": "", "corpus": "corpora", "document": "", "row": "", "token": ""}
    shown = (number_of(counts[unit], unit, many) for unit, many in units.items() if counts[unit])
    say(f"ok: {', '.join(shown)}, {time.monotonic() - began:.1f} s")


def verify(options: VerifyOptions) -> Counter[str]:
    """Numbers of datasets, corpora, documents, rows and tokens that are as published.

    Raises:
      DataError: something differs; names all of it.
    """
    leave_out_pandas()
    counts, failures = Counter[str](), []
    for directory in options.directories:
        try:
            if kind_of(directory) is Corpus:
                check, unit = check_corpus, "corpus"
            else:
                check, unit = verify_set, "dataset"
            findings = check(directory, follow_links=options.follow_links)
        except DataError as error:
            failures.append(str(error))
            continue
        for note in findings.notes:
            say(f"note: {directory}: {note}", sys.stderr)
        if findings.problems:
            failures.append(findings.failure(directory))
        counts += Counter({unit: 1, "document": findings.documents})
        counts += Counter({"row": findings.rows, "token": findings.tokens})
    if failures:
        raise DataError("\n".join(failures))
    return counts


if __name__ == "__main__":
    run_entry(main)
