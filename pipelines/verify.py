"""Checks datasets, corpora and tokenizers: `python -m pipelines.verify DIRECTORY ...`.

Exit code 0 and one line if everything is as published; else 1, and what is wrong where. With
--absent=DIGESTS.txt, listed documents in a directory or in the cache of this host are wrong, too.
"""

import sys
import time
from collections import Counter
from collections.abc import Mapping

from textmill.pipelines.inspection.checks.findings import Findings
from textmill.pipelines.inspection.options import VERIFY_HELP, VerifyOptions
from textmill.pipelines.runtime.imports import block_pandas
from textmill.schemas.commands.entry import import_later, run_entry
from textmill.schemas.commands.options import parse_options
from textmill.schemas.commands.terminal import number_of, say
from textmill.schemas.errors import DataError, flag
from textmill.schemas.files.cache import default_directory
from textmill.schemas.files.finished import Corpus, DatasetInfo, TokenizerInfo, kind_of
from textmill.schemas.format.digests import Digests, read_digests

# Import pyarrow, numba and tokenizers, which takes 1 s and which --help does not need.
check_corpus = import_later("textmill.pipelines.corpus.corpus_check:check_corpus")
CHECKS = {
    DatasetInfo: import_later("textmill.pipelines.inspection.checks.set_check:verify_dataset"),
    TokenizerInfo: import_later("textmill.pipelines.tokenizer.tokenizer_check:check_tokenizer"),
}
# Tokenizers hold no documents.
SEARCHES = {
    DatasetInfo: import_later("textmill.pipelines.inspection.checks.absence:search_dataset"),
    Corpus: import_later("textmill.pipelines.corpus.corpus_search:search_corpus"),
}
find_unlisted = import_later("textmill.pipelines.inspection.checks.absence:find_unlisted")
find_temporary = import_later("textmill.pipelines.inspection.checks.absence:find_temporary")
search_cache = import_later("textmill.pipelines.inspection.checks.absence:search_cache")


def main(argv: list[str]) -> None:
    """Verifies the directories of a command line."""
    options: VerifyOptions = parse_options(argv, VERIFY_HELP, VerifyOptions)
    began = time.monotonic()
    counts = verify(options)
    units = ("dataset", "corpus", "tokenizer", "document", "row", "token")
    many = {"corpus": "corpora"}
    shown = (number_of(counts[u], u, many.get(u, "")) for u in units if counts[u])
    done = f"ok: {', '.join(shown)}, {time.monotonic() - began:.1f} s"
    if options.absent is not None:
        done += f"; no document of {flag('absent', options.absent)} there or in {_cache(options)}"
    say(done)


def verify(options: VerifyOptions) -> Counter[str]:
    """Numbers of datasets, corpora, tokenizers, documents, rows and tokens that are as published.

    Raises:
      DataError: something differs, or a document of `absent` was found; names all of it.
      UsageError: the list of `absent` is wrong.
    """
    listed = None if options.absent is None else read_digests(options.absent, "absent")
    block_pandas()
    counts, failures, kinds = Counter[str](), [], {}
    for directory in options.directories:
        try:
            kind = kind_of(directory) or DatasetInfo
            if kind is Corpus:  # it may be a delta of another one
                findings = check_corpus(
                    directory, others=options.directories, follow_links=options.follow_links
                )
            else:
                findings = CHECKS[kind](directory, follow_links=options.follow_links)
        except DataError as error:
            failures.append(str(error))
            continue
        kinds[directory] = kind
        for note in findings.notes:
            say(f"note: {directory}: {note}", sys.stderr)
        if findings.problems:
            failures.append(findings.failure(directory))
        counts += Counter({kind.noun: 1, "document": findings.documents})
        counts += Counter({"row": findings.rows, "token": findings.tokens})
    if listed is not None:
        failures += _search(options, listed, kinds)
    if failures:
        raise DataError("\n".join(failures))
    return counts


def _search(options: VerifyOptions, listed: Digests, kinds: Mapping[str, type]) -> list[str]:
    """Finds listed documents and files that cannot be searched: a text for each directory."""
    failures, is_clean = [], {}
    is_bad = f"is not shown to be without the documents of {flag('absent', options.absent)}"
    for directory, kind in kinds.items():
        try:
            key, unlisted = find_unlisted(directory)
            if kind in SEARCHES:
                found = SEARCHES[kind](directory, listed, follow_links=options.follow_links)
                is_clean[key] = not found.problems
                for note in found.notes:
                    say(f"note: {directory}: {note}", sys.stderr)
                unlisted = [*found.problems, *unlisted]
        except DataError as error:
            failures.append(str(error))
            continue
        if unlisted:
            failures.append(Findings(unlisted).failure(directory, is_bad))
    for folder in find_temporary():
        say(f"note: {folder} was not searched: delete it if no run uses it", sys.stderr)
    try:
        if found := search_cache(_cache(options), listed, is_clean):
            failures.append(Findings(found).failure(_cache(options), is_bad))
    except DataError as error:
        failures.append(str(error))
    return failures


def _cache(options: VerifyOptions) -> str:
    return options.cache_dir or default_directory()


if __name__ == "__main__":
    run_entry(main)
