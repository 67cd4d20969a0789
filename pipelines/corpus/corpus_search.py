"""Searches a corpus for listed documents, for `pipelines.verify --absent`.

A document is in a corpus by its id, by its text, or by a mention: in the lists of removed
near-duplicates, filtered and contaminated documents, and in the samples of stats.json and
quality.json.
"""

import os
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from textmill.pipelines.corpus.partition import read_rows
from textmill.pipelines.corpus.partition_files import hex_ids
from textmill.pipelines.corpus.scored_file import read_scored
from textmill.pipelines.inspection.checks.findings import Findings
from textmill.pipelines.rows.routing import content_digests
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.errors import DataError
from textmill.schemas.files.finished import Corpus, open_finished
from textmill.schemas.format.corpus_metadata import DOCUMENTS, NEAR_DUPLICATES
from textmill.schemas.format.digests import Digests
from textmill.schemas.format.manifest import QUALITY, REJECTED, ManifestFile

_TEXT = "text"
_CONTAMINATION, _FILTERED, _ = REJECTED  # bad input is not a document
_COLUMNS = {_CONTAMINATION: ("document",), _FILTERED: (_TEXT,)}
_REMOVED = ("id", "representative", _TEXT)  # the text only with --keep_rejects
_DIGEST = re.compile("[0-9a-f]{32}")


def search_corpus(directory: str, listed: Digests, *, follow_links: bool = False) -> Findings:
    """Searches a corpus for documents; for `follow_links` see `open_finished`.

    Raises:
      DataError: the corpus cannot be opened, or a file cannot be read.
    """
    corpus = open_finished(Corpus, directory, follow_links=follow_links)
    names = pa.array(listed.names, pa.large_string())
    problems = []
    for file in corpus.manifest.files:
        problems += _search_file(corpus, file, names)
    return Findings([*problems, *_search_samples(corpus, {*listed.names})])


def _search_file(corpus: Corpus, file: ManifestFile, names: pa.Array) -> Iterator[str]:
    columns = _columns_of(corpus, file)
    if not columns or not file.bytes:
        return
    rows = 1 if file.rows is None else file.rows  # unknown, but not 0
    for documents in read_rows(os.path.join(corpus.directory, file.path), rows, columns):
        if documents.rejects:
            bad = documents.rejects[0]
            raise DataError(f"{bad.place} cannot be searched: {bad.detail}")
        found: dict[tuple[int, str], None] = {}
        for name in columns:
            values = documents.columns[name]
            ids = hex_ids(content_digests(values)) if name == _TEXT else values
            here = np.flatnonzero(pc.is_in(ids, value_set=names))
            found |= dict.fromkeys((row, ids[row].as_py()) for row in here.tolist())
        for row, digest in sorted(found):
            offset, unit = int(documents.offsets[row]), documents.reject(row, "", "").unit
            yield f"{file.path}: document {digest} at {unit} {offset:,}"


def _columns_of(corpus: Corpus, file: ManifestFile) -> tuple[str, ...]:
    """The columns of a file that name documents, by an id or by their text."""
    if file.split == DOCUMENTS:
        return ("id", _TEXT)
    if file.path.startswith(NEAR_DUPLICATES):
        with corpus.open_temporarily(file.path) as path:
            there = pq.read_schema(path).names
        return tuple(name for name in _REMOVED if name in there)
    return _COLUMNS.get(file.path, ())


def _search_samples(corpus: Corpus, names: set[str]) -> Iterator[str]:
    for reason, removed in corpus.stats.funnel.removed.items():
        for sample in removed.samples:
            for digest in sorted(names & {sample.document, *_DIGEST.findall(sample.detail)}):
                yield f"stats.json: document {digest} in a sample of {reason}"
    for tenth, samples in read_scored(corpus).samples.items():
        for digest in sorted(names & {sample.document for sample in samples}):
            yield f"{QUALITY}: document {digest} in a sample of scores from {tenth}"
