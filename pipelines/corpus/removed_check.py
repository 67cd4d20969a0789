"""Checks the lists of removed documents of a corpus, as `pipelines.verify` does."""

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa

from textmill.pipelines.corpus.near_duplicates.steps import count_sizes
from textmill.pipelines.corpus.partition import read_rows
from textmill.pipelines.corpus.partition_files import describe_near
from textmill.pipelines.inspection.checks.findings import Findings
from textmill.pipelines.readers.documents import Documents
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.errors import TextmillError
from textmill.schemas.files.finished import Corpus
from textmill.schemas.format.drops import SAMPLED_REASONS, SAMPLES, Removed
from textmill.schemas.format.manifest import ManifestFile


def check_removed(corpus: Corpus, findings: Findings) -> Iterator[str]:
    """Checks the lists of removed documents, and what stats.json states of near-duplicates."""
    yield from _check_known(corpus)
    representatives, rows = [pa.array([], pa.large_string())], []
    files = {file.path: file for file in corpus.manifest.files}
    for name, documents in zip(corpus.schema.removed_names(), corpus.documents, strict=False):
        try:
            removed, kept = _removed(corpus, files[name]), _ids(corpus, documents)
        except TextmillError as error:
            yield f"{name}: {error}"
            return
        ids, representative, similarity = removed.columns
        # Without repeated paragraphs, a kept document may have the text of a removed one.
        is_edited = "duplicate_paragraphs" in corpus.schema.parameters
        if not is_edited and pc.any(pc.is_in(ids, value_set=kept)).as_py():
            yield f"{name}: a removed document is in {documents.path}"
        if len(ids) != files[name].rows or len(pc.unique(ids)) != len(ids):
            yield f"{name}: it does not list {files[name].rows:,} different documents"
        representatives.append(representative)
        first = removed.take(pc.sort_indices(ids)[:SAMPLES])
        rows += zip(*(column.to_pylist() for column in first.columns), strict=True)
    yield from _check_near_counts(corpus, pa.concat_arrays(representatives), sorted(rows)[:SAMPLES])


def _check_known(corpus: Corpus) -> Iterator[str]:
    """Checks that the listed documents of older corpora ascend, and are not in this one."""
    files = {file.path: file for file in corpus.manifest.files}
    for name, documents in zip(corpus.schema.older_names(), corpus.documents, strict=False):
        try:
            listed, kept = _ids(corpus, files[name]), _ids(corpus, documents)
        except TextmillError as error:
            yield f"{name}: {error}"
            return
        if not pc.all(pc.less_equal(listed[:-1], listed[1:]), min_count=0).as_py():
            yield f"{name}: its ids do not ascend"
        if pc.any(pc.is_in(listed, value_set=kept)).as_py():
            yield f"{name}: a removed document is in {documents.path}"


def _check_near_counts(
    corpus: Corpus, representatives: pa.LargeStringArray, rows: list[tuple[str, str, str]]
) -> Iterator[str]:
    """Compares stats.json with the representative of each near-duplicate, and the first rows."""
    counts = pc.value_counts(representatives).field("counts").to_numpy()
    observed = corpus.stats.observed
    if observed.get("near_duplicate_clusters", {}) != count_sizes(counts):
        yield f"stats.json: near_duplicate_clusters is not {count_sizes(counts)}"
    if observed.get("near_duplicates", {}).get("removed", 0) != len(representatives):
        yield f"stats.json: near_duplicates.removed is not {len(representatives)}"
    reasons = corpus.stats.funnel.removed
    removed = reasons.get("near_duplicates", Removed())
    expected = [(name, describe_near(float(share), other)) for name, other, share in rows]
    are_sampled = removed.samples or len(reasons) <= SAMPLED_REASONS
    if are_sampled and [(s.document, s.detail) for s in removed.samples] != expected:
        yield "stats.json: the samples of near_duplicates are not the first removed documents"


def _removed(corpus: Corpus, file: ManifestFile) -> pa.RecordBatch:
    """The columns id, representative and similarity of removed near-duplicates."""
    names = ("id", "representative", "similarity")
    return _concat(read_file(corpus, file, names), names)


def _ids(corpus: Corpus, file: ManifestFile) -> pa.LargeStringArray:
    return _concat(read_file(corpus, file, ("id",)), ("id",)).column(0)


def _concat(pieces: Iterable[Documents], names: tuple[str, ...]) -> pa.RecordBatch:
    empty = pa.record_batch([pa.array([], pa.large_string())] * len(names), [*names])
    return pa.concat_batches([empty, *(piece.columns.select(names) for piece in pieces)])


def read_file(corpus: Corpus, file: ManifestFile, columns: tuple[str, ...]) -> Iterator[Documents]:
    """Yields columns of a file of a corpus in pieces; the first has no empty value."""
    return read_rows(os.path.join(corpus.directory, file.path), file.rows or 0, columns)
