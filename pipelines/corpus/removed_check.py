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
from textmill.schemas.errors import DataError, TextmillError
from textmill.schemas.files.finished import Corpus
from textmill.schemas.format.drops import SAMPLED_REASONS, SAMPLES, Removed
from textmill.schemas.format.manifest import ManifestFile


def check_removed(corpus: Corpus, findings: Findings) -> Iterator[str]:
    """Checks the lists of removed documents, and what stats.json states of near-duplicates."""
    for check in (_check_older, _check_near):
        try:
            yield from check(corpus)
        except DataError as error:
            yield str(error)


def _check_older(corpus: Corpus) -> Iterator[str]:
    """Checks that the listed documents of older corpora ascend, and are not in this one."""
    for file, listed, still_kept in _read_lists(corpus, corpus.schema.older_names(), ("id",)):
        ids = listed["id"]
        if not pc.all(pc.less_equal(ids[:-1], ids[1:]), min_count=0).as_py():
            yield f"{file.path}: its ids do not ascend"
        yield from still_kept


def _check_near(corpus: Corpus) -> Iterator[str]:
    """Checks the lists of near-duplicates, and what stats.json states of them."""
    representatives, rows = [pa.array([], pa.large_string())], []
    # Without repeated paragraphs, a kept document may have the text of a removed one.
    is_edited = "duplicate_paragraphs" in corpus.schema.parameters
    names = ("id", "representative", "similarity")
    for file, listed, still_kept in _read_lists(corpus, corpus.schema.removed_names(), names):
        ids = listed["id"]
        yield from () if is_edited else still_kept
        if len(ids) != file.rows or len(pc.unique(ids)) != len(ids):
            yield f"{file.path}: it does not list {file.rows:,} different documents"
        representatives.append(listed["representative"])
        first = listed.take(pc.sort_indices(ids)[:SAMPLES])
        rows += zip(*(column.to_pylist() for column in first.columns), strict=True)
    yield from _check_near_counts(corpus, pa.concat_arrays(representatives), sorted(rows)[:SAMPLES])


def _read_lists(
    corpus: Corpus, names: Iterable[str], columns: tuple[str, ...]
) -> Iterator[tuple[ManifestFile, pa.RecordBatch, list[str]]]:
    """Yields each list, its columns, and a problem if one of its documents is in the corpus.

    Raises:
      DataError: a list, or the documents in its range of hashes, cannot be read.
    """
    files = {file.path: file for file in corpus.manifest.files}
    for name, documents in zip(names, corpus.documents, strict=False):
        try:
            listed = _concat(read_file(corpus, files[name], columns), columns)
            kept = _concat(read_file(corpus, documents, ("id",)), ("id",))["id"]
        except TextmillError as error:
            raise DataError(f"{name}: {error.marked}") from error
        is_kept = pc.any(pc.is_in(listed["id"], value_set=kept)).as_py()
        problem = f"{name}: a removed document is in {documents.path}"
        yield files[name], listed, [problem] if is_kept else []


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


def _concat(pieces: Iterable[Documents], names: tuple[str, ...]) -> pa.RecordBatch:
    empty = pa.record_batch([pa.array([], pa.large_string())] * len(names), [*names])
    return pa.concat_batches([empty, *(piece.columns.select(names) for piece in pieces)])


def read_file(corpus: Corpus, file: ManifestFile, columns: tuple[str, ...]) -> Iterator[Documents]:
    """Yields columns of a file of a corpus in pieces; the first has no empty value."""
    return read_rows(os.path.join(corpus.directory, file.path), file.rows or 0, columns)
