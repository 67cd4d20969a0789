"""Checks a whole corpus, as `pipelines.verify` does: reads all files again."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.chain_check import check_chain
from textmill.pipelines.corpus.field_counts import SECTIONS, count_fields
from textmill.pipelines.corpus.partition import SOURCE
from textmill.pipelines.corpus.partition_files import hex_ids
from textmill.pipelines.corpus.removed_check import check_removed, read_file
from textmill.pipelines.corpus.scored_file import check_scored
from textmill.pipelines.inspection.checks.findings import Findings
from textmill.pipelines.inspection.checks.listed_files import check_sums
from textmill.pipelines.readers.corpus_files import read_hosts
from textmill.pipelines.rows.routing import content_digests
from textmill.pipelines.rows.text_bytes import count_words
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.errors import DataError, TextmillError
from textmill.schemas.files.finished import Corpus, open_finished
from textmill.schemas.format.corpus_metadata import (
    BINS,
    FILLED,
    FileStatistics,
    bins_of,
    partition_of,
)
from textmill.schemas.format.drops import LONGEST, Observed, add_observed
from textmill.schemas.format.manifest import HOSTS


def check_corpus(
    directory: str, *, follow_links: bool = False, others: Iterable[str] = ()
) -> Findings:
    """Checks the sha256 of every file, and the id, file and counts of every document.

    For `follow_links` see `open_finished`; `others` are further directories, which may be
    ancestors.

    Raises:
      DataError: the directory is not a corpus, or its metadata files contradict each other.
    """
    corpus = open_finished(Corpus, directory, follow_links=follow_links)
    findings = check_sums(corpus)
    checks = (_check_documents, check_removed, _check_samples, _check_hosts, check_scored)
    for check in checks:
        if not findings.problems:
            findings.problems += check(corpus, findings)
    if corpus.schema.ancestors and not findings.problems:
        findings.problems += check_chain(corpus, others, findings, follow_links=follow_links)
    return findings


def _check_documents(corpus: Corpus, findings: Findings) -> Iterator[str]:
    last, lengths = "", np.zeros(BINS, np.int64)
    fields = [name for name in corpus.schema.columns[2:] if name not in SOURCE]
    by_field: Observed = {}
    for number, file in enumerate(corpus.documents):
        counts = FileStatistics(near_duplicates=corpus.stats.files[file.path].near_duplicates)
        try:
            for documents in read_file(corpus, file, corpus.schema.columns):
                if documents.rejects or documents.empty:
                    first = documents.rejects[0].detail if documents.rejects else "no id"
                    raise DataError(f"a document cannot be read: {first}")
                ids, text = documents.columns["id"], documents.columns["text"]
                digests = content_digests(text)
                last = _check_order(ids, digests, last)
                if (partition_of(digests, corpus.schema.files) != number).any():
                    raise DataError("the id of a document belongs to another file")
                words = count_words(text)
                lengths += np.array(bins_of(words))
                add_observed(by_field, count_fields(documents.columns, fields))
                counts = FileStatistics(
                    counts.documents + len(ids),
                    counts.text_bytes + int(pc.sum(pc.binary_length(text)).as_py() or 0),
                    counts.words + int(words.sum()),
                    counts.near_duplicates,
                )
        except TextmillError as error:
            yield f"{file.path}: {error}"
            continue
        findings.documents += counts.documents
        if counts != corpus.stats.files[file.path]:
            yield f"{file.path} has {counts}, but stats.json {corpus.stats.files[file.path]}"
    for section in (FILLED, *SECTIONS):
        stated, counted = corpus.stats.observed.get(section, {}), by_field.get(section, {})
        # Corpora of earlier versions have no section but FILLED.
        if not findings.problems and stated != counted and (stated or section == FILLED):
            yield f"stats.json: {section} is not {counted}"
    if not findings.problems and tuple(lengths.tolist()) != corpus.stats.lengths:
        yield f"stats.json: lengths are {corpus.stats.lengths}, not {tuple(lengths.tolist())}"


def _check_order(ids: pa.LargeStringArray, digests: np.ndarray, last: str) -> str:
    """Checks that ids are the hashes of the texts and ascend from `last`; returns the last one."""
    if not ids.equals(hex_ids(digests)):
        raise DataError("an id is not the hash of its text")
    ordered = pa.concat_arrays([pa.array([last], ids.type), ids])
    if not pc.all(pc.less(ordered[:-1], ordered[1:]), min_count=0).as_py():  # true of none
        raise DataError("ids are not in strictly ascending order")
    return ordered[-1].as_py()


def _check_samples(corpus: Corpus, findings: Findings) -> Iterator[str]:
    """Checks that the samples of removed documents have the hashes of their texts."""
    for reason, removed in corpus.stats.funnel.removed.items():
        whole = [sample for sample in removed.samples if len(sample.excerpt) <= LONGEST]
        texts = pa.array([sample.excerpt for sample in whole], pa.large_string())
        if hex_ids(content_digests(texts)).to_pylist() != [sample.document for sample in whole]:
            yield f"stats.json: the document of a sample of {reason} is not the hash of its excerpt"


def _check_hosts(corpus: Corpus, findings: Findings) -> Iterator[str]:
    """Compares the web pages by host with stats.json."""
    for sentence in read_hosts(corpus).broken_equations(corpus.stats.observed):
        yield f"{HOSTS}: {sentence}"
