"""Checks a finished tokenizer, as `pipelines.verify` does."""

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.inspection.checks.findings import Findings
from textmill.pipelines.inspection.checks.listed_files import check_sums
from textmill.pipelines.tokenizer.histogram import read_histogram
from textmill.schemas.errors import DataError
from textmill.schemas.files.finished import TokenizerInfo, open_finished
from textmill.schemas.format.agreement import REPORT, TOKENIZER
from textmill.schemas.format.manifest import HISTOGRAM


def check_tokenizer(directory: str, *, follow_links: bool = False) -> Findings:
    """Checks the sha256 of every file, the size of the vocabulary, and the counts of words.

    For `follow_links` see `open_finished`.

    Raises:
      DataError: the directory is not a tokenizer, or its metadata files contradict each other.
    """
    info = open_finished(TokenizerInfo, directory, follow_links=follow_links)
    findings = check_sums(info)
    if findings.problems:
        return findings
    try:
        found, due = LoadedTokenizer(info.read(TOKENIZER)).vocab_size, info.report.vocab_size
        if found != due:
            findings.problems.append(f"{TOKENIZER} has {found:,} tokens, but {REPORT} {due:,}")
        with info.open_temporarily(HISTOGRAM) as path:
            words = read_histogram(path).counts.num_rows
        if words != info.report.distinct_words:
            findings.problems.append(
                f"{HISTOGRAM} has {words:,} words, but {REPORT} {info.report.distinct_words:,}"
            )
    except DataError as error:
        findings.problems.append(str(error))
    return findings
