"""Checks datasets, corpora and tokenizers: `python -m pipelines.verify DIRECTORY ...`.

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
from textmill.schemas.files.finished import Corpus, SetInfo, TokenizerInfo, kind_of

# Import pyarrow, numba and tokenizers, which takes 1 s and which --help does not need.
CHECKS = {
    SetInfo: import_later("textmill.pipelines.inspection.checks.set_check:verify_set"),
    Corpus: import_later("textmill.pipelines.corpus.corpus_check:check_corpus"),
    TokenizerInfo: import_later("textmill.pipelines.tokenizer.tokenizer_check:check_tokenizer"),
}


def main(argv: list[str]) -> None:
    """Verifies the directories of a command line."""
    options: VerifyOptions = parse_options(argv, VERIFY_HELP, VerifyOptions)
    began = time.monotonic()
    counts = verify(options)
    units = ("dataset", "corpus", "tokenizer", "document", "row", "token")
    many = {"corpus": "corpora"}
    shown = (number_of(counts[u], u, many.get(u, "")) for u in units if counts[u])
    say(f"ok: {', '.join(shown)}, {time.monotonic() - began:.1f} s")


def verify(options: VerifyOptions) -> Counter[str]:
    """Numbers of datasets, corpora, tokenizers, documents, rows and tokens that are as published.

    Raises:
      DataError: something differs; names all of it.
    """
    leave_out_pandas()
    counts, failures = Counter[str](), []
    for directory in options.directories:
        try:
            kind = kind_of(directory) or SetInfo
            findings = CHECKS[kind](directory, follow_links=options.follow_links)
        except DataError as error:
            failures.append(str(error))
            continue
        for note in findings.notes:
            say(f"note: {directory}: {note}", sys.stderr)
        if findings.problems:
            failures.append(findings.failure(directory))
        counts += Counter({kind.noun: 1, "document": findings.documents})
        counts += Counter({"row": findings.rows, "token": findings.tokens})
    if failures:
        raise DataError("\n".join(failures))
    return counts


if __name__ == "__main__":
    run_entry(main)
